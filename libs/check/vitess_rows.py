"""A keyspace's side of the comparison: every shard's rows through vtgate, as any MySQL client could ask for them.

vtgate answers with at most 10,000 rows at once (vttablet's --queryserver-config-max-result-size), so a table is read page by
page along its key, shard by shard (a target ``keyspace:shard``), and the shards' streams are merged. There is no read view
across statements: ``check`` looks at the shards' transactions before and after, and says when the source was written to.

* A table without a key can be compared while each shard has no more rows than vtgate gives at once.
* A page along a key of text sorts the rest of the table once, because the order is that of code points, not of an index.
* FLOAT is compared in six digits (``values.SHORT_FLOAT``).
* TIMESTAMP is read as vttablet's sessions print it, which must be UTC, as Vitess sets it up.
"""

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from libs.check.compare import Row
from libs.check.key_order import is_behind
from libs.check.mysql_rows import end_statement, place_statement, rows_statement, select_statement
from libs.check.places import Place, PlaceColumn, place_of
from libs.check.projection import ExpectedColumn, ExpectedTable, SourceTable, canonical_column
from libs.check.source_sql import MYSQL_SQL, SourceSql
from libs.check.values import BINARY_TYPES, SHORT_FLOAT, TEXT_TYPES, order_expression, select_expression
from libs.mesh.executed import of_shards
from libs.mesh.vtgate import TextRow, Vtgate
from libs.mysql.gtid import GtidSet
from libs.mysql.identifiers import quote_identifier
from libs.types.table import TableId

PAGE_ROWS: Final = 5_000
_FIELD, _TYPE, _COLLATION, _NULL = 0, 1, 2, 3  # of SHOW FULL COLUMNS
_NON_UNIQUE, _KEY_NAME, _SEQUENCE, _COLUMN_NAME, _NULLABLE = 1, 2, 3, 4, 9  # of SHOW INDEX
_NUMBERS: Final = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "year", "decimal", SHORT_FLOAT, "double", "bit"}
)

# Not TIMESTAMP: isostring has it as ISO 8601, and it lands as a moment.
_MOMENTS: Final = frozenset({"date", "time", "datetime"})


