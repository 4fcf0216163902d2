"""Which events hold values that do not fit, found without a query that fails; and keys as texts, of any version."""

from pathlib import Path

import msgspec
import pytest

from libs.errors import PipelineHalted
from libs.mysql.logical import column
from libs.sink_state.parked_keys import ParkedKey, ParkedKeysOfTable, ReplayAnswer, decode_parked_keys, parked_keys_path
from libs.types.table import FormerName
from spark.kafka.read_topics import events_of
from spark.pending.parked_keys import ParkedKeysFile
from spark.sinks.port import BatchIdentity
from spark.transforms.key_text import KEY_TEXT_COLUMN, key_text
from spark.transforms.local_rows import local_rows
from spark.transforms.unfit_values import UNFIT_COLUMN, find_unfit
from spark.transforms.warehouse_columns import TableColumn
from tests.spark_session import SharedSpark
from tests.unit.spark.events import RECORD_COLUMNS, Change, delivered, events, orders_schema, record

SCHEMA = orders_schema(
    column("id", "int", is_optional=False),
    column("note", "varchar(20)", charset="utf8mb4"),
    column("n", "int"),
    column("price", "decimal(5,2)"),
    column("at", "timestamp"),
)
COLUMNS = {
    "id": TableColumn("int"),
    "note": TableColumn("string"),
    "n": TableColumn("int"),
    "price": TableColumn("decimal(5,2)"),
    "at": TableColumn("timestamp"),
}


def put(**values: object) -> Change:
    return Change(op="u", rank=1, after={"id": 1, "note": "x", **values}, key={"id": 1})


FITS: list[tuple[Change, list[str] | None]] = [
    (put(n=1, price="AQ==", at="2024-02-29T00:00:00Z"), None),
    (put(n=None, price=None, at=None), None),
    (Change(op="d", rank=1, before={"id": 1, "n": 1}), None),
    (Change(op="t", rank=1), None),
    (put(n="no number"), ["n"]),
    (put(n=2**40, price="AQ=="), ["n"]),
    (put(price="O5rKAA=="), ["price"]),
    (put(at="yesterday"), ["at"]),
    (put(n="no number", at="yesterday"), ["n"]),
    (Change(op="u", rank=1, after={"id": None, "note": "x"}, key={"id": 1}), ["id"]),
    (Change(op="u", rank=1, after={"id": 1, "note": "x"}, key={"id": "one"}), ["id"]),
]


@pytest.mark.parametrize(("change", "unfit"), FITS, ids=range(len(FITS)))
def test_the_columns_that_do_not_fit_are_named(shared: SharedSpark, change: Change, unfit: list[str] | None) -> None:
    """Of a row that cannot be read whole at least the first of them."""
    found = events(shared.session, SCHEMA.topic, [change]).transform(find_unfit(COLUMNS, SCHEMA.table_schema))

    [row] = found.collect()

    assert row[UNFIT_COLUMN] == unfit


def test_a_narrower_column_of_the_warehouse_counts(shared: SharedSpark) -> None:
    """A tenant's policy may keep a column as it was."""
    kept = {**COLUMNS, "n": TableColumn("tinyint")}
    found = events(shared.session, SCHEMA.topic, [put(n=128), put(n=127)])

    rows = found.transform(find_unfit(kept, SCHEMA.table_schema)).collect()

    assert [row[UNFIT_COLUMN] for row in rows] == [["n"], None]


def test_what_is_no_event_is_malformed(shared: SharedSpark) -> None:
    """It names no column."""
    broken = record(SCHEMA.topic, "no event", key={"id": 1})
    found = local_rows(shared.session, [broken], RECORD_COLUMNS).transform(events_of)

    [row] = found.transform(find_unfit(COLUMNS, SCHEMA.table_schema)).collect()

    assert row[UNFIT_COLUMN] == []


def test_a_key_is_one_whatever_its_version_and_spelling(shared: SharedSpark) -> None:
    """A renamed and widened key, and another spelling of a number; a key that cannot be read is its own text."""
    first = orders_schema(column("id", "double", is_optional=False)).table_schema
    renamed = msgspec.structs.replace(
        column("order_id", "double", is_optional=False), former_names=(FormerName(name="id", last_version=1),)
    )
    second = msgspec.structs.replace(first, columns=(renamed,), key=("order_id",), version=2)
    topic = delivered("acme", first).topic

    def keyed(key: bytes | None, version: int) -> tuple[object, ...]:
        made = record(topic, Change(op="t", rank=1).value(), version=version)
        return (*made[:3], key, *made[4:])

    rows = [
        keyed(b'{"id":7.0}', 1),
        keyed(b'{"id":7e0}', 1),
        keyed(b'{"order_id":7}', 2),
        keyed(b'{"id":"x"}', 1),
        keyed(None, 1),
    ]
    found = local_rows(shared.session, rows, RECORD_COLUMNS).transform(events_of)

    texts = [row[0] for row in found.select(key_text([first, second]).alias(KEY_TEXT_COLUMN)).collect()]

    assert texts == ['["7.0"]', '["7.0"]', '["7.0"]', '{"id":"x"}', "@0:0"]


def test_parked_keys_outlive_a_start_and_what_a_batch_released_it_finds_again(tmp_path: Path) -> None:
    """Until a later batch; a query that begins again has none, and a broken file halts."""
    key = ParkedKey(
        event_key='{"id":1}', reason="…", kafka_partition=0, offset=3, order="1", parked_at_us=1, last_offset=3
    )
    fifth, sixth = BatchIdentity("query", 5), BatchIdentity("query", 6)
    ParkedKeysFile(tmp_path, "acme").store("t", fifth, ParkedKeysOfTable(released={"[1]": key}, released_by=5))

    restarted = ParkedKeysFile(tmp_path, "acme")

    assert restarted.of_table("t", fifth).keys == {"[1]": key}
    assert restarted.of_table("t", sixth).keys == {}
    # Whether the fifth was written, a later one may find out: until then it answers for the table, and takes nothing up.
    restarted.store("t", sixth, restarted.of_table("t", sixth))
    restarted.take_back("t", fifth)
    assert restarted.of_table("t", sixth).keys == {"[1]": key}
    restarted.take_back("t", sixth)
    assert restarted.of_table("t", sixth).keys == {"[1]": key}
    assert ParkedKeysFile(tmp_path, "acme").of_table("t", BatchIdentity("anew", 0)).keys == {}
    parked_keys_path(tmp_path, "acme").write_text("{")
    with pytest.raises(PipelineHalted, match="put it back from a backup"):
        ParkedKeysFile(tmp_path, "acme").of_table("t", fifth)


def test_whose_replay_failed_is_told_that_the_keys_stay(tmp_path: Path) -> None:
    """Answers of other batches stand."""
    file, batch = ParkedKeysFile(tmp_path, "acme"), BatchIdentity("query", 5)
    earlier, ours = ReplayAnswer(batch_id=4, keys=2, refused=1), ReplayAnswer(batch_id=5, keys=3, refused=1)
    file.store("t", batch, ParkedKeysOfTable(answers={"a": earlier, "b": ours}, released_by=5))

    file.report_refused("t", batch)

    table = decode_parked_keys(parked_keys_path(tmp_path, "acme").read_bytes()).tables["t"]
    assert table.answers == {"a": earlier, "b": ReplayAnswer(batch_id=5, keys=3, refused=3)}
    file.report_refused("another", batch)
