"""A copy of a table goes into a mirror as appends where none of its keys is there, and the mirror equals the
table that merges would have made."""

import base64
import itertools
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from libs.mysql.logical import column
from libs.testing.sink_contract import RowChange, table
from libs.types.table import Column, TableSchema
from libs.types.tenant import Deletes
from spark.sinks.delta import sink as delta_sink
from spark.sinks.iceberg import sink as iceberg_sink
from spark.sinks.new_keys import Answer
from spark.sinks.port import Sink
from spark.sinks.postgresql import sink as postgresql_sink
from tests.conftest import PostgresqlServer
from tests.contract.sink_harness import ReadRows, WarehouseHarness
from tests.contract.test_sinks import delta_rows, postgresql_rows, postgresql_settings
from tests.marks import rest
from tests.spark_session import shared_spark

NOTE = column("note", "varchar(40)", charset="utf8mb4")
ROWS = 36
_tenants = itertools.count()


@dataclass(frozen=True, slots=True)
class KeyType:
    """A type of key columns: values in any order, as events have them, and how the source orders them."""

    source_type: str
    value: Callable[[random.Random], Any]
    place: Callable[[Any], Any] = lambda value: value


def word(chance: random.Random) -> str:
    # In the warehouse all capitals come first; the source of these tests has them equal to small letters.
    letters = "".join(chance.choice("aAbBzZéß~_'\\") for _ in range(chance.randrange(1, 5)))
    return chance.choice(("", "https://shop.example/a/long/prefix/")) + letters


def code(chance: random.Random) -> str:
    return base64.b64encode(chance.randbytes(chance.randrange(1, 20))).decode()


def amount(chance: random.Random) -> str:
    unscaled = chance.randrange(-(10**6), 10**6)
    return base64.b64encode(unscaled.to_bytes(5, "big", signed=True)).decode()


def unscaled(text: str) -> int:
    return int.from_bytes(base64.b64decode(text), "big", signed=True)


TEXT = KeyType("varchar(60)", word, str.casefold)
KEY_TYPES = (
    TEXT,
    KeyType("varbinary(20)", code, base64.b64decode),
    KeyType("decimal(12,4)", amount, unscaled),
    KeyType("char(36)", lambda chance: str(uuid.UUID(int=chance.getrandbits(128)))),
    KeyType("date", lambda chance: chance.randrange(-300_000, 30_000)),
    KeyType("datetime(6)", lambda chance: chance.randrange(-(10**15), 10**15)),
    KeyType("bigint", lambda chance: chance.randrange(-3, 3)),
    KeyType("smallint", lambda chance: chance.randrange(5)),
)
Key = tuple[Any, ...]


