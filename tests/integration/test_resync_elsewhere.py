"""``headwater resync --mesh`` on a real Kafka: its questions, its waits, and how a killed one is continued.

The reader and the sink are this test: each answers in the topic in which the mesh's own one does. A job that reports is in
``tests/unit/spark/test_told_resyncs.py``.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from libs.config.connections import KafkaSettings
from libs.events.checkpoint_codec import checkpoint_key, encode_checkpoint
from libs.events.names import CHECKPOINTS_TOPIC, SINK_HANDOVERS_TOPIC, changes_topic, resyncs_topic, row_topic
from libs.kafka.clients import TopicSpec, ensure_topics
from libs.kafka.sink_handovers import sink_handovers_topic
from libs.mesh.mesh_settings import notes_dir_of
from libs.mesh.resync_notes import running_resyncs
from libs.mesh.tenant_topics import open_consumer
from libs.sink_state.resync import ResyncAnswer, TenantResyncs, decode_resync_request, encode_resyncs
from libs.source.signal_topic import SIGNALS_TOPIC
from libs.types.checkpoint import Checkpoint, FencingToken, FinishedCopy, IncrementalSnapshot
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from libs.types.sink_place import resyncs_key
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from libs.warehouse_readers.table_progress import progress_table
from libs.warehouse_readers.warehouse import TenantTable
from tests.headwater_command import run_here
from tests.integration.test_hops_elsewhere import written
from tests.waiting import wait_until

ORDERS = TableId(database="db", table="orders")


class Mesh:
    """Its Kafka, and the names of one source and one tenant."""

    def __init__(self, kafka: KafkaSettings, source: str, tenant: str) -> None:
        self.kafka, self.source, self.tenant = kafka, source, tenant
        self.topic = row_topic(tenant, source, ORDERS)

    def record(self, topic: str, is_meant: Callable[[bytes, bytes], bool]) -> tuple[int, bytes]:
        """Offset and value of the first record that is meant, once it is there."""
        with closing(open_consumer(self.kafka)) as consumer:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    key, value = bytes(message.key() or b""), bytes(message.value() or b"")
                    if is_meant(key, value):
                        return int(message.offset() or 0), value

    def read_copy(self) -> None:
        """As the reader does: it has read the table that a signal asks for."""
        offset, text = self.record(SIGNALS_TOPIC, lambda key, _: key == self.source.encode())
        copy = FinishedCopy(table=str(ORDERS), signal_id=json.loads(text)["id"], rows_read=3)
        self.write_checkpoint(IncrementalSnapshot(signals_offset=offset + 1, finished=(copy,)))

    def write_checkpoint(self, incremental: IncrementalSnapshot) -> None:
        checkpoint = Checkpoint(
            partition=SourcePartition(source=self.source, name="0"),
            position=SourcePosition(source_kind="mysql", token=b""),
            order=EventOrder(epoch=0, rank=1, tx_ordinal=0),
            fencing_token=FencingToken(1),
            committed_at_us=0,
            published_at_us=0,
            incremental=incremental,
        )
        written(self.kafka, CHECKPOINTS_TOPIC, (checkpoint_key(checkpoint.partition), encode_checkpoint(checkpoint)))

    def build(self, **answered: Any) -> None:
        """As the sink's job does when it meets the request."""
        request = decode_resync_request(self.record(resyncs_topic(self.tenant), lambda _, value: bool(value))[1])
        assert (dict(request.from_offsets), dict(request.to_offsets)) == ({0: 3}, {0: 3})
        answer = ResyncAnswer(topic=request.topic, query_id="q", batch_id=1, at_us=2_000_000, **answered)
        told = encode_resyncs(TenantResyncs(tenant=self.tenant, answers={request.id: answer}))
        written(self.kafka, SINK_HANDOVERS_TOPIC, (resyncs_key(self.tenant, "u", "packed-0").encode(), told))


@pytest.fixture
def mesh(bootstrap_servers: str, unique_name: Callable[[str], str]) -> Mesh:
    found = Mesh(
        KafkaSettings(bootstrap_servers=bootstrap_servers),
        unique_name("shop").replace("_", "-"),
        unique_name("acme").replace("_", "-"),
    )
    names = (CHECKPOINTS_TOPIC, SIGNALS_TOPIC, changes_topic(found.source), found.topic, resyncs_topic(found.tenant))
    ensure_topics(found.kafka, [*(TopicSpec(name=name) for name in names), sink_handovers_topic(1)])
    written(found.kafka, found.topic, *((b"%d" % number, b"row") for number in range(3)))
    found.write_checkpoint(IncrementalSnapshot())
    return found


