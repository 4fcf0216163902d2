"""The demo's own database servers, and the stand-ins for Tencent's DTS, Vitess or Oracle.

``own-servers.json`` in the home names them, so a demo's stack comes up again with ``headwater up``. ``stack.prepare`` asks
``own_servers`` for their processes:

    mysql …            stage of the services; ready once the demo has filled it
    dts-stand-in       ``libs.stand_ins.dts.producer``: the server's binlog as DTS's messages, in the stack's Kafka
    vtgate-stand-in    ``libs.stand_ins.vtgate``: VStream and Execute over the servers as shards
    oracle-stand-in    ``libs.stand_ins.oracle``: a model of a database, in place of a MySQL

Neither Tencent's service nor Vitess can be had on one machine, and an Oracle server not everywhere: docs/dts.md,
docs/vitess-stand-in.md and docs/oracle.md describe the stand-ins, and how far they may be trusted.
"""

import dataclasses
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from libs.errors import HeadwaterError, InvalidSettings
from libs.mesh.documents import VtgateDocument
from libs.mesh.home import Home
from libs.mesh.processes import PYTHON_ENVIRON
from libs.mesh.state import replace_file
from libs.mesh.vtgate import Vtgate
from libs.servers import mysql_server
from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec
from libs.stack.plan import STAGE_SERVICES, STAGE_STAND_INS
from libs.stack.supervisor import Supervised
from libs.stand_ins.dts.producer import topic_end

DTS_STAND_IN: Final = "dts-stand-in"
VTGATE_STAND_IN: Final = "vtgate-stand-in"
ORACLE_STAND_IN: Final = "oracle-stand-in"
FILL_TIMEOUT_S: Final = 300.0
# A demo's database may lose its last second in a power cut; in return it is filled in seconds.
_FAST: Final = ("--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0")
_STAND_IN_REPLICA_ID: Final = 9_001


class OwnSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that a stand-in writes the first server's log to, as DTS would."""

    topic: str
    user: str
    password: str
    """Of the server."""


class OwnVtgate(msgspec.Struct, frozen=True, kw_only=True):
    """A stand-in for vtgate with the servers as a keyspace's shards."""

    port: int
    keyspace: str
    shards: Mapping[str, str]
    """Which server (its name) each shard lies on."""
    vindex_columns: Mapping[str, str]
    """The sharding column of each table."""


class OwnOracle(msgspec.Struct, frozen=True, kw_only=True):
    """A stand-in for an Oracle server. Its database is in its memory: a restart begins with an empty one."""

    port: int
    users: Mapping[str, str]
    """Passwords by names in capitals."""


class OwnServers(msgspec.Struct, frozen=True, kw_only=True):
    """``own-servers.json``."""

    mysql_ports: Mapping[str, int] = {}
    """Port of each MySQL server by its name, which is its process's."""
    subscription: OwnSubscription | None = None
    vtgate: OwnVtgate | None = None
    oracle: OwnOracle | None = None


def write_own_servers(home: Home, servers: OwnServers) -> None:
    """From the next start on the stack of ``home`` runs them."""
    replace_file(home.own_servers_file, msgspec.json.format(msgspec.json.encode(servers)), mode=0o600)


def own_servers(home: Home, bootstrap_servers: str) -> tuple[Supervised, ...]:
    """The processes of the home's own servers, in the order of their start; none where the home names none.

    Raises:
        InvalidSettings: the file cannot be read, or there is no MySQL or no stand-in on this machine.
    """
    if not home.own_servers_file.exists():
        return ()
    try:
        servers = msgspec.json.decode(home.own_servers_file.read_bytes(), type=OwnServers)
    except msgspec.DecodeError as error:
        raise InvalidSettings(str(home.own_servers_file), [f"{error}: `headwater demo` writes it again"]) from error
    databases = [_mysql(home, name, port, nth) for nth, (name, port) in enumerate(servers.mysql_ports.items(), 1)]
    stand_ins = []
    if servers.subscription is not None:
        [port] = servers.mysql_ports.values()
        stand_ins.append(_dts_stand_in(home, servers.subscription, port, bootstrap_servers))
    if servers.vtgate is not None:
        stand_ins.append(_vtgate_stand_in(home, servers.vtgate, servers.mysql_ports))
    if servers.oracle is not None:
        stand_ins.append(_oracle_stand_in(home, servers.oracle))
    return (*databases, *stand_ins)


