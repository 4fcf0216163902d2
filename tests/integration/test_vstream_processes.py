"""The VStream reader as processes, killed and dealt shards again, between the stand-in over real MySQL shards and a real
Kafka."""

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.config.connections import KafkaSettings
from libs.kafka.clients import ensure_topics
from libs.mesh.documents import read_documents
from libs.mesh.home import Home, home_at, write_examples
from libs.mesh.processes import is_reader_of
from libs.mesh.reader_tasks import planned_generations, store_generations
from libs.setup.spark_toolchain import SparkToolchain
from libs.source.signal_outcomes import recent_signals
from libs.source.signal_topic import beginning_of, keep_beginning, send_signal, signals_topic
from libs.source.vitess.tasks import TaskSettings, partition_name
from libs.stack.plan import plan_processes, port_names
from libs.stand_ins.vtgate.client import execute
from libs.stand_ins.vtgate.cluster import new_shard, on_every_shard, topology_of
from libs.stand_ins.vtgate.log_stream import TabletOptions
from libs.stand_ins.vtgate.reshard import reshard
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.vstream import ServerOptions
from libs.types.position import SourcePartition
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from services.vstream_reader.tasks import is_former_partition
from tests.conftest import KafkaBroker, MysqlServer, StartVtgate
from tests.integration.reader_pipeline import PublishedRow, ReaderPipeline, rows_of_run
from tests.integration.service_process import ServiceProcess, Services
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(1_500)

ROWS = 60
SMALL_VIEWS = ServerOptions(tablet=TabletOptions(copy_rows=5))
TIMEOUT_S = 420.0
"""A reader that was killed within a transaction leaves it open for five minutes where no successor has its name, and until then
nobody reads the checkpoints to their end (``libs.source.publisher``)."""


class Mesh:
    """Readers of one keyspace."""

    def __init__(self, folder: Path, server: VtgateServer, kafka: KafkaBroker, services: Services) -> None:
        self.server = server
        self.keyspace = server.topology.keyspaces[0].name
        self.source = f"src-{self.keyspace}"
        self.kafka = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
        self._broker = kafka
        self._folder = folder
        self.services = services
        self._readers: list[ReaderPipeline] = []
        self.planned: list[ServiceProcess] = []
        """By a document."""
        self.changes = 0
        """Of rows, by ``change``."""
        ensure_topics(self.kafka, [signals_topic(1)])

    def reader(self, tasks: dict[str, int] | None = None, **settings: Any) -> ReaderPipeline:
        """Not started yet."""
        folder = self._folder / "-".join(str(number) for number in (tasks or {"all": 0}).values())
        process = ServiceProcess.of(
            "vstream_reader",
            folder,
            {
                "source": self.source,
                "vtgate": {"host": "127.0.0.1", "port": self.server.port},
                "keyspace": self.keyspace,
                "include_tables": [rf"{self.keyspace}\.t"],
                "lease_s": 3,
                "kafka": {"bootstrap_servers": self._broker.bootstrap_servers},
                **self.services.addresses,
                **({"tasks": tasks} if tasks else {}),
                **settings,
            },
        )
        pipeline = ReaderPipeline(self.source, self._broker, process, self.services)
        pipeline.partition = tasks["number"] if tasks else 0
        self._readers.append(pipeline)
        return pipeline

    def write(self, *statements: str) -> None:
        for statement in statements:
            execute(self.server, statement, self.keyspace)

    def change(self) -> None:
        """Ten rows, one after another; every other time the same."""
        for _ in range(10):
            self.write(f"UPDATE t SET v = v + 1 WHERE id = {1 + self.changes % 20}")
            self.changes += 1

    def signal(self, kind: str, signal_id: str, condition: str = "") -> None:
        """About ``t``, where it is about a table."""
        table = f"{self.keyspace}.t"
        data: dict[str, Any] = {"data-collections": [table]} if kind == "execute-snapshot" else {}
        if condition:
            data["additional-conditions"] = [{"data-collection": table, "filter": condition}]
        send_signal(self.kafka, self.source, json.dumps({"id": signal_id, "type": kind, "data": data}))

    def stored(self) -> dict[int, int]:
        """The rows of all shards."""
        rows = execute(self.server, "SELECT id, v FROM t", self.keyspace).rows
        found = {}
        for row in rows:
            first, second = row.lengths
            found[int(row.values[:first])] = int(row.values[first : first + second])
        return found

    def stop(self) -> None:
        for process in [*self.planned, *(reader.reader for reader in self._readers)]:
            if process.running is not None:
                process.kill()


