"""The promises of every sink, as a suite: ``tests/contract/test_sinks.py`` runs it for each kind of ``spark.sinks.registry``.

A kind brings a ``SinkHarness`` over its real warehouse, read back by other means than the sink's; the suite knows nothing of
Spark. Kills are in ``tests/faults/test_sink_kills.py``, and the values of every type in ``test_sinks`` itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

import msgspec

from libs.errors import HeadwaterError
from libs.mysql.logical import column
from libs.types.table import Born, Column, FormerName, TableId, TableSchema
from libs.types.tenant import ChangePolicies, ChangePolicy, Deletes, SinkMode
from libs.types.value import UNAVAILABLE_VALUE

Row = dict[str, Any]

EVOLVE: Final = ChangePolicies(default=ChangePolicy.EVOLVE)
LENIENT: Final = ChangePolicies()
ID: Final = column("id", "int", is_optional=False)
NOTE: Final = column("note", "varchar(20)", charset="utf8mb4")
ODD_NAMES: Final = (
    'double"quote',
    "back`tick",
    "it's",
    "a space",
    "dot.ted",
    "semi;colon--",
    "back\\slash",
    "comma,and(brackets)",
    "percent %s {x} $1",
    "select",
    "user",
    "ünïcødé",
    "表",
    "CamelCase",
    "x" * 64,
    "é" * 64,
    "xmin",
)
"""All that MySQL lets a column be called."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change; ``rank`` is its transaction's, and grows."""

    op: str
    rank: int
    row: Mapping[str, Any]
    """The row after it; before it, if it is a delete. ``UNAVAILABLE_VALUE`` for a value that the log does not hold."""


class SinkHarness(Protocol):
    """A sink under test, for one tenant of its own."""

    def apply(
        self,
        schema: TableSchema,
        *changes: RowChange,
        mode: SinkMode = SinkMode.MIRROR,
        deletes: Deletes = Deletes.HARD,
        truncated_at: int | None = None,
        batch_id: int | None = None,
        policies: ChangePolicies = LENIENT,
    ) -> bool:
        """One batch as the job applies it, one change a key; False where the table held it already.

        ``truncated_at``: rank of a TRUNCATE that ``changes`` come after. ``batch_id``: by default the next one. ``policies``:
        the table's policies where ``schema`` is another than before.
        """
        ...

    def apply_resync(
        self,
        schema: TableSchema,
        *changes: RowChange,
        mode: SinkMode = SinkMode.MIRROR,
        deletes: Deletes = Deletes.HARD,
        batch_id: int | None = None,
    ) -> bool:
        """One batch with every row of a mirror, which replaces the mirror's rows; of a log, with some changes once more."""
        ...

    def apply_at_once(self, batches: Sequence[tuple[TableSchema, Sequence[RowChange]]]) -> None:
        """One batch of several tables, each in a thread of its own."""
        ...

    def is_applied(self, schema: TableSchema, batch_id: int) -> bool:
        """Whether the table holds that batch."""
        ...

    def is_applied_of_another_query(self, schema: TableSchema, batch_id: int) -> bool:
        """The same for a query with another Spark checkpoint."""
        ...

    def maintain(self, schema: TableSchema) -> None:
        """The job's step after a commit."""
        ...

    def drop_tables(self) -> int:
        """All of the tenant's tables go; how many there were."""
        ...

    def of_another_tenant(self) -> Self:
        """The same sink, for a tenant whose name begins with this one's."""
        ...

    def rows(self, schema: TableSchema) -> list[Row]:
        """The table as another engine reads it, by the source's names of columns; Headwater's own columns too."""
        ...


def table(*columns: Column, name: str = "orders", version: int = 1, key: tuple[str, ...] = ("id",)) -> TableSchema:
    """A table of the source; by default with an id and a note."""
    table_id = TableId(database="shop", table=name)
    return TableSchema(table_id=table_id, columns=columns or (ID, NOTE), key=key, version=version)


def put(rank: int, key: int, note: str | None, **more: Any) -> RowChange:
    """A row as it is from then on."""
    return RowChange("u", rank, {"id": key, "note": note, **more})


def gone(rank: int, key: int) -> RowChange:
    """A deleted row."""
    return RowChange("d", rank, {"id": key, "note": "old"})


