"""A reader's settings reach vtgate: tablets, headers, flags, where to begin, and how a connection is watched.

Against the stand-in over real MySQL shards; the requests to vtgate are looked up there.
"""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Callable

import pytest

from libs.errors import SourceMisconfigured, SourceUnavailable
from libs.servers.ports import LOOPBACK
from libs.source.vitess.settings import (
    CellPreference,
    StreamSettings,
    TabletOrder,
    TabletType,
    VtgateSettings,
)
from libs.source.vitess.vgtid import ShardGtid, format_vgtid
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.topology import Tablet
from protos.vitess import topodata_pb2
from protos.vitess.binlogdata_pb2 import Filter, Rule, VGtid
from protos.vitess.binlogdata_pb2 import ShardGtid as AskedShard
from protos.vitess.vtgate_pb2 import VStreamFlags, VStreamRequest
from services.vstream_reader.client import Vtgate
from services.vstream_reader.settings import VstreamReaderSettings
from services.vstream_reader.snapshot import first_position, stream_request
from tests.conftest import StartVtgate
from tests.integration.test_vstream_reader import TIMEOUT_S, UNUSED, Follower, fill, has_all, write

TYPES = {
    TabletType.PRIMARY: topodata_pb2.PRIMARY,
    TabletType.REPLICA: topodata_pb2.REPLICA,
    TabletType.RDONLY: topodata_pb2.RDONLY,
}


@pytest.fixture
def vtgate(start_vtgate: StartVtgate) -> VtgateServer:
    """Two shards with 40 rows."""
    server = start_vtgate()
    fill(server)
    return server


def let_serve(server: VtgateServer, tablet_type: "topodata_pb2.TabletType.ValueType", cell: str) -> None:
    """Each shard gets such a tablet in a cell: the primary's own server in another role, so no replication is waited for."""
    for shard in server.topology.serving(server.topology.keyspaces[0].name):
        tablet: Tablet = dataclasses.replace(
            shard.primary, uid=shard.primary.uid + 1, tablet_type=tablet_type, cell=cell
        )
        server.topology.put(dataclasses.replace(shard, tablets=(*shard.tablets, tablet)))


async def refusal(server: VtgateServer, stream: StreamSettings) -> str:
    """Why vtgate sends nothing; a follower would wait for better days."""
    settings = VstreamReaderSettings(
        source="s",
        vtgate=VtgateSettings(host=LOOPBACK, port=server.port),
        keyspace=server.topology.keyspaces[0].name,
        stream=stream,
        schema_history=UNUSED,
        checkpoint_committer=UNUSED,
    )
    request = stream_request(settings, first_position(settings, ("-80", "80-")))
    async with asyncio.timeout(TIMEOUT_S), Vtgate(settings.vtgate) as client:
        with pytest.raises(SourceUnavailable) as caught:
            async for _ in client.stream(request):
                pass
    return str(caught.value)


# --- tablets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tablet_type", list(TabletType), ids=lambda each: each.value)
async def test_a_tablet_of_the_type_is_read(vtgate: VtgateServer, tablet_type: TabletType) -> None:
    """vtgate is asked for it, and the rows come from it; no other type is taken in its place."""
    if tablet_type is not TabletType.PRIMARY:
        why = await refusal(vtgate, StreamSettings(tablet_type=tablet_type))
        assert f".{tablet_type.value}: no healthy tablet available" in why
        assert "a tablet of the type stream.tablet_type must serve" in why
        let_serve(vtgate, TYPES[tablet_type], "zone1")
    follower = Follower(vtgate, stream=StreamSettings(tablet_type=tablet_type))

    await follower.read(has_all)

    assert vtgate.requests[-1].tablet_type == TYPES[tablet_type]


async def test_a_tablet_in_one_of_the_cells_is_read(vtgate: VtgateServer) -> None:
    """And none elsewhere."""
    let_serve(vtgate, topodata_pb2.REPLICA, "zone2")
    replicas = StreamSettings(tablet_type=TabletType.REPLICA, cells=("zone3", "zone4"))
    assert "in one of stream.cells" in await refusal(vtgate, replicas)
    follower = Follower(vtgate, stream=StreamSettings(tablet_type=TabletType.REPLICA, cells=("zone3", "zone2")))

    await follower.read(has_all)

    assert vtgate.requests[-1].flags.cells == "zone3,zone2"


async def test_every_flag_reaches_vtgate(vtgate: VtgateServer) -> None:
    """By the name that vtgate has for it; journals come in any case, because they have the place to go on from."""
    stream = StreamSettings(
        cells=("zone1",),
        cell_preference=CellPreference.ONLY_SPECIFIED,
        tablet_order=TabletOrder.IN_ORDER,
        heartbeat_interval_s=3,
        stop_on_reshard=True,
        stream_keyspace_heartbeats=True,
        minimize_skew=True,
        exclude_keyspace_from_table_name=True,
    )
    follower = Follower(vtgate, stream=stream)

    await follower.read(has_all)

    assert vtgate.requests[-1].flags == VStreamFlags(
        cells="zone1",
        cell_preference="onlyspecified",
        tablet_order="inorder",
        heartbeat_interval=3,
        stop_on_reshard=True,
        include_reshard_journal_events=True,
        stream_keyspace_heartbeats=True,
        minimize_skew=True,
        exclude_keyspace_from_table_name=True,
    )


# --- the connection ----------------------------------------------------------------------------------------------------


async def test_headers_come_with_every_call(vtgate: VtgateServer) -> None:
    """With statements and with the stream."""
    told = VtgateSettings(host=LOOPBACK, port=vtgate.port, headers={"x-region": "eu", "x-team": "shop 7"})

    await Follower(vtgate, vtgate=told).read(has_all)

    reader = [headers for headers in vtgate.headers if "x-region" in headers]
    assert len(reader) > len(vtgate.requests) >= 1
    assert {(headers["x-region"], headers["x-team"]) for headers in reader} == {("eu", "shop 7")}