def fill(server: VtgateServer) -> None:
    keyspace = server.topology.keyspaces[0].name
    on_every_shard(server.topology, keyspace, ["CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)"])
    execute(server, "INSERT INTO t (id, v) VALUES " + ",".join(f"({n}, 0)" for n in range(1, ROWS + 1)), keyspace)


def four_shards(servers: Sequence[MysqlServer], keyspace: str) -> VtgateServer:
    """It runs, with rows in every shard; two shards are on each of two servers."""
    names = ("-40", "40-80", "80-c0", "c0-")
    places = {name: (servers[n % 2].host, servers[n % 2].port) for n, name in enumerate(names)}
    server = VtgateServer(topology_of({keyspace: places}))
    server.start()
    fill(server)
    return server


def last_images(rows: Sequence[PublishedRow]) -> dict[int, int]:
    """The rows that a sink has: of each key the row with the greatest order."""
    newest: dict[int, PublishedRow] = {}
    for row in rows:
        assert row.key is not None
        known = newest.get(row.key["id"])
        if known is None or known.order <= row.order:
            newest[row.key["id"]] = row
    images = {key: row.value["after"] for key, row in newest.items()}
    return {key: image["v"] for key, image in images.items() if image is not None}


def assert_exactly_once(rows: Sequence[PublishedRow], *, copies: int = 1) -> None:
    """Every change of a row fits the one before it, and none comes twice; a row is copied at most so often."""
    by_key: dict[int, list[PublishedRow]] = {}
    for row in rows:
        assert row.key is not None
        by_key.setdefault(row.key["id"], []).append(row)
    for history in by_key.values():
        changes = sorted((row for row in history if not row.is_snapshot), key=lambda row: row.order)
        assert len({row.order for row in changes}) == len(changes)
        assert sum(row.is_snapshot for row in history) <= copies
        for before, after in itertools.pairwise(changes):
            assert after.value["before"] == before.value["after"]


def assert_routed_in_order(mesh: Mesh, kafka_partitions: int) -> None:
    """Of each key a change is routed after those before it, however far the router is in each Kafka partition: they stand in
    the same one in order, or the rows there await them."""
    records = {number: _reading(mesh, number).records() for number in range(kafka_partitions)}
    before = {number: _what_is_routed_before(number, records) for number in records}
    changes: dict[int, list[tuple[tuple[int, int, int], int, int]]] = {}
    for number, of_partition in records.items():
        for offset, batch in of_partition:
            for row in (row for entry in batch.entries for row in rows_of_run(entry.run)):
                if row.key is not None and not row.is_snapshot:
                    changes.setdefault(row.key["id"], []).append((row.order, number, offset))
    for history in changes.values():
        for (_, first, first_offset), (_, second, second_offset) in itertools.pairwise(sorted(history)):
            assert before[second][second_offset].get(first, 0) > first_offset - (first == second)


def _what_is_routed_before(
    number: int, records: dict[int, list[tuple[int, ChangeBatch]]], below: int | None = None
) -> dict[int, dict[int, int]]:
    """By the offset of each record of a partition: up to where each partition is routed before it."""
    ends: dict[int, int] = {}
    found = {}
    for offset, batch in records[number]:
        if below is not None and offset >= below:
            break
        for awaited in batch.awaited:
            other = _what_is_routed_before(awaited.kafka_partition, records, awaited.end_offset)
            reached = list(other.values())[-1] if other else {}
            for partition, end in {**reached, awaited.kafka_partition: awaited.end_offset}.items():
                ends[partition] = max(ends.get(partition, 0), end)
        ends[number] = max(ends.get(number, 0), offset)
        found[offset] = dict(ends)
    return found