def source_rows(harness: SinkHarness, schema: TableSchema) -> list[Row]:
    """The rows as the source has them, by id."""
    return sorted(map(_plain_row, harness.rows(schema)), key=lambda row: str(row["id"]))


def _plain_row(row: Row) -> Row:
    return {name: value for name, value in row.items() if not name.startswith("_headwater_")}


def refusal(call: Callable[[], object]) -> str:
    """The text of Headwater's error that ``call`` raises. Fails when it raises none."""
    try:
        call()
    except HeadwaterError as error:
        return str(error)
    raise AssertionError("nothing was refused")


# --- the promises ----------------------------------------------------------------------------------------------------


def late_and_repeated_changes_change_nothing_and_a_deleted_row_may_come_back(harness: SinkHarness) -> None:
    """An older order never wins over a newer, a repeat is harmless, and a delete of an absent row is fine. A key that was
    deleted and is inserted again later is a row like any other."""
    orders = table()
    harness.apply(orders, put(5, 1, "five"), put(5, 2, "two"), gone(5, 3), put(5, 9, "first"))
    first = source_rows(harness, orders)

    harness.apply(orders, put(4, 1, "four"), gone(3, 2))
    late = source_rows(harness, orders)
    harness.apply(orders, put(5, 1, "not five"), put(6, 4, None), gone(6, 9))
    repeated = source_rows(harness, orders)
    harness.apply(orders, gone(7, 1), put(7, 2, "newer"), put(7, 9, "second"))
    deleted = source_rows(harness, orders)

    assert first == late == [{"id": 1, "note": "five"}, {"id": 2, "note": "two"}, {"id": 9, "note": "first"}]
    assert repeated == [*first[:2], {"id": 4, "note": None}]
    assert deleted == [{"id": 2, "note": "newer"}, {"id": 4, "note": None}, {"id": 9, "note": "second"}]


def a_truncation_takes_older_rows_and_leaves_newer_ones(harness: SinkHarness) -> None:
    """TRUNCATE at rank 10: rows of 5 go, rows that came later stay, and so does a late one's newer value."""
    orders = table()
    harness.apply(orders, put(5, 1, "old"), put(5, 2, "old"), put(12, 3, "new"))

    harness.apply(orders, put(11, 2, "again"), truncated_at=10)
    truncated = source_rows(harness, orders)
    harness.apply(orders, truncated_at=20)

    assert truncated == [{"id": 2, "note": "again"}, {"id": 3, "note": "new"}]
    assert source_rows(harness, orders) == []


def soft_deletes_mark_rows(harness: SinkHarness) -> None:
    """A row keeps its last values; one that comes again is there again; a truncation marks every row that is there, once."""
    orders = table()
    harness.apply(orders, put(1, 1, "a"), put(2, 2, "b"), put(3, 3, "c"), gone(4, 4), deletes=Deletes.SOFT)
    harness.apply(orders, gone(5, 1), gone(5, 3), put(2, 2, "older"), deletes=Deletes.SOFT)
    deleted = _marks(harness, orders)
    harness.apply(orders, put(6, 1, "again"), gone(1, 2), deletes=Deletes.SOFT)
    back = _marks(harness, orders)
    harness.apply(orders, put(8, 5, "e"), truncated_at=7, deletes=Deletes.SOFT)

    assert deleted == [(1, "a", True), (2, "b", False), (3, "c", True), (4, "old", True)]
    assert back == [(1, "again", False), *deleted[1:]]
    assert _marks(harness, orders) == [(1, "again", True), (2, "b", True), *deleted[2:], (5, "e", False)]
    assert "sink.deletes is hard" in refusal(lambda: harness.apply(orders, put(9, 1, "x")))


def _marks(harness: SinkHarness, schema: TableSchema) -> list[tuple[Any, ...]]:
    rows = sorted(harness.rows(schema), key=lambda row: int(row["id"]))
    assert all(row["_headwater_deleted"] is (row["_headwater_deleted_at"] is not None) for row in rows)
    return [(row["id"], row["note"], row["_headwater_deleted"]) for row in rows]


