"""``python -m libs.stand_ins.vtgate FILE``: the stand-in as a process, over MySQL servers that run already.

FILE is YAML; the databases, and Vitess's own tables, are created where they are missing::

    port: 15991            # 0 or left out: any free one
    heartbeats: false      # write keyspace heartbeats
    track_schema_versions: false   # note columns after each DDL statement, for streams that lag
    users: {vitess: secret}
    keyspaces:
      shop:
        vindex_columns: {orders: customer_id}   # "id" where a table is not named
        shards:
          "-80": {host: 127.0.0.1, port: 3306, user: root, password: ""}
          "80-": {host: 127.0.0.1, port: 3307}

The first line of output is ``listening on HOST:PORT``; SIGTERM ends it. ``--replay FILE`` instead serves a recorded stream
(``libs/stand_ins/vtgate/replay.py``).
"""

import argparse
import contextlib
import signal
from pathlib import Path
from typing import Any, Final

import yaml

from libs.stand_ins.vtgate.cluster import heartbeats, new_shard
from libs.stand_ins.vtgate.replay import ReplayServer
from libs.stand_ins.vtgate.schema_tracker import tracked_schemas
from libs.stand_ins.vtgate.service import Security, VtgateServer
from libs.stand_ins.vtgate.topology import Keyspace, Shard, Topology

_ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT})


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    # Blocked, and taken by ``sigwait``: Python runs a handler in its main thread alone, which does not wake from a lock when
    # the kernel gives the signal to one of gRPC's threads. Threads inherit the mask, so this comes before the first.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    parser = argparse.ArgumentParser(prog="python -m libs.stand_ins.vtgate")
    parser.add_argument("cluster", type=Path, nargs="?", help="YAML that names the keyspaces and their MySQL servers")
    parser.add_argument("--replay", type=Path, help="a recorded stream to serve instead")
    parser.add_argument("--hold", type=Path, help="with --replay: send heartbeats alone until this file is there")
    parser.add_argument("--port", type=int, default=None)
    arguments = parser.parse_args()
    if (arguments.cluster is None) == (arguments.replay is None):
        parser.error("give either a cluster's file or --replay")
    with contextlib.ExitStack() as stack:
        if arguments.replay is not None:
            server: VtgateServer | ReplayServer = ReplayServer(
                arguments.replay, port=arguments.port or 0, hold=arguments.hold
            )
        else:
            server = _cluster_server(yaml.safe_load(arguments.cluster.read_text()), arguments.port, stack)
        stack.callback(server.start().stop)
        print(f"listening on {server.address}", flush=True)  # noqa: T201 - the starter waits for it
        signal.sigwait(_ENDING)


def _cluster_server(document: dict[str, Any], port: int | None, stack: contextlib.ExitStack) -> VtgateServer:
    keyspaces: list[Keyspace] = []
    shards: list[Shard] = []
    for keyspace, described in document["keyspaces"].items():
        keyspaces.append(Keyspace(keyspace, dict(described.get("vindex_columns", {}))))
        for name, place in described["shards"].items():
            shards.append(new_shard(keyspace, name, 100 * (len(shards) + 1), **place))
    topology = Topology(keyspaces, shards)
    if document.get("heartbeats"):
        stack.enter_context(heartbeats(topology))
    server = VtgateServer(
        topology,
        security=Security(users=document.get("users", {})),
        port=port if port is not None else document.get("port", 0),
    )
    if document.get("track_schema_versions"):
        stack.enter_context(tracked_schemas(topology, server.schemas))
    return server


if __name__ == "__main__":
    main()