@pytest.fixture
def mesh(start_vtgate: StartVtgate, kafka_broker: KafkaBroker, services: Services, tmp_path: Path) -> Iterator[Mesh]:
    """Two shards with rows, whose copy comes a few at a time."""
    server = start_vtgate(options=SMALL_VIEWS)
    fill(server)
    mesh = Mesh(tmp_path, server, kafka_broker, services)
    yield mesh
    mesh.stop()


@pytest.mark.parametrize(
    "failpoint",
    [
        "reader_between_snapshot_chunks=kill@3",
        "reader_after_schema_recorded_before_publish=kill@1",
        "reader_after_produce_before_commit=kill@3",
        "reader_after_commit=kill@3",
        "reader_between_incremental_chunks=kill@3",
    ],
)
def test_a_reader_killed_anywhere_loses_and_repeats_nothing(failpoint: str, mesh: Mesh) -> None:
    """In the copy, after a schema, around a commit and in a copy that a signal asked for: it goes on where its last visible
    event ended."""
    copies = 1 if "incremental" not in failpoint else 2
    pipeline = mesh.reader()
    pipeline.reader.start(failpoints=failpoint, waits=False)
    is_copied_again = False
    for number in itertools.count(1):
        key = 1 + number % ROWS
        mesh.write(f"INSERT INTO t (id, v) VALUES ({1000 + number}, 0)", f"UPDATE t SET v = v + 1 WHERE id = {key}")
        if copies == 2 and not is_copied_again and sum(row.is_snapshot for row in pipeline.rows()) >= ROWS:
            is_copied_again = True
            mesh.signal("execute-snapshot", "again")
        if pipeline.reader.has_ended(within_s=0.1):
            break
        assert number < 6_000, f"the reader was never killed:\n{pipeline.reader.log_text[-2000:]}"

    pipeline.reader.start()
    mesh.write("UPDATE t SET v = 99 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    stored = mesh.stored()
    rows = pipeline.wait_for_rows(lambda rows: last_images(rows) == stored, TIMEOUT_S)

    assert_exactly_once(rows, copies=copies)
    copied = {row.key["id"] for row in rows if row.is_snapshot and row.key}
    assert copied >= set(range(3, ROWS + 1))  # 2 may be gone before its copy


def test_tasks_take_over_what_was_to_be_copied_again(mesh: Mesh) -> None:
    """A request whose copy a kill broke off, one that waited after it, and one that was sent while no reader ran: each task
    does all three on its shards."""
    one = mesh.reader()
    one.reader.start(failpoints="reader_between_incremental_chunks=kill@3", waits=False)
    one.wait_for_rows(lambda rows: len(rows) >= ROWS, TIMEOUT_S)
    mesh.signal("execute-snapshot", "begun")
    mesh.signal("execute-snapshot", "waiting", "id > 30")
    assert one.reader.wait_for_exit(TIMEOUT_S) != 0
    mesh.signal("execute-snapshot", "late", "id > 50")

    tasks = [mesh.reader({"number": number, "of": 2, "generation": 0}) for number in range(2)]
    for task in tasks:
        task.reader.start(waits=False)
    wanted = Counter([*range(1, ROWS + 1), *range(31, ROWS + 1), *range(51, ROWS + 1)])

    def copied() -> Counter[int]:
        """By the tasks alone."""
        batches = [batch for task in tasks for batch in task.batches() if batch.source_partition.startswith("task")]
        runs = [entry.run for batch in batches for entry in batch.entries if entry.HasField("run")]
        return Counter(json.loads(key)["id"] for run in runs if run.is_snapshot for key in run.keys)

    wait_until(
        lambda: copied() >= wanted,
        because=f"{wanted} rows are copied",
        seen=lambda: f"{copied()}\n{tasks[0].reader.log_text[-3000:]}",
        within_s=TIMEOUT_S,
    )

    assert copied() == wanted
    for task in tasks:
        assert task.reader.log_text.count('"positions_taken_over"') == 1


def test_signals_of_a_task_that_had_not_looked_at_them_begin_where_it_began(
    kafka_broker: KafkaBroker, unique_name: Callable[[str], str]
) -> None:
    """As of one whose first copy was under way: signals that were sent after its first start are there for the reader that
    takes over."""
    kafka = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap_servers)
    ensure_topics(kafka, [signals_topic(1)])
    partition = SourcePartition(source=unique_name("s"), name="task0_2_0")
    keep_beginning(kafka, partition)

    sent = send_signal(kafka, partition.source, json.dumps({"id": "1", "type": "pause-snapshot", "data": {}}))

    assert beginning_of(kafka, partition) == sent
    assert beginning_of(kafka, SourcePartition(source=partition.source, name="task1_2_0")) > sent