def a_column_without_a_value_keeps_the_one_it_has(harness: SinkHarness) -> None:
    """A value that the log does not hold; where the row is not there, the column is NULL."""
    orders = table(ID, NOTE, column("it's `odd`", "text", charset="utf8mb4"))
    harness.apply(orders, *(RowChange("c", 1, {"id": key, "note": "kept", "it's `odd`": "o"}) for key in (1, 2)))

    unknown = UNAVAILABLE_VALUE
    harness.apply(
        orders,
        RowChange("u", 2, {"id": 1, "note": unknown, "it's `odd`": "new"}),
        RowChange("u", 2, {"id": 2, "note": None, "it's `odd`": unknown}),
        RowChange("u", 2, {"id": 3, "note": unknown, "it's `odd`": "three"}),
    )

    assert source_rows(harness, orders) == [
        {"id": 1, "note": "kept", "it's `odd`": "new"},
        {"id": 2, "note": None, "it's `odd`": "o"},
        {"id": 3, "note": None, "it's `odd`": "three"},
    ]


def a_key_of_ones_own_choice_may_be_null(harness: SinkHarness) -> None:
    """NULL is a value of the key like any other: rows are merged by it, not added again and again."""
    orders = table(key=("note",))
    harness.apply(orders, put(5, 1, None), put(5, 2, "two"))

    harness.apply(orders, put(6, 3, None), RowChange("d", 7, {"id": 2, "note": "two"}))
    merged = source_rows(harness, orders)
    harness.apply(orders, RowChange("d", 8, {"id": 3, "note": None}))

    assert merged == [{"id": 3, "note": None}]
    assert source_rows(harness, orders) == []


def a_batch_is_recognised_by_every_table_that_holds_it(harness: SinkHarness) -> None:
    """The identity is committed with the rows; a fill or maintenance in between does not hide it."""
    orders, others = table(), table(name="others")
    harness.apply(orders, put(1, 1, "one"), batch_id=6)
    assert not harness.is_applied(orders, 7)

    assert harness.apply(orders, put(2, 1, "two"), batch_id=7)
    wider = table(ID, NOTE, column("n", "int", default_expression="3"), version=2)
    assert not harness.apply(wider, batch_id=7)
    harness.maintain(orders)

    assert harness.is_applied(orders, 7)
    assert not harness.is_applied(orders, 8)
    assert not harness.is_applied_of_another_query(orders, 7)
    assert not harness.is_applied(others, 7)


def a_first_batch_is_recognised_too(harness: SinkHarness) -> None:
    """It may leave no row at all: its identity is there all the same."""
    orders, emptied = table(), table(name="emptied")

    harness.apply(orders, gone(1, 2), put(1, 1, "one"), batch_id=3)
    harness.apply(emptied, gone(1, 2), batch_id=3)

    assert harness.is_applied(orders, 3)
    assert harness.is_applied(emptied, 3)
    assert source_rows(harness, orders) == [{"id": 1, "note": "one"}]
    assert source_rows(harness, emptied) == []


def a_replay_adds_nothing_and_an_empty_batch_is_a_batch(harness: SinkHarness) -> None:
    """The same batch again, as Spark hands it out after a crash: not even an append table has a row twice. A batch with nothing
    to write is known to be done."""
    orders, visits = table(), table(name="visits")
    changes = (put(1, 1, "one"), put(1, 2, "two"))
    harness.apply(orders, *changes, batch_id=1)
    harness.apply(visits, *changes, mode=SinkMode.APPEND, batch_id=1)

    assert not harness.apply(orders, *changes, batch_id=1)
    assert not harness.apply(visits, *changes, mode=SinkMode.APPEND, batch_id=1)

    assert len(harness.rows(orders)) == len(harness.rows(visits)) == 2
    harness.apply(orders, batch_id=2)
    assert harness.is_applied(orders, 2)
    assert source_rows(harness, orders) == [{"id": 1, "note": "one"}, {"id": 2, "note": "two"}]


def append_keeps_every_change(harness: SinkHarness) -> None:
    """Every change is a row with its op, order and time; keys may be NULL, and a truncation is a row of NULLs."""
    visits, keyed = table(column("id", "int"), NOTE, key=()), table(name="keyed")
    harness.apply(visits, put(1, 1, "one"), RowChange("c", 1, {"id": None, "note": "no key"}), mode=SinkMode.APPEND)
    harness.apply(keyed, RowChange("t", 1, {"id": None, "note": None}), mode=SinkMode.APPEND)
    harness.apply(visits, put(2, 1, "two"), gone(3, 1), put(3, 1, "two"), mode=SinkMode.APPEND)

    stored = harness.rows(visits)

    changes = sorted((row["_headwater_op"], str(row["id"]), str(row["note"])) for row in stored)
    expected = [("c", "None", "no key"), ("d", "1", "old"), ("u", "1", "one"), ("u", "1", "two"), ("u", "1", "two")]
    assert changes == expected
    assert [(row["id"], row["_headwater_op"]) for row in harness.rows(keyed)] == [(None, "t")]
    assert len({row["_headwater_order"] for row in stored}) == 3
    assert all(row["_headwater_committed_at"] is not None for row in stored)