@pytest.fixture
def mesh_file(mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its tenant's document lies in a folder; which tables are stored is given."""
    tables = [TenantTable(mesh.tenant, mesh.source, ORDERS, warehouse_table(mesh.tenant, mesh.source, ORDERS))]
    monkeypatch.setattr("libs.mesh.cluster_sinks.stored_tables", lambda *_: (Stored(mesh), tables))
    (tmp_path / "tenants").mkdir()
    (tmp_path / "tenants" / "acme.yaml").write_text(
        f"tenant: {mesh.tenant}\nsources: [{{name: {mesh.source}}}]\nsink: {{}}\n"
    )
    file = tmp_path / "mesh.yaml"
    kafka = {"bootstrap_servers": mesh.kafka.bootstrap_servers}
    file.write_text(
        yaml.safe_dump({"kafka": kafka, "tenants_dir": str(tmp_path / "tenants"), "notes_dir": str(tmp_path / "notes")})
    )
    return file


class Stored:
    """A warehouse whose table has all of its topic's first three events."""

    def __init__(self, mesh: Mesh) -> None:
        self._row = {"source": mesh.source, "table": str(ORDERS), "offsets": '{"0": 3}'}

    def load(self, _place: object) -> None:
        return None

    def progress(self, _tables: object) -> Any:
        return progress_table([self._row])


@contextmanager
def doing(*steps: Callable[[], None]) -> Iterator[None]:
    """The rest of the mesh, beside the command; its errors are the test's."""
    failed: list[BaseException] = []

    def carry_out() -> None:
        try:
            for step in steps:
                step()
        except BaseException as error:  # of the thread, reported below
            failed.append(error)

    thread = threading.Thread(target=carry_out, daemon=True)
    thread.start()
    yield
    wait_until(lambda: not thread.is_alive(), because="the mesh has done its part")
    assert not failed, failed


def test_a_table_elsewhere_is_built_again(mesh: Mesh, mesh_file: Path) -> None:
    """The command is broken off while the rows are copied; the next one asks for no second copy."""
    command = ("resync", mesh.tenant, "orders", "--mesh", str(mesh_file))
    broken_off = run_here(*command, "--timeout", "0")
    begun = running_resyncs(mesh_file.parent / "notes", mesh.tenant)
    with doing(mesh.read_copy, lambda: mesh.build(is_done=True, events=3)):
        done = run_here(*command)

    assert broken_off.exit_code == 1
    assert f"reader of {mesh.source} is behind by a signal" in broken_off.output, broken_off.output
    assert list(begun) == [mesh.topic]
    assert done.exit_code == 0, done.output
    assert "a resync has begun already (copying the source's rows): continuing it" in done.output
    assert "db.orders: built again from 3 event(s), swapped in " in done.output
    assert running_resyncs(mesh_file.parent / "notes", mesh.tenant) == {}


def test_a_refusal_of_the_sink_is_told(mesh: Mesh, mesh_file: Path) -> None:
    with doing(mesh.read_copy, lambda: mesh.build(refused_because="3 key(s) of the table are parked: mend them")):
        refused = run_here("resync", mesh.tenant, "orders", "--mesh", str(mesh_file))

    assert refused.exit_code == 1
    assert "db.orders was not built, and is unchanged: 3 key(s) of the table are parked: mend them" in refused.output


def test_a_table_or_tenant_that_is_not_there_is_named(mesh: Mesh, mesh_file: Path) -> None:
    table = run_here("resync", mesh.tenant, "ordrs", "--mesh", str(mesh_file))
    tenant = run_here("resync", f"{mesh.tenant}x", "orders", "--mesh", str(mesh_file))

    assert "has written no such table; did you mean 'orders'" in table.output
    assert f"did you mean '{mesh.tenant}'" in tenant.output
    assert (table.exit_code, tenant.exit_code) == (2, 2)


def test_notes_lie_where_the_file_or_the_person_has_them() -> None:
    """Those of two meshes apart."""
    kafka = KafkaSettings(bootstrap_servers="k1:9092,k2:9092")

    assert notes_dir_of("/notes", kafka, {"XDG_STATE_HOME": "/state"}) == Path("/notes")
    assert notes_dir_of(None, kafka, {"XDG_STATE_HOME": "/state"}) == Path("/state/headwater/k1_9092_k2_9092")
    assert notes_dir_of(None, kafka, {}) == Path.home() / ".local/state/headwater/k1_9092_k2_9092"