def test_a_signal_from_before_the_first_start_is_refused_by_its_id(
    kafka_broker: KafkaBroker, unique_name: Callable[[str], str]
) -> None:
    """It was taken for one that acts, and nothing came of it. Another source's is no business of this reader's."""
    kafka = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap_servers)
    ensure_topics(kafka, [signals_topic(1)])
    partition = SourcePartition(source=unique_name("s"), name="mysql")
    for source, number in ((partition.source, "early"), (unique_name("other"), "other")):
        send_signal(kafka, source, json.dumps({"id": number, "type": "pause-snapshot", "data": {}}))

    keep_beginning(kafka, partition)
    send_signal(kafka, partition.source, json.dumps({"id": "in time", "type": "pause-snapshot", "data": {}}))
    keep_beginning(kafka, partition)

    refused = recent_signals((partition.source, partition.name))
    assert [(each.signal_id, each.refused_because) for each in refused] == [
        ("early", "it was sent before the reader's first start; send it again if it is still wanted")
    ]


def test_a_task_refuses_a_signal_from_before_any_reader_of_its_source(
    kafka_broker: KafkaBroker, unique_name: Callable[[str], str]
) -> None:
    """Tasks passed over it in silence. After a reader without tasks, or of any generation before, it was that reader's."""
    kafka = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap_servers)
    ensure_topics(kafka, [signals_topic(1)])
    source = unique_name("s")
    first, second = TaskSettings(number=0, of=2), TaskSettings(number=1, of=2)
    later = TaskSettings(number=0, of=3, generation=1, previous_tasks=2)
    latest = TaskSettings(number=1, of=2, generation=3, previous_tasks=5)

    def send(signal_id: str) -> None:
        send_signal(kafka, source, json.dumps({"id": signal_id, "type": "pause-snapshot", "data": {}}))

    def refused(task: TaskSettings) -> list[str]:
        partition = SourcePartition(source=source, name=partition_name(task))
        keep_beginning(kafka, partition, is_former=partial(is_former_partition, task))
        return [each.signal_id for each in recent_signals((source, partition.name))]

    send("early")
    assert refused(latest) == ["early"]
    assert refused(first) == ["early"]
    send("between")
    assert refused(second) == ["early", "between"]
    assert refused(first) == ["early"]
    assert refused(later) == []
    assert refused(msgspec.structs.replace(latest, number=0)) == []