def a_new_column_arrives_before_its_rows_and_fills_the_old_ones(harness: SinkHarness) -> None:
    """ADD COLUMN … DEFAULT writes no events, yet every existing row has the default; a later NULL stays NULL."""
    harness.apply(table(), put(1, 1, "one"), put(1, 2, "two"))
    size = column("size", "varchar(9)", charset="utf8mb4", default_expression="it's \\ %s")
    second = table(ID, size, NOTE, version=2)

    harness.apply(second, put(2, 2, "two", size=None))
    evolved = source_rows(harness, second)
    third = table(ID, size, column("n", "bigint unsigned", is_optional=False), version=3)  # note is dropped
    harness.apply(third, RowChange("c", 3, {"id": 3, "size": "XL", "n": 8}))

    filled = "it's \\ %s"
    assert evolved == [{"id": 1, "size": filled, "note": "one"}, {"id": 2, "size": None, "note": "two"}]
    assert source_rows(harness, third) == [
        {"id": 1, "size": filled, "note": "one", "n": 0},
        {"id": 2, "size": None, "note": "two", "n": 0},
        {"id": 3, "size": "XL", "note": None, "n": 8},
    ]


def rows_of_before_have_what_the_version_that_brought_a_column_gave_them(harness: SinkHarness) -> None:
    """With any default, type and name at the time of its first row; and a column that was dropped and made
    again is another one, as one is that has the name of a column which was renamed."""
    first = table(ID, NOTE, column("a", "int"), column("b", "int"))
    harness.apply(first, RowChange("c", 1, {"id": 1, "note": "one", "a": 1, "b": 1}))
    # ALTER … ADD c SMALLINT NOT NULL DEFAULT 5; ALTER … DROP DEFAULT; CHANGE c C BIGINT NULL;
    # DROP a, ADD a INT DEFAULT 6; CHANGE b b2 INT, ADD b INT DEFAULT 9
    brought = column("c", "smallint", is_optional=False, default_expression="5")
    second = table(
        ID,
        NOTE,
        born(column("C", "bigint"), 1, of=brought),
        born(column("a", "int", default_expression="6"), 4),
        _renamed(column("b2", "int"), "b2", "b", last_version=5),
        born(column("b", "int", default_expression="9"), 5),
        version=6,
    )

    harness.apply(second, RowChange("u", 2, {"id": 2, "note": "two", "C": None, "a": 2, "b2": 2, "b": 2}))

    rows = source_rows(harness, second)
    kept = {name for row in rows for name in row if name.startswith("a__gone_")}
    assert kept == {"a__gone_4"}
    assert [{name: value for name, value in row.items() if name not in kept} for row in rows] == [
        {"id": 1, "note": "one", "C": 5, "a": 6, "b2": 1, "b": 9},
        {"id": 2, "note": "two", "C": None, "a": 2, "b2": 2, "b": 2},
    ]
    assert [row["a__gone_4"] for row in rows] == [1, None]


def columns_of_every_kind_are_filled(harness: SinkHarness) -> None:
    """Numbers, bytes, dates and times with a DEFAULT; a column whose value only the source knows stays NULL."""
    harness.apply(table(), put(1, 1, "one"))
    added = (
        column("d", "decimal(12,2)", default_expression="1.50"),
        column("b", "varbinary(4)", default_expression="0x00ff5c"),
        column("day", "date", default_expression="2024-02-29"),
        column("at", "datetime(6)", default_expression="2024-02-29 23:59:59.000001"),
        column("span", "time", default_expression="-01:00:00"),
        column("now", "datetime", default_expression="CURRENT_TIMESTAMP"),
    )
    wider = table(ID, NOTE, *added, version=2)

    harness.apply(wider)

    [row] = source_rows(harness, wider)
    assert (str(row["d"]), bytes(row["b"]), str(row["day"])) == ("1.50", b"\x00\xff\x5c", "2024-02-29")
    assert (str(row["at"]), row["span"], row["now"]) == ("2024-02-29 23:59:59.000001", -3_600_000_000, None)