@dataclass(frozen=True, slots=True)
class VitessRows:
    """A keyspace as a source (``source.AskedSource``)."""

    vtgate: Vtgate
    keyspace: str
    shards: Sequence[str] = ()
    """Those that the source is; empty: all that serve."""
    has_text_moments: bool = False
    """``time_precision: isostring``: events have a DATE, a TIME and a DATETIME as MySQL prints them, so they are texts here."""

    @property
    def sql(self) -> SourceSql:
        """MySQL's."""
        return MYSQL_SQL

    @property
    def sums(self) -> "VitessRows":
        """See ``source.AskedSource.sums``."""
        return self

    def refusal(self, table: ExpectedTable) -> str | None:
        """None: it takes every filter as it is."""
        return None

    def executed(self) -> dict[str, GtidSet]:
        """Every transaction that the shards have committed until now."""
        return of_shards(self.vtgate.executed(self.keyspace), self.shards)

    def tables(self) -> tuple[SourceTable, ...]:
        """Every table of the keyspace, as its first shard has it: the shards' tables are alike."""
        target = self._target(self._shards()[0])
        return tuple(self._table(name, target) for name in self.vtgate.tables(self.keyspace))

    def rows(self, table: ExpectedTable, columns: Sequence[ExpectedColumn]) -> Iterator[Row]:
        """See ``source.AskedSource.rows``; a page of each shard is in memory."""
        streams = [self._shard_rows(shard, table, columns) for shard in self._shards()]
        if not table.key or table.is_key_masked:
            return itertools.chain.from_iterable(streams)
        names = [column.name for column in columns]
        places = [names.index(name) for name in table.key]
        return heapq.merge(*streams, key=lambda row: tuple(row[place] for place in places))

    def rows_of(self, table: ExpectedTable, columns: Sequence[ExpectedColumn], condition: str) -> Iterator[Row]:
        """See ``source.AskedSource.rows_of``; as many rows of a shard as vtgate gives at once."""
        statement = rows_statement(table, columns, condition, place=quote_identifier(table.table_id.table))
        for shard in self._shards():
            if page := self.vtgate.execute(statement, target=self._target(shard)):
                yield from _canonical(columns, page)

    def answers(
        self, table: ExpectedTable, selected: str, *, condition: str | None = None, group_by: str = ""
    ) -> list[tuple[str | None, ...]]:
        """See ``source.AskedSource.answers``."""
        place = quote_identifier(table.table_id.table)
        statement = select_statement(table, selected, condition, place=place, group_by=group_by)
        shards = [self._target(shard) for shard in self._shards()]
        return [
            tuple(None if value is None else value.decode() for value in row)
            for target in shards
            for row in self.vtgate.execute(statement, target=target)
        ]

    def key_behind(
        self, table: SourceTable, columns: Sequence[PlaceColumn], after: Place | None, rows: int
    ) -> Place | None:
        """See ``source.AskedSource.key_behind``: the least of the shards' answers, each asked for its share of the rows."""
        of_a_shard = max(1, rows // len(self._shards()))
        statement = place_statement(quote_identifier(table.table_id.table), columns, after, of_a_shard)
        return min(self._places(statement, columns), default=None)

    def end_of_key(self, table: SourceTable, columns: Sequence[PlaceColumn], *, is_last: bool) -> Place | None:
        """See ``source.AskedSource.end_of_key``."""
        statement = end_statement(quote_identifier(table.table_id.table), columns, is_last=is_last)
        return (max if is_last else min)(self._places(statement, columns), default=None)

    def _places(self, statement: str, columns: Sequence[PlaceColumn]) -> list[Place]:
        """Each shard's."""
        return [
            place_of(columns, row)
            for shard in self._shards()
            for row in self.vtgate.execute(statement, target=self._target(shard))
        ]

    def _shards(self) -> Sequence[str]:
        return self.shards or self.vtgate.shards(self.keyspace)

    def _target(self, shard: str) -> str:
        return f"{self.keyspace}:{shard}"

    def _table(self, name: str, target: str) -> SourceTable:
        quoted = quote_identifier(name)
        described = self.vtgate.execute(f"SHOW FULL COLUMNS FROM {quoted}", target=target)
        columns = tuple((_text(row[_FIELD]), self._type_name(_text(row[_TYPE]))) for row in described)
        key = _key(self.vtgate.execute(f"SHOW INDEX FROM {quoted}", target=target))
        required = frozenset(_text(row[_FIELD]) for row in described if _text(row[_NULL]) == "NO")
        collations = tuple((_text(row[_FIELD]), _text(row[_COLLATION])) for row in described if row[_COLLATION])
        return SourceTable(TableId(database=self.keyspace, table=name), columns, key, required, collations)

    def _type_name(self, column_type: str) -> str:
        """DATA_TYPE of a column's full type: ``bigint`` of ``bigint unsigned``, ``enum`` of ``enum('a b')``."""
        name = column_type.partition("(")[0].split()[0].lower()
        if name == "float":
            return SHORT_FLOAT
        return "varchar" if self.has_text_moments and name in _MOMENTS else name

    def _shard_rows(self, shard: str, table: ExpectedTable, columns: Sequence[ExpectedColumn]) -> Iterator[Row]:
        place: tuple[str, ...] | None = None
        while True:
            page = self.vtgate.execute(page_statement(table, columns, place), target=self._target(shard))
            if page:
                yield from _canonical(columns, page)
            if len(page) < PAGE_ROWS or not table.key:
                return
            place = _place(table, page[-1][len(columns) :])


def _canonical(columns: Sequence[ExpectedColumn], page: Sequence[TextRow]) -> Iterator[Row]:
    cells = [
        canonical_column(column, [_printed(column.data_type, row[nth]) for row in page])
        for nth, column in enumerate(columns)
    ]
    return zip(*cells, strict=True)


def page_statement(table: ExpectedTable, columns: Sequence[ExpectedColumn], place: tuple[str, ...] | None) -> str:
    """The next page after ``place``, the literals of a key (None: the first): ``columns``, then the key."""
    keys = _key_expressions(table)
    selected = [select_expression(column.data_type, quote_identifier(column.name)) for column in columns]
    conditions = [f"({table.where})"] if table.where is not None else []
    if place is not None:
        conditions.append(is_behind(keys, place))
    statement = f"SELECT {', '.join([*selected, *keys])} FROM {quote_identifier(table.table_id.table)}"
    if conditions:
        statement += f" WHERE {' AND '.join(conditions)}"
    return statement + (f" ORDER BY {', '.join(keys)} LIMIT {PAGE_ROWS}" if keys else "")


def _key_expressions(table: ExpectedTable) -> list[str]:
    types = {column.name: column.data_type for column in table.columns}
    return [order_expression(types[name], quote_identifier(name)) for name in table.key]


def _place(table: ExpectedTable, key: TextRow) -> tuple[str, ...]:
    types = {column.name: column.data_type for column in table.columns}
    return tuple(_literal(types[name], value or b"") for name, value in zip(table.key, key, strict=True))


def _literal(data_type: str, printed: bytes) -> str:
    if data_type in _NUMBERS:
        return printed.decode()
    if data_type in TEXT_TYPES or data_type in BINARY_TYPES:
        return f"X'{printed.hex()}'"
    return f"'{printed.decode()}'"  # a moment


def _printed(data_type: str, value: bytes | None) -> str | bytes | None:
    return value if value is None or data_type in BINARY_TYPES else value.decode()


def _key(indexes: Sequence[TextRow]) -> tuple[str, ...]:
    """The primary key, else the first unique one without NULLs; SHOW INDEX lists them in this order."""
    unique: dict[str, list[TextRow]] = {}
    for row in indexes:
        if _text(row[_NON_UNIQUE]) == "0":
            unique.setdefault(_text(row[_KEY_NAME]), []).append(row)
    for parts in unique.values():
        if all(part[_COLUMN_NAME] is not None and _text(part[_NULLABLE]) != "YES" for part in parts):
            in_order = sorted(parts, key=lambda part: int(_text(part[_SEQUENCE])))
            return tuple(_text(part[_COLUMN_NAME]) for part in in_order)
    return ()


def _text(value: bytes | None) -> str:
    return (value or b"").decode()