def test_tasks_that_become_more_and_fewer_lose_and_repeat_nothing(
    kafka_broker: KafkaBroker, services: Services, shard_servers: Any, unique_name: Any, tmp_path: Path
) -> None:
    """One reader, two tasks, four, one, while rows change: a new task waits for those before it, be they stopped or killed,
    does the copies that they were asked for and did not begin, and one of those that is started again refuses to read on."""
    server = four_shards(shard_servers(2), unique_name("ks"))
    mesh = Mesh(tmp_path, server, kafka_broker, services)

    def all_rows() -> list[PublishedRow]:
        return _rows_of_all(mesh, 4)

    try:
        one = mesh.reader()
        one.reader.start()
        one.wait_for_rows(lambda rows: len(rows) >= ROWS, TIMEOUT_S)
        mesh.change()
        two = [mesh.reader({"number": n, "of": 2, "generation": 0}) for n in range(2)]
        for task in two:
            task.reader.start(waits=False)
        mesh.change()
        one.reader.stop()
        _wait_until_all_is_there(mesh, all_rows)
        mesh.change()
        mesh.signal("pause-snapshot", "first")
        mesh.signal("execute-snapshot", "asked of two")
        two[0].reader.kill()
        two[1].reader.stop()
        mesh.change()
        four = [mesh.reader({"number": n, "of": 4, "generation": 1, "previous_tasks": 2}) for n in range(4)]
        for task in four:
            task.reader.start(waits=False)
        _wait_until_all_is_there(mesh, all_rows)
        two[0].reader.start(waits=False)  # as by a supervisor that did not hear of it
        mesh.change()
        _wait_until_all_is_there(mesh, all_rows)
        assert two[0].reader.wait_for_exit(TIMEOUT_S) != 0
        assert "generation" in two[0].reader.log_text
        mesh.signal("resume-snapshot", "last")
        wait_until(
            lambda: _copied(all_rows()) >= 2 * ROWS,
            because="all rows are copied twice",
            seen=lambda: _copied(all_rows()),
            within_s=TIMEOUT_S,
        )
        for task in four:
            task.reader.stop()
        mesh.change()
        last = mesh.reader({"number": 0, "of": 1, "generation": 2, "previous_tasks": 4})
        last.reader.start()
        mesh.change()
        _wait_until_all_is_there(mesh, all_rows)

        assert_exactly_once(all_rows(), copies=2)
        assert_routed_in_order(mesh, 4)
        assert len(all_rows()) == 2 * ROWS + mesh.changes
        assert {row.key["id"] for row in _rows_of(mesh, 3) if row.key}, "the fourth task had rows"
    finally:
        mesh.stop()
        server.stop()


def test_shards_that_a_reshard_joins_come_to_one_task_without_loss(
    kafka_broker: KafkaBroker, services: Services, shard_servers: Any, unique_name: Any, tmp_path: Path
) -> None:
    """Two tasks with two shards each: of each other's quarters halves are made, then of both one whole, while rows change. The
    task that takes the first up is killed as it does; the other is away when the second come together, and has no shard left
    then. Earlier requests to both are done for the joined shards, and so are signals that the idle one hears."""
    servers = shard_servers(2)
    server = four_shards(servers, unique_name("ks"))
    mesh = Mesh(tmp_path, server, kafka_broker, services)

    def all_rows() -> list[PublishedRow]:
        return _rows_of_all(mesh, 2)

    def join(name: str, uid: int, place: MysqlServer) -> None:
        reshard(server, [new_shard(mesh.keyspace, name, uid, place.host, place.port)])
        mesh.change()

    try:
        first, second = (mesh.reader({"number": n, "of": 2, "generation": 0}) for n in range(2))
        first.reader.start(failpoints="reader_before_shards_taken_up=kill@1", waits=False)
        second.reader.start(waits=False)
        _wait_until_all_is_there(mesh, all_rows)
        mesh.signal("pause-snapshot", "first")
        mesh.signal("execute-snapshot", "asked before")
        for task in (first, second):
            wait_until(
                lambda task=task: task.reader.log_text.count('"signal_taken"') == 2,
                because="the task takes both signals",
                seen=lambda task=task: task.reader.log_text[-3000:],
                within_s=TIMEOUT_S,
            )
        mesh.change()
        join("-80", 500, servers[0])
        assert first.reader.wait_for_exit(TIMEOUT_S) != 0
        mesh.change()
        first.reader.start(waits=False)
        mesh.change()
        _wait_until_all_is_there(mesh, all_rows)
        assert '"shards_taken_up"' in first.reader.log_text
        assert '"shards_taken_up"' not in second.reader.log_text

        second.reader.stop()
        join("80-", 600, servers[1])
        wait_until(
            lambda: '"shards_await_other_tasks"' in first.reader.log_text,
            because="the first task awaits the others",
            seen=lambda: first.reader.log_text[-3000:],
            within_s=TIMEOUT_S,
        )
        mesh.change()
        second.reader.start(waits=False)
        _wait_until_all_is_there(mesh, all_rows)
        join("-", 700, servers[0])
        _wait_until_all_is_there(mesh, all_rows)
        before = _copied(all_rows())
        mesh.signal("resume-snapshot", "last")
        wait_until(
            lambda: _copied(all_rows()) >= before + ROWS,
            because="all rows are copied again",
            seen=lambda: _copied(all_rows()),
            within_s=TIMEOUT_S,
        )
        mesh.change()
        _wait_until_all_is_there(mesh, all_rows)
        wait_until(
            lambda: '"incremental_table_finished"' in first.reader.log_text,
            because="the first task has copied the table",
            seen=lambda: first.reader.log_text[-3000:],
            within_s=TIMEOUT_S,
        )

        first.reader.stop()
        second.reader.stop()
        mesh.change()
        last = mesh.reader({"number": 0, "of": 1, "generation": 1, "previous_tasks": 2})
        last.reader.start()
        _wait_until_all_is_there(mesh, all_rows)
        assert before == ROWS
        assert_exactly_once(all_rows(), copies=3)  # a signal that both heard may act twice
        assert_routed_in_order(mesh, 2)
        assert len(all_rows()) - _copied(all_rows()) == mesh.changes
    finally:
        mesh.stop()
        server.stop()