def numbers_widen_in_place(harness: SinkHarness) -> None:
    """INT to BIGINT, FLOAT to DOUBLE, and a DECIMAL of more digits keep the stored values; narrower ones change nothing."""
    narrow = table(ID, column("a", "int"), column("f", "float"), column("d", "decimal(5,2)"))
    wide = table(
        column("id", "bigint", is_optional=False),
        column("a", "bigint"),
        column("f", "double"),
        column("d", "decimal(12,2)"),
        version=2,
    )
    harness.apply(narrow, RowChange("c", 1, {"id": 1, "a": 1, "f": 0.5, "d": "AQ=="}))

    harness.apply(wide, RowChange("c", 2, {"id": 2**40, "a": 2**41, "f": 0.1, "d": "O5rKAA=="}))
    harness.apply(narrow, RowChange("c", 3, {"id": 3, "a": 3, "f": 0.25, "d": "Aw=="}))

    stored = [(row["id"], row["a"], row["f"], str(row["d"])) for row in source_rows(harness, wide)]
    assert stored == [(1, 1, 0.5, "0.01"), (2**40, 2**41, 0.1, "10000000.00"), (3, 3, 0.25, "0.03")]


def a_change_of_type_that_would_lose_values_is_refused(harness: SinkHarness) -> None:
    """The message names the table, the column, and the remedy; the table stays as it is."""
    harness.apply(table(), put(1, 1, "one"))
    number = table(ID, column("note", "int"), version=2)

    said = refusal(lambda: harness.apply(number, put(2, 2, None), policies=EVOLVE))

    assert "column note was" in said
    assert "(docs/sinks/repair.md" in said
    assert source_rows(harness, table()) == [{"id": 1, "note": "one"}]


def a_rename_is_carried_over(harness: SinkHarness) -> None:
    """The column has its old rows' values under the new name, also of the key; two columns may follow one another's names, and
    an event from before that comes late finds its place."""
    first = table(ID, NOTE, column("b", "int"), column("other", "int"))
    harness.apply(first, put(1, 1, "one", b=1, other=10))
    second = table(
        _renamed(ID, "order_id", "id"),
        _renamed(NOTE, "text", "note"),
        _renamed(column("b", "bigint"), "other", "b"),
        _renamed(column("other", "int"), "it's `odd`", "other"),
        version=2,
        key=("order_id",),
    )

    harness.apply(second, RowChange("u", 2, {"order_id": 2, "text": "two", "other": 2**40, "it's `odd`": 20}))
    harness.apply(first, put(1, 2, "late", b=3, other=30), put(1, 3, "three", b=3, other=30))
    harness.apply(second, RowChange("d", 4, {"order_id": 1, "text": "", "other": 0, "it's `odd`": 0}))

    rows = sorted(map(_plain_row, harness.rows(second)), key=lambda row: int(row["order_id"]))
    assert rows == [
        {"order_id": 2, "text": "two", "other": 2**40, "it's `odd`": 20},
        {"order_id": 3, "text": "three", "other": 3, "it's `odd`": 30},
    ]


def lenient_puts_a_column_beside_the_one_that_cannot_change(harness: SinkHarness) -> None:
    """The old column keeps its values and is NULL from then on; a further type gets a further column, and one that was there
    before is taken up again."""
    harness.apply(table(), put(1, 1, "one"), put(1, 2, "two"))
    number, moment = (table(ID, column("note", kind), version=v) for v, kind in ((2, "int"), (3, "date")))

    harness.apply(number, RowChange("u", 2, {"id": 2, "note": 22}))
    harness.apply(moment, RowChange("u", 3, {"id": 3, "note": 0}))
    harness.apply(table(version=4), put(4, 4, "four"))
    harness.apply(number, RowChange("u", 2, {"id": 5, "note": 55}))

    found = {row["id"]: [row[name] for name in row if name.startswith("note")] for row in source_rows(harness, number)}
    assert {key: [str(value) for value in values if value is not None] for key, values in found.items()} == {
        1: ["one"],
        2: ["22"],
        3: ["1970-01-01"],
        4: ["four"],
        5: ["55"],
    }
    assert {len(values) for values in found.values()} == {3}
    [row] = [row for row in source_rows(harness, number) if row["id"] == 2]
    assert row["note"] is None
    assert [name for name in row if name.startswith("note__v_int")]