def _mysql(home: Home, name: str, port: int, server_id: int) -> Supervised:
    """Readers wait until the demo has filled it; Kafka and Spark start meanwhile."""
    spec = mysql_server.prepare(home.data_dir / name, port=port, name=name, server_id=server_id, extra_options=_FAST)
    serves = spec.ready
    return Supervised(
        spec=dataclasses.replace(
            spec, ready=lambda: home.own_servers_filled_file.exists() and (serves is None or serves())
        ),
        stage=STAGE_SERVICES,
        ready_timeout_s=FILL_TIMEOUT_S,
    )


def _oracle_stand_in(home: Home, oracle: OwnOracle) -> Supervised:
    """As ``_mysql``: the reader waits until the demo has filled it."""
    settings = {"port": oracle.port, "users": dict(oracle.users)}
    return dataclasses.replace(
        _program(
            home,
            ORACLE_STAND_IN,
            ("libs.stand_ins.oracle",),
            settings,
            lambda: home.own_servers_filled_file.exists() and _listens(oracle.port),
        ),
        stage=STAGE_SERVICES,
        ready_timeout_s=FILL_TIMEOUT_S,
    )


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False


def _dts_stand_in(home: Home, subscription: OwnSubscription, port: int, bootstrap_servers: str) -> Supervised:
    settings = {
        "database": {"host": LOOPBACK, "port": port, "user": subscription.user, "password": subscription.password},
        "bootstrap_servers": bootstrap_servers,
        "topic": subscription.topic,
        "replica_server_id": _STAND_IN_REPLICA_ID,
    }
    return _program(
        home,
        DTS_STAND_IN,
        ("libs.stand_ins.dts.producer", "--settings"),
        settings,
        # It begins a new topic with a CHECKPOINT: from there on the topic has all commits of the server.
        lambda: topic_end(bootstrap_servers, subscription.topic) > 0,
    )


def _vtgate_stand_in(home: Home, vtgate: OwnVtgate, mysql_ports: Mapping[str, int]) -> Supervised:
    keyspace = {
        "vindex_columns": dict(vtgate.vindex_columns),
        "shards": {shard: {"host": LOOPBACK, "port": mysql_ports[name]} for shard, name in vtgate.shards.items()},
    }
    settings = {"port": vtgate.port, "track_schema_versions": True, "keyspaces": {vtgate.keyspace: keyspace}}
    return _program(home, VTGATE_STAND_IN, ("libs.stand_ins.vtgate",), settings, lambda: _serves_shards(vtgate))


def _serves_shards(vtgate: OwnVtgate) -> bool:
    try:
        with Vtgate(VtgateDocument(host=LOOPBACK, port=vtgate.port)) as client:
            return set(client.shards(vtgate.keyspace)) == set(vtgate.shards)
    except HeadwaterError:
        return False


def _program(home: Home, name: str, arguments: tuple[str, ...], settings: Any, ready: Any) -> Supervised:
    replace_file(home.settings_file(name), yaml.safe_dump(settings, sort_keys=False).encode(), mode=0o600)
    return Supervised(
        spec=ProcessSpec(
            name=name,
            command=(sys.executable, "-m", *arguments, str(home.settings_file(name))),
            environ=PYTHON_ENVIRON,
            working_dir=home.run_dir,
            ready=ready,
        ),
        stage=STAGE_STAND_INS,
    )