def test_shards_that_were_joined_while_nothing_ran_are_followed_by_the_next_generation(
    kafka_broker: KafkaBroker, services: Services, shard_servers: Any, unique_name: Any, tmp_path: Path
) -> None:
    """The new tasks are dealt the shards as they were, each waits for the other, and one goes on with the shards that they
    became."""
    servers = shard_servers(2)
    server = four_shards(servers, unique_name("ks"))
    mesh = Mesh(tmp_path, server, kafka_broker, services)

    def all_rows() -> list[PublishedRow]:
        return _rows_of_all(mesh, 2)

    try:
        one = mesh.reader()
        one.reader.start()
        _wait_until_all_is_there(mesh, all_rows)
        one.reader.stop()
        mesh.write("UPDATE t SET v = 1 WHERE id < 30")
        reshard(server, [new_shard(mesh.keyspace, "40-c0", 500, servers[0].host, servers[0].port)])
        mesh.write("UPDATE t SET v = v + 1 WHERE id > 20")

        for number in range(2):
            mesh.reader({"number": number, "of": 2, "generation": 0}).reader.start(waits=False)
        _wait_until_all_is_there(mesh, all_rows)
        mesh.write("UPDATE t SET v = 7 WHERE id > 10", "DELETE FROM t WHERE id = 3")
        _wait_until_all_is_there(mesh, all_rows)

        assert_exactly_once(all_rows())
        assert_routed_in_order(mesh, 2)
    finally:
        mesh.stop()
        server.stop()


def _copied(rows: Sequence[PublishedRow]) -> int:
    return sum(row.is_snapshot for row in rows)