def exception_parks_the_table_at_each_change(harness: SinkHarness) -> None:
    """Also at one that would ask nothing of the table; the message names the statement, the changes and the remedy."""
    harness.apply(table(), put(1, 1, "one"))
    required = msgspec.structs.replace(NOTE, is_optional=False)
    changed = msgspec.structs.replace(
        table(ID, required, column("n", "int"), version=2), ddl="ALTER TABLE orders ADD n int, MODIFY note …"
    )

    said = refusal(lambda: harness.apply(changed, put(2, 2, "two", n=2), policies=_policies(ChangePolicy.EXCEPTION)))
    fresh = table(name="fresh")
    of_a_new_table = refusal(lambda: harness.apply(fresh, put(1, 1, "one"), policies=_policies(ChangePolicy.EXCEPTION)))

    for words in (
        "ALTER TABLE orders ADD n int",
        "column_added n",
        "nullability_changed note",
        "choose another policy",
    ):
        assert words in said
    assert "column_added" not in of_a_new_table
    assert "table_created" in of_a_new_table
    assert source_rows(harness, table()) == [{"id": 1, "note": "one"}]
    harness.apply(changed, put(2, 2, "two", n=2), policies=EVOLVE)
    harness.apply(changed, put(3, 3, "three", n=3), policies=_policies(ChangePolicy.EXCEPTION))
    assert [row["n"] for row in source_rows(harness, changed)] == [None, 2, 3]


def ignore_leaves_the_table_as_it_is(harness: SinkHarness) -> None:
    """New columns and new names are not delivered, a wider number as long as it fits; with another policy they come."""
    ignore = _policies(ChangePolicy.IGNORE)
    first = table(ID, NOTE, column("n", "int"))
    harness.apply(first, put(1, 1, "one", n=1))
    second = table(
        ID,
        _renamed(NOTE, "text", "note"),
        column("n", "bigint"),
        column("added", "int", default_expression="7"),
        version=2,
    )

    harness.apply(second, RowChange("u", 2, {"id": 2, "text": "two", "n": 2, "added": 2}), policies=ignore)
    left = source_rows(harness, second)
    harness.apply(second, RowChange("u", 3, {"id": 3, "text": "three", "n": 2**40, "added": 3}), policies=EVOLVE)

    assert left == [{"id": 1, "note": "one", "n": 1}, {"id": 2, "note": None, "n": 2}]
    newest = source_rows(harness, second)[2]
    assert newest == {"id": 3, "note": None, "n": 2**40, "text": "three", "added": 3}
    refused = refusal(lambda: harness.apply(table(name="fresh"), put(1, 1, "one"), policies=ignore))
    assert "ignore for table_created" in refused


def born(item: Column, after_version: int, *, of: Column | None = None) -> Column:
    """A column that came after a version, as ``of`` if given."""
    came = of or item
    how = Born(
        after_version=after_version,
        source_type=came.source_type,
        logical_type=came.logical_type,
        is_optional=came.is_optional,
        default_expression=came.default_expression,
    )
    return msgspec.structs.replace(item, born=how)


def _renamed(item: Column, name: str, former_name: str, *, last_version: int = 1) -> Column:
    """A column that was called otherwise up to a version."""
    former = FormerName(name=former_name, last_version=last_version)
    return msgspec.structs.replace(item, name=name, former_names=(former,))


def _policies(default: ChangePolicy) -> ChangePolicies:
    return ChangePolicies(default=default)


def mode_and_key_are_for_a_tables_life(harness: SinkHarness) -> None:
    """Rows of two modes, or merged by two keys, would make no sense together."""
    harness.apply(table(), put(1, 1, "one"))

    other_mode = refusal(lambda: harness.apply(table(), put(2, 1, "one"), mode=SinkMode.APPEND))
    other_key = refusal(lambda: harness.apply(table(key=("id", "note"), version=2), put(2, 1, "one")))

    assert "sink.mode is append" in other_mode
    assert "source's key is (id,note)" in other_key


