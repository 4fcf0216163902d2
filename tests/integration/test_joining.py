"""Rows that a table has already, copied to one tenant alone: a real MySQL, its reader, Kafka, the router, two tenants."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Message, Producer

from libs.events.names import ORDER_HEADER, SIGNALS_TOPIC
from tests.conftest import MysqlServer
from tests.integration.reader_pipeline import ReaderPipeline
from tests.integration.router_rig import RouterProcess, header, read_topic, read_until
from tests.integration.test_incremental_snapshot import wait_until_finished, writing
from tests.waiting import wait_until

ROWS = 600
CHUNK_ROWS = 40
MARKER = 9_999


@dataclass(slots=True)
class Joining:
    """A source that is followed, and a router beside it; its tenants are documents."""

    pipeline: ReaderPipeline
    router: RouterProcess
    tenants_folder: Path
    database: str
    suffix: str

    def write_tenant(self, stem: str, **selection: Any) -> str:
        """A tenant's document; its name."""
        name = f"{stem}-{self.suffix}"
        content = {"tenant": name, "sources": [{"name": self.pipeline.source, **selection}]}
        replacement = self.tenants_folder / f".{name}"
        replacement.write_text(yaml.safe_dump(content))
        replacement.replace(self.tenants_folder / f"{name}.yaml")
        return name

    def ask(self, signal_id: str, table: str, *tenants: str) -> None:
        """A copy for these tenants alone."""
        data = {"data-collections": [f"{self.database}.{table}"], "tenants": [*tenants]}
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        signal = json.dumps({"id": signal_id, "type": "execute-snapshot", "data": data})
        producer.produce(SIGNALS_TOPIC, key=self.pipeline.source, value=signal)
        assert producer.flush(120) == 0

    @property
    def bootstrap_servers(self) -> str:
        """Kafka's."""
        return self.pipeline.kafka.bootstrap_servers

    def topic(self, tenant: str, table: str) -> str:
        """Where a tenant's rows of a table are."""
        return f"{tenant}.{self.pipeline.source}.{self.database}.{table}"

    def events_up_to_marker(self, tenant: str, table: str = "t") -> list[Message]:
        """The events of a tenant's topic, once the marker's is there."""
        topic = self.topic(tenant, table)
        found = read_until(self.bootstrap_servers, topic, lambda messages: any(map(is_marker, messages)))
        assert any(map(is_marker, found)), f"{topic}: {len(found)} events\n{self.router.log_text[-3000:]}"
        return found


@pytest.fixture
def joining(
    start_reader: Callable[..., ReaderPipeline],
    mysql_server: MysqlServer,
    database: str,
    tmp_path: Path,
    unique_name: Callable[[str], str],
) -> Iterator[Joining]:
    """Tables ``t`` and ``other`` with rows that no tenant has; reader and router are not started yet."""
    rows = ",".join(f"({number}, 0)" for number in range(ROWS))
    for table in ("t", "other"):
        mysql_server.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES {rows}", database=database
        )
    pipeline = start_reader(snapshot={"mode": "no_data", "incremental_chunk_rows": CHUNK_ROWS})
    folder = tmp_path / "tenants"
    folder.mkdir()
    suffix = unique_name("j").removeprefix("j_")
    settings = {
        "sources": [pipeline.source],
        "group": f"router-{suffix}",
        "kafka": {"bootstrap_servers": pipeline.kafka.bootstrap_servers},
        **pipeline.services.addresses,
        "tenants_folder": str(folder),
    }
    router = RouterProcess(tmp_path / "router", settings)
    yield Joining(pipeline, router, folder, database, suffix)
    router.stop()


@pytest.mark.promise("snapshot for one")
@pytest.mark.timeout(1_800)
def test_a_tenant_that_joins_under_writes_gets_the_existing_rows_and_the_other_sees_nothing(
    joining: Joining, mysql_server: MysqlServer, database: str
) -> None:
    """The document and the signal come at once: rows that the router's documents do not know of yet are not lost."""
    first = joining.write_tenant("first")
    joining.pipeline.reader.start()
    joining.pipeline.wait_for_log()
    joining.router.start()

    with writing(
        mysql_server,
        database,
        "UPDATE t SET v = v + 1 WHERE id % 10 = 3",
        "DELETE FROM t WHERE id % 50 = 7 ORDER BY RAND() LIMIT 1",
        "INSERT IGNORE INTO t VALUES (57, 0), (107, 0), (257, 0)",
    ):
        wait_until(
            lambda: bool(read_topic(joining.bootstrap_servers, joining.topic(first, "t"))),
            because="the first tenant gets rows",
            seen=lambda: joining.router.log_text[-3000:],
            pause_s=0.5,
        )
        late = joining.write_tenant("late")
        joining.ask("join-late", "t", late)
        wait_until_finished(joining.pipeline, f"{database}.t")
    mysql_server.execute(f"INSERT INTO t VALUES ({MARKER}, 1)", database=database)

    to_late, to_first = (joining.events_up_to_marker(tenant) for tenant in (late, first))
    assert rows_of(to_late) == table_rows(mysql_server, database, "t")
    reads = [key_of(message) for message in to_late if op_of(message) == "r"]
    assert len(reads) == len(set(reads)) > ROWS // 2
    assert_orders_never_fall(to_late)
    assert "r" not in set(map(op_of, to_first))
    assert not read_topic(joining.bootstrap_servers, joining.topic(late, "other"))
    assert "copy_not_delivered" not in joining.router.log_text