def test_a_documents_number_of_readers_is_changed_without_loss(
    kafka_broker: KafkaBroker, services: Services, shard_servers: Any, unique_name: Any, tmp_path: Path
) -> None:
    """Two readers, then three, by nothing but the number in the document, as `headwater up` plans them; between the two a start
    with four that was killed before any reader began, and a copy that a signal asked for, which the next readers make."""
    server = four_shards(shard_servers(2), unique_name("ks"))
    mesh = Mesh(tmp_path, server, kafka_broker, services)
    mesh.source = mesh.source.replace("_", "-")
    home = home_at(tmp_path / "home")
    write_examples(home)
    (home.tenants_dir / "acme.yaml").write_text(f"tenant: acme\nsources: [{{name: {mesh.source}}}]\n")

    def all_rows() -> list[PublishedRow]:
        return _rows_of_all(mesh, 3)

    def all_is_there() -> None:
        stored = mesh.stored()
        wait_until(
            lambda: last_images(all_rows()) == stored,
            because="the last images are the stored rows",
            seen=lambda: last_images(all_rows()),
            within_s=TIMEOUT_S,
        )

    try:
        two = _planned_readers(mesh, home, tasks=2)
        for reader in two:
            reader.start()
        all_is_there()
        mesh.change()
        all_is_there()
        asked = {"id": "again", "type": "execute-snapshot", "data": {"data-collections": [f"{mesh.keyspace}.t"]}}
        send_signal(mesh.kafka, mesh.source, json.dumps({"id": "1", "type": "pause-snapshot", "data": {}}))
        send_signal(mesh.kafka, mesh.source, json.dumps(asked))
        wait_until(
            lambda: all('"signal_taken"' in reader.log_text and "again" in reader.log_text for reader in two),
            because="both tasks take the signal `again`",
            seen=lambda: "\n".join(reader.log_text[-1500:] for reader in two),
            within_s=TIMEOUT_S,
        )
        time.sleep(1.0)  # the signals that were heard are in the next checkpoint, which the change below brings
        mesh.change()
        all_is_there()
        two[0].kill()
        two[1].stop()
        mesh.change()
        _planned_readers(mesh, home, tasks=4)  # and the machine went down
        three = _planned_readers(mesh, home, tasks=3)
        assert json.loads((home.data_dir / "tasks.json").read_text())[mesh.source]["generation"] == 2
        for reader in three:
            reader.start(waits=False)
        mesh.change()
        all_is_there()
        before = all_rows()
        send_signal(mesh.kafka, mesh.source, json.dumps({"id": "2", "type": "resume-snapshot", "data": {}}))
        wait_until(
            lambda: sum(row.is_snapshot for row in all_rows()) == 2 * ROWS,
            because="all rows are copied twice",
            seen=lambda: sum(row.is_snapshot for row in all_rows()),
            within_s=TIMEOUT_S,
        )

        assert sum(row.is_snapshot for row in before) == ROWS
        assert_exactly_once(all_rows(), copies=2)
        assert len(all_rows()) == 2 * ROWS + mesh.changes
        assert {row.key["id"] for row in _rows_of(mesh, 2) if row.key}, "the third reader had rows"
        assert_routed_in_order(mesh, 3)
    finally:
        mesh.stop()
        server.stop()


def _planned_readers(mesh: Mesh, home: Home, *, tasks: int) -> list[ServiceProcess]:
    """The readers that `headwater up` would start now, its number of them stored."""
    (home.sources_dir / f"{mesh.source}.yaml").write_text(
        f"kind: vitess\nvtgate: {{port: {mesh.server.port}}}\nkeyspace: {mesh.keyspace}\ntasks: {tasks}\n"
    )
    documents = read_documents(home)
    assert not documents.source_mistakes
    ports = dict.fromkeys(port_names(documents), 1) | {  # readers of a test get ports of their own
        "kafka": int(mesh.kafka.bootstrap_servers.rpartition(":")[2]),
        "schema_history-grpc": mesh.services.schema_history.grpc_port,
        "checkpoint_committer-grpc": mesh.services.checkpoint_committer.grpc_port,
    }
    generations = planned_generations(home, documents)
    toolchain = SparkToolchain(java_home=home.root, jars_dir=home.root, class_archive=home.root)
    planned = plan_processes(home, documents, ports, toolchain, generations, has_tls=False)
    store_generations(home, generations)
    readers = [
        ServiceProcess.of("vstream_reader", home.root / f"{tasks}-{each.name}", each.settings)
        for each in planned
        if is_reader_of(each.name, mesh.source)
    ]
    assert len(readers) == tasks
    mesh.planned += readers
    return readers


def _rows_of_all(mesh: Mesh, partitions: int) -> list[PublishedRow]:
    return [row for partition in range(partitions) for row in _rows_of(mesh, partition)]


def _rows_of(mesh: Mesh, partition: int) -> list[PublishedRow]:
    return _reading(mesh, partition).rows()


def _reading(mesh: Mesh, partition: int) -> ReaderPipeline:
    reading = ReaderPipeline(mesh.source, mesh._broker, mesh.services.schema_history, mesh.services)
    reading.partition = partition
    return reading


def _wait_until_all_is_there(mesh: Mesh, all_rows: Any) -> None:
    stored = mesh.stored()
    reading = ReaderPipeline(mesh.source, mesh._broker, mesh.services.schema_history, mesh.services)
    reading.rows = all_rows  # type: ignore[method-assign]
    reading.wait_for_rows(lambda rows: last_images(rows) == stored, TIMEOUT_S)