def odd_names_are_names(harness: SinkHarness) -> None:
    """Every kind of name that MySQL allows: columns of a table, of its key, and columns that are added."""
    names = [*ODD_NAMES, 'ADDED `later"']
    columns = [column(name, "int", is_optional=name not in ODD_NAMES) for name in names]
    key = ODD_NAMES[:5]
    first = table(ID, *columns[:-1], name="t`a\"b'l; e", key=key)
    second = table(ID, *columns, name="t`a\"b'l; e", key=key, version=2)
    values = {name: number for number, name in enumerate(ODD_NAMES)}

    harness.apply(first, RowChange("c", 1, {"id": 1, **values}))
    harness.apply(second, RowChange("u", 2, {"id": 2, **values, names[-1]: 7}))

    assert source_rows(harness, second) == [{"id": 2, **values, names[-1]: 7}]


def tables_that_differ_in_case_are_two(harness: SinkHarness) -> None:
    """MySQL on Linux distinguishes ``Orders`` and ``orders``."""
    lower, upper = table(), table(name="Orders")
    harness.apply(lower, put(1, 1, "lower"))
    harness.apply(upper, put(1, 1, "upper"))

    assert source_rows(harness, lower) == [{"id": 1, "note": "lower"}]
    assert source_rows(harness, upper) == [{"id": 1, "note": "upper"}]


def texts_stay_what_they_are(harness: SinkHarness) -> None:
    """Names that formats between the sink and its warehouse might take for their own."""
    odd = ["", "\\N", "\\.", "a\tb", "a\nb\r\n", '"', "'", "\\", "\\x41", "NULL", "\u2028", "🐬", " trailing "]
    orders = table()
    harness.apply(orders, *(put(1, key, text) for key, text in enumerate(odd)))

    stored = {row["id"]: row["note"] for row in source_rows(harness, orders)}

    assert stored == dict(enumerate(odd))


def tables_are_written_at_once(harness: SinkHarness) -> None:
    """Several tables of one batch from several threads: each has its rows, and the batch."""
    tables = [table(name=f"t{number}") for number in range(4)]

    harness.apply_at_once([(each, [put(1, number, each.table_id.table)]) for number, each in enumerate(tables)])
    harness.apply_at_once([(each, [put(2, number, "again")]) for number, each in enumerate(tables)])

    for number, each in enumerate(tables):
        assert source_rows(harness, each) == [{"id": number, "note": "again"}]


def a_table_is_built_anew_whatever_it_held(harness: SinkHarness) -> None:
    """Rows that are wrong, missing, or not the source's, with orders of no sense; later batches go on after it."""
    orders = table(ID, NOTE, column("it's `odd`", "int"))
    harness.apply(
        orders, *(RowChange("c", 900, {"id": key, "note": "doubted", "it's `odd`": key}) for key in (1, 2, 3))
    )

    copied = (put(10, 1, "one", **{"it's `odd`": 1}), put(11, 4, None, **{"it's `odd`": 4}), gone(12, 2))
    assert harness.apply_resync(orders, *copied, batch_id=2_000)
    assert not harness.apply_resync(orders, *copied, batch_id=2_000)
    rows_after = source_rows(harness, orders)
    harness.apply(orders, put(9, 1, "older"), put(13, 4, "four"), batch_id=2_001)
    harness.apply(orders, gone(14, 1), batch_id=2_002)
    later = source_rows(harness, orders)
    harness.apply_resync(orders, batch_id=2_003)

    assert rows_after == [{"id": 1, "note": "one", "it's `odd`": 1}, {"id": 4, "note": None, "it's `odd`": 4}]
    assert later == [{"id": 4, "note": "four", "it's `odd`": None}]
    assert source_rows(harness, orders) == []
    assert harness.is_applied(orders, 2_003)


def a_table_that_is_built_anew_keeps_its_soft_deleted_rows(harness: SinkHarness) -> None:
    """As they were marked; a row that the source lost without a delete is marked too, and a row that came back is there."""
    soft = Deletes.SOFT
    orders = table()
    harness.apply(orders, *(put(1, key, f"old {key}") for key in range(1, 6)), deletes=soft)
    harness.apply(orders, gone(2, 1), gone(2, 2), deletes=soft)
    before = {row["id"]: row for row in harness.rows(orders)}

    harness.apply_resync(orders, put(10, 2, "back"), put(10, 3, "three"), gone(11, 4), deletes=soft)

    assert _marks(harness, orders) == [
        (1, "old 1", True),
        (2, "back", False),
        (3, "three", False),
        (4, "old", True),
        (5, "old 5", True),
    ]
    after = {row["id"]: row for row in harness.rows(orders)}
    assert after[1] == before[1]