class Line:
    """A way to a server on which nothing moves any more once ``is_cut`` is set: neither side hears of it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.is_cut = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self._port)
        with contextlib.closing(writer), contextlib.closing(server_writer):
            await asyncio.gather(self._pump(reader, server_writer), self._pump(server_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self.is_cut:
                    continue
                writer.write(data)
                await writer.drain()


async def test_a_line_that_was_cut_is_found_out_by_keepalive(vtgate: VtgateServer) -> None:
    """No answer to a ping: the stream ends with an error. gRPC itself would wait a minute for one."""
    line = Line(vtgate.port)
    server = await asyncio.start_server(line.carry, LOOPBACK, 0)
    keyspace = vtgate.topology.keyspaces[0].name
    request = VStreamRequest(
        tablet_type=topodata_pb2.PRIMARY,
        vgtid=VGtid(shard_gtids=[AskedShard(keyspace=keyspace, gtid="current")]),
        filter=Filter(rules=[Rule(match="t")]),
        flags=VStreamFlags(heartbeat_interval=1),
    )
    settings = VtgateSettings(host=LOOPBACK, port=server.sockets[0].getsockname()[1], keepalive_s=2.0)
    answers = 0

    with pytest.raises(SourceUnavailable):
        async with server, asyncio.timeout(TIMEOUT_S) as limit, Vtgate(settings) as client:
            async for _ in client.stream(request):
                answers += 1
                if answers == 5:
                    line.is_cut = True
                    limit.reschedule(
                        asyncio.get_running_loop().time() + 45.0
                    )  # two seconds to the ping, two for its answer

    assert line.is_cut


# --- where to begin ----------------------------------------------------------------------------------------------------


def is_past_the_beginning(follower: Follower) -> bool:
    token = follower.checkpoint.position.token if follower.checkpoint is not None else b"current"
    return b"current" not in token


def places(server: VtgateServer) -> tuple[ShardGtid, ...]:
    """Where each shard stands now."""
    keyspace = server.topology.keyspaces[0].name
    return tuple(
        ShardGtid(keyspace=keyspace, shard=shard.name, gtid=shard.primary.position())
        for shard in server.topology.serving(keyspace)
    )


@pytest.mark.parametrize(
    "start",
    ["current", lambda keyspace: json.dumps([{"keyspace": keyspace, "gtid": "current"}])],
    ids=["word", "VGTID"],
)
async def test_current_begins_now_with_every_shard(vtgate: VtgateServer, start: str | Callable[[str], str]) -> None:
    """With every snapshot mode; in a VGTID an entry without a shard stands for all."""
    text = start if isinstance(start, str) else start(vtgate.topology.keyspaces[0].name)
    follower = Follower(vtgate, start_vgtid=text)
    await follower.read(is_past_the_beginning)
    asked = [(entry.shard, entry.gtid) for entry in vtgate.requests[0].vgtid.shard_gtids]

    write(vtgate, *(f"UPDATE t SET v = 'new' WHERE id = {row_id}" for row_id in range(1, 11)))
    await follower.read(lambda f: len(f.ops) >= 10)

    assert asked == [("-80", "current"), ("80-", "current")]
    assert follower.ops == ["u"] * 10
    assert follower.table == dict.fromkeys(range(1, 11), "new")


async def test_earliest_copies_the_tables_first(vtgate: VtgateServer) -> None:
    """A keyspace has no earlier beginning than the rows that there are."""
    follower = Follower(vtgate, start_vgtid="earliest")

    await follower.read(has_all)

    assert [entry.gtid for entry in vtgate.requests[0].vgtid.shard_gtids] == ["", ""]
    assert follower.ops == ["r"] * 40


async def test_a_vgtid_begins_there(vtgate: VtgateServer) -> None:
    """Each shard at its own place: later transactions come, nothing before."""
    start = places(vtgate)
    write(vtgate, *(f"UPDATE t SET v = 'new' WHERE id = {row_id}" for row_id in range(1, 11)))
    follower = Follower(vtgate, start_vgtid=format_vgtid(start))

    await follower.read(lambda f: len(f.ops) >= 10)

    assert follower.ops == ["u"] * 10
    assert follower.table == dict.fromkeys(range(1, 11), "new")


async def test_a_gtid_set_begins_there_with_one_shard(vtgate: VtgateServer) -> None:
    """The other shard is not read."""
    first, second = places(vtgate)
    write(vtgate, *(f"UPDATE t SET v = 'new' WHERE id = {row_id}" for row_id in range(1, 11)))
    shard = vtgate.topology.serving(first.keyspace)[0]
    mine = sorted(int(str(row[0])) for row in shard.primary.execute("SELECT id FROM t WHERE v = 'new'"))
    follower = Follower(vtgate, shards=(first.shard,), start_vgtid=first.gtid)

    await follower.read(lambda f: len(f.ops) >= len(mine))

    assert sorted(follower.table) == mine
    assert [entry.shard for entry in vtgate.requests[-1].vgtid.shard_gtids] == [first.shard] != [second.shard]


async def test_a_vgtid_that_lacks_a_shard_is_refused(vtgate: VtgateServer) -> None:
    """Nobody would read it, and nobody would notice."""
    first, _ = places(vtgate)

    with pytest.raises(
        SourceMisconfigured, match=r"start_vgtid names no place of shard 80- .*; its shards are -80: add"
    ):
        await Follower(vtgate, start_vgtid=format_vgtid((first,))).read(has_all)