@pytest.mark.timeout(1_800)
def test_a_table_that_a_tenant_sees_from_now_on_comes_to_it_alone_through_kills(
    joining: Joining, mysql_server: MysqlServer, database: str
) -> None:
    """The signal is sent twice, as by somebody who was killed before he could note it; reader and router are killed."""
    first = joining.write_tenant("first")
    wider = joining.write_tenant("wider", include_tables=[rf"{database}\.t"])
    joining.pipeline.reader.start()
    joining.pipeline.wait_for_log()
    joining.router.start(failpoints="router_after_produce_before_offsets=kill@4", waits=False)
    joining.pipeline.reader.kill()
    joining.write_tenant("wider")
    joining.ask("join-wider", "other", wider)
    joining.ask("join-wider", "other", wider)

    with writing(mysql_server, database, "UPDATE other SET v = v + 1 WHERE id % 7 = 1 ORDER BY RAND() LIMIT 5"):
        for failpoints in ("reader_between_watermarks=kill@2", "reader_between_incremental_chunks=kill@3"):
            joining.pipeline.reader.start(failpoints=failpoints, waits=False)
            assert joining.pipeline.reader.has_ended(within_s=240), joining.pipeline.reader.log_text[-2000:]
        joining.pipeline.reader.start()
        joining.router.wait_for_exit(120.0)
        joining.router.start()
        wait_until_finished(joining.pipeline, f"{database}.other")
    joining.ask("join-wider", "other", wider)
    mysql_server.execute(f"INSERT INTO other VALUES ({MARKER}, 1)", database=database)

    to_wider, to_first = (joining.events_up_to_marker(tenant, "other") for tenant in (wider, first))
    assert rows_of(to_wider) == table_rows(mysql_server, database, "other")
    reads = [key_of(message) for message in to_wider if op_of(message) == "r"]
    assert len(reads) == len(set(reads)) > ROWS // 2
    assert_orders_never_fall(to_wider)
    assert "r" not in set(map(op_of, to_first))


def test_rows_for_a_tenant_that_is_none_are_told_of_and_stop_nobody(
    joining: Joining, mysql_server: MysqlServer, database: str
) -> None:
    first = joining.write_tenant("first")
    joining.pipeline.reader.start()
    joining.pipeline.wait_for_log()
    joining.router.start()

    joining.ask("join-nobody", "t", "nobody")
    wait_until_finished(joining.pipeline, f"{database}.t")
    mysql_server.execute(f"INSERT INTO t VALUES ({MARKER}, 1)", database=database)

    assert [op_of(message) for message in joining.events_up_to_marker(first)] == ["c"]
    assert joining.router.log_text.count('"copy_not_delivered"') == 1


def key_of(message: Message) -> int:
    """The row's id."""
    return int(json.loads(message.key() or b"")["id"])


def op_of(message: Message) -> str:
    """The operation on the row; empty: a tombstone."""
    value = message.value()
    return "" if value is None else str(json.loads(value)["op"])


def is_marker(message: Message) -> bool:
    """Of the row that was written last."""
    return key_of(message) == MARKER


def rows_of(messages: list[Message]) -> dict[int, int]:
    """The table that the events make, applied as they come."""
    rows: dict[int, int] = {}
    for message in messages:
        value = message.value()
        after = None if value is None else json.loads(value)["after"]
        if after is None:
            rows.pop(key_of(message), None)
        else:
            rows[after["id"]] = after["v"]
    return rows


def table_rows(mysql_server: MysqlServer, database: str, table: str) -> dict[int, int]:
    """The table at the source."""
    return {row[0]: row[1] for row in mysql_server.execute(f"SELECT id, v FROM {table}", database=database)}


def assert_orders_never_fall(messages: list[Message]) -> None:
    """Along each row's history, place in the transaction aside: a copied row that is as the newest transaction left it stands
    before that transaction's own rows, and says the same."""
    last: dict[int, bytes] = {}
    for message in messages:
        order = (header(message, ORDER_HEADER) or b"").rpartition(b".")[0]
        assert order
        assert last.get(key_of(message), b"") <= order
        last[key_of(message)] = order