def a_resynced_log_has_each_change_once(harness: SinkHarness) -> None:
    """Entries that it lacked, had twice, or had otherwise; entries that the batch lacks stay. A NULL key is one, as of a
    truncation."""
    orders = table(ID, NOTE, column("it's `odd`", "int"), key=("id", "it's `odd`"))
    append = SinkMode.APPEND

    def entry(rank: int, note: str, odd: int | None = 1, *, key: int = 1, op: str = "u") -> RowChange:
        return RowChange(op, rank, {"id": key, "note": note, "it's `odd`": odd})

    lost = RowChange("t", 4, {"id": None, "note": None, "it's `odd`": None})
    harness.apply(orders, entry(1, "old"), entry(2, "r", op="r"), entry(2, "r", key=2, op="r"), mode=append)
    for _ in range(2):
        harness.apply(orders, entry(3, "twice", None), entry(5, "by hand"), mode=append)
    copied = (
        entry(2, "told", key=2, op="r"),
        entry(3, "twice", None),
        lost,
        entry(5, "told"),
        entry(6, "lost", op="d"),
    )

    assert harness.apply_resync(orders, *copied, mode=append, batch_id=2_000)
    assert not harness.apply_resync(orders, *copied, mode=append, batch_id=2_000)
    rows_after = _entries(harness, orders)
    harness.apply_resync(orders, mode=append, batch_id=2_001)
    harness.apply(orders, entry(7, "later"), mode=append, batch_id=2_002)

    assert rows_after == [
        (1, "old", 1, "u"),
        (1, "r", 1, "r"),
        (2, "told", 1, "r"),
        (1, "twice", None, "u"),
        (None, None, None, "t"),
        (1, "told", 1, "u"),
        (1, "lost", 1, "d"),
    ]
    assert _entries(harness, orders) == [*rows_after, (1, "later", 1, "u")]


def _entries(harness: SinkHarness, schema: TableSchema) -> list[tuple[Any, ...]]:
    rows = sorted(harness.rows(schema), key=lambda row: (row["_headwater_order"], row["id"] or 0))
    return [(row["id"], row["note"], row["it's `odd`"], row["_headwater_op"]) for row in rows]


def what_the_log_does_not_hold_is_kept_in_a_table_that_is_built_anew(harness: SinkHarness) -> None:
    """A row that changed while its chunk was read is in the log alone, perhaps in part."""
    orders = table(ID, NOTE, column("it's `odd`", "text", charset="utf8mb4"))
    harness.apply(orders, *(RowChange("c", 1, {"id": key, "note": "kept", "it's `odd`": "o"}) for key in (1, 2)))

    unknown = UNAVAILABLE_VALUE
    harness.apply_resync(
        orders,
        RowChange("u", 2, {"id": 1, "note": unknown, "it's `odd`": "new"}),
        RowChange("u", 2, {"id": 3, "note": "three", "it's `odd`": unknown}),
    )

    assert source_rows(harness, orders) == [
        {"id": 1, "note": "kept", "it's `odd`": "new"},
        {"id": 3, "note": "three", "it's `odd`": None},
    ]


def maintenance_changes_no_row(harness: SinkHarness) -> None:
    """After many small merges: rows and the last batch are as before."""
    orders = table()
    for rank in range(1, 7):
        harness.apply(orders, put(rank, rank % 2, f"at {rank}"), batch_id=rank)
    before = source_rows(harness, orders)

    harness.maintain(orders)
    harness.maintain(orders)

    assert source_rows(harness, orders) == before
    assert harness.is_applied(orders, 6)


def a_tenants_tables_go_and_no_others(harness: SinkHarness) -> None:
    """Their rows too, so that a table of the same name begins again; and there is no harm in doing it again."""
    orders, items = table(), table(name="items")
    other = harness.of_another_tenant()
    for each in (harness, other):
        each.apply(orders, put(1, 1, "a"))
        each.apply(items, put(1, 1, "b"), mode=SinkMode.APPEND)

    dropped = [harness.drop_tables(), harness.drop_tables()]

    assert dropped == [2, 0]
    assert [row["note"] for row in other.rows(orders)] == ["a"]
    assert harness.apply(orders, put(2, 2, "c"))
    assert [row["note"] for row in harness.rows(orders)] == ["c"]
