"""Whether a table has any key of a batch; where it has none, the batch is appended, and no stored row is joined.

It is asked of batches with rows of a snapshot, all of whose events are the first of their rows, so that mostly there is
nothing to merge with. A snapshot goes through a table by its key: between the least and the greatest key of a batch mostly no
stored row is, which files' bounds show, or a few files' keys. Where the source orders keys otherwise than the warehouse (a
case-insensitive collation), or several places of the table are copied at once, the stored keys are looked up among the batch's.

Stored values and the batch's are compared, as a MERGE compares them: how the source orders its keys, which texts are
one to it, and how much of the copy came before do not matter. So an append has the result of the MERGE.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark.sinks.port import SinkTable
from spark.transforms.sql_text import literal, quoted

_MOST_LOOKED_UP: Final = 500_000
"""Keys of a batch, which lie in each executor's memory then."""
_BY_BYTES: Final = ("string", "binary")
_FRACTIONS: Final = ("float", "double")
"""0.0 equals -0.0, and bounds of files may know one of them only."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Facts about a batch's keys."""

    are_new: bool = False
    """No stored row has one of them."""
    within: str | None = None
    """True of each stored row, ``t``, that has one of them, in Spark SQL; None: no more is known than the keys themselves."""


def ask(stored: DataFrame, table: SinkTable, changes: DataFrame) -> Answer:
    """Of ``changes`` into a table that holds ``stored``; at the cost of two or three jobs over keys, where that may pay."""
    if not table.are_first or not (table.is_copy or table.key_bounds):
        return Answer()
    keys = changes.select(*_keys(table))
    within = table.key_bounds.condition if table.key_bounds else _span(table, keys)
    if within is None:
        return Answer()
    near = stored.alias("t").where(within).select(*_keys(table))
    if near.isEmpty():
        return Answer(are_new=True, within=within)
    if not table.is_copy or table.changes > _MOST_LOOKED_UP:
        return Answer(within=within)
    return Answer(are_new=near.join(sf.broadcast(keys), keys.columns, "left_semi").isEmpty(), within=within)


def _keys(table: SinkTable) -> list[Column]:
    return [sf.col(quoted(name)).alias(f"k{place}") for place, name in enumerate(table.key)]


def _span(table: SinkTable, keys: DataFrame) -> str | None:
    """The condition that a stored key is neither below the least of ``keys`` nor above the greatest; None: of such keys it says
    nothing for certain, or there are none."""
    may_be_null = any(column.is_optional for column in table.columns if column.name in table.key)
    if may_be_null or any(sql_type in _FRACTIONS for _, sql_type in keys.dtypes):
        return None
    key = sf.struct(*keys.columns)
    ends = keys.agg(sf.min(key).alias("least"), sf.max(key).alias("greatest"))
    types = [sql_type for _, sql_type in keys.dtypes]
    texts = [
        _text(sf.col(end).getField(name), sql_type).alias(f"{end}_{name}")
        for end in ("least", "greatest")
        for name, sql_type in keys.dtypes
    ]
    [row] = ends.select(*texts).collect()
    if None in row:
        return None
    values = [_value(text, sql_type) for text, sql_type in zip(row, types + types, strict=True)]
    least, greatest = values[: len(table.key)], values[len(table.key) :]
    columns = [f"t.{quoted(name)}" for name in table.key]
    return f"({_beyond(columns, least, '>')} AND {_beyond(columns, greatest, '<')})"


def _beyond(columns: list[str], ends: list[str], sign: str) -> str:
    """``columns``, one after the other, are ``ends``, or beyond them."""
    last = len(columns) - 1
    cases = []
    for place, (column, end) in enumerate(zip(columns, ends, strict=True)):
        same = [f"{columns[before]} = {ends[before]}" for before in range(place)]
        cases.append(" AND ".join([*same, f"{column} {sign}{'=' if place == last else ''} {end}"]))
    return "(" + " OR ".join(f"({case})" for case in cases) + ")"


def _text(value: Column, sql_type: str) -> Column:
    return sf.hex(value) if sql_type in _BY_BYTES else value.cast("string")


def _value(text: str, sql_type: str) -> str:
    """A constant of Spark SQL; texts by their bytes, of any content."""
    return f"CAST(X'{text}' AS {sql_type})" if sql_type in _BY_BYTES else f"CAST({literal(text)} AS {sql_type})"