@dataclass(slots=True)
class Source:
    """A table that is copied chunk by chunk while it changes, as batches."""

    chance: random.Random
    types: Sequence[KeyType]
    rank: int = 100
    rows: dict[Key, str] = field(default_factory=dict)
    places: list[int] = field(default_factory=lambda: [0, ROWS // 2])
    """Where the copy is, and where another one that runs beside it is."""

    def __post_init__(self) -> None:
        while len(self.rows) < ROWS:
            self.insert()

    @property
    def columns(self) -> list[Column]:
        return [
            column(f"k.{place}`", each.source_type, is_optional=False, charset="utf8mb4")
            for place, each in enumerate(self.types)
        ]

    @property
    def schema(self) -> TableSchema:
        return table(*self.columns, NOTE, key=tuple(each.name for each in self.columns))

    def batches(self) -> Iterator[list[RowChange]]:
        """One of each kind, in any order, after a first chunk."""
        kinds = [self.chunk, self.chunks, self.begin_again, self.late_chunk, self.with_insert, self.streamed]
        for kind in [self.chunk, *self.chance.sample(kinds, len(kinds))]:
            self.rank += 1
            yield list({self.key_of(each): each for each in kind()}.values())

    def chunk(self, of: int = 0, rank: int | None = None) -> list[RowChange]:
        keys = sorted(self.rows, key=self.order)[self.places[of] :][: self.chance.randrange(2, 7)]
        self.places[of] += len(keys)
        return [self.change("r", key, self.rank if rank is None else rank) for key in keys]

    def chunks(self) -> list[RowChange]:
        """Of both places."""
        return [*self.chunk(), *self.chunk(1)]

    def begin_again(self) -> list[RowChange]:
        """The copy was broken off."""
        self.places[0] = 0
        return self.chunk()

    def late_chunk(self) -> list[RowChange]:
        """As the source was before all that was streamed."""
        self.places[0] = self.chance.randrange(ROWS)
        return self.chunk(rank=1)

    def with_insert(self) -> list[RowChange]:
        """A row that is copied, and streamed too, and a new one."""
        copied = self.chunk()
        return [*copied, *(RowChange("c", self.rank, each.row) for each in copied[:1]), self.change("c", self.insert())]

    def streamed(self) -> list[RowChange]:
        """Also a key that the source takes for the one that went."""
        updated, *gone = self.chance.sample(sorted(self.rows, key=self.order), 4)
        self.rows[updated] = self.note()
        changes = [self.change("u", updated), self.change("c", self.insert())]
        for key in gone:
            changes.append(self.change("d", key))
            note = self.rows.pop(key)
            renamed = tuple(part.swapcase() if of is TEXT else part for part, of in zip(key, self.types, strict=True))
            if TEXT in self.types and renamed not in self.rows:
                self.rows[renamed] = note
                changes.append(self.change("c", renamed))
        return changes

    def insert(self) -> Key:
        while (key := tuple(of.value(self.chance) for of in self.types)) in self.rows:
            pass
        self.rows[key] = self.note()
        return key

    def note(self) -> str:
        return f"note {self.chance.randrange(10**6)}"

    def change(self, op: str, key: Key, rank: int | None = None) -> RowChange:
        row = dict(zip((each.name for each in self.columns), key, strict=True)) | {"note": self.rows[key]}
        return RowChange(op, self.rank if rank is None else rank, row)

    def key_of(self, change: RowChange) -> Key:
        return tuple(change.row[each.name] for each in self.columns)

    def order(self, key: Key) -> Key:
        return tuple(of.place(part) for part, of in zip(key, self.types, strict=True))


@pytest.fixture(params=["iceberg", *rest("delta", "postgresql", because="the gate shows it on Iceberg")])
def warehouse(request: pytest.FixtureRequest) -> tuple[str, Sink, ReadRows]:
    shared = shared_spark()
    match request.param:
        case "delta":
            return "delta", delta_sink.open_sink(shared.delta), lambda place: delta_rows(shared.delta, place)
        case "iceberg":
            return "iceberg", shared.sink, shared.rows
        case _:
            server: PostgresqlServer = request.getfixturevalue("postgresql_server")
            sink = postgresql_sink.open_sink(postgresql_settings(server))
            return "postgresql", sink, lambda place: postgresql_rows(server, place)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The answers to a sink's question whether a batch's rows are new, time by time."""
    given: list[bool] = []

    def noted(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any) -> Any:
            answer = ask(*args)
            if not isinstance(answer, Answer):
                given.append(answer)
            elif answer.within is not None:
                given.append(answer.are_new)
            return answer

        return asked

    monkeypatch.setattr(delta_sink, "ask", noted(delta_sink.ask))
    monkeypatch.setattr(iceberg_sink, "ask", noted(iceberg_sink.ask))
    monkeypatch.setattr(postgresql_sink, "_has_none_of", noted(postgresql_sink._has_none_of))
    return given


@pytest.mark.parametrize(
    "has_text", [True, *rest(False, because="the gate has texts, of which the order differs most")]
)
@pytest.mark.timeout(1_800)
def test_a_copy_is_what_merges_make_of_it(
    warehouse: tuple[str, Sink, ReadRows], answers: list[bool], has_text: bool
) -> None:
    """Keys of random types, chunks in the source's order, which is another than the warehouse's, from two places at once,
    taken again from the begin, older than the streamed rows, and batches that come again."""
    kind, sink, read_rows = warehouse
    chance = random.Random(f"first load {kind}")
    types = [TEXT, KEY_TYPES[6]] if has_text else chance.sample(KEY_TYPES[1:], 2)
    source = Source(chance, types)
    schema, deletes = source.schema, chance.choice([*Deletes])
    told, merged = (harness_of(sink, read_rows, tells_first_rows=each) for each in (True, False))
    for number, batch in enumerate(source.batches()):
        for harness in (told, merged):
            assert harness.apply(schema, *batch, deletes=deletes, batch_id=number)
            assert not harness.apply(schema, *batch, deletes=deletes, batch_id=number)

    rows = rows_of(told, schema)
    assert rows == rows_of(merged, schema), (types, deletes)
    assert len({tuple(str(row[name]) for name in schema.key) for row in rows}) == len(rows)
    assert True in answers
    assert False in answers


def harness_of(sink: Sink, read_rows: ReadRows, *, tells_first_rows: bool) -> WarehouseHarness:
    harness = WarehouseHarness(shared_spark().session, sink, read_rows, f"first{next(_tenants)}", holds_nul=False)
    harness.tells_first_rows = tells_first_rows
    return harness


def rows_of(harness: WarehouseHarness, schema: TableSchema) -> list[Mapping[str, Any]]:
    return sorted(harness.rows(schema), key=repr)
