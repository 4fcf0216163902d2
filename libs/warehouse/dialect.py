"""A warehouse's types, by name: which one a column has, and which may be changed between in place.

Plain functions over names. The sinks change tables by them, ``docs/types.md`` lists them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from libs.types.table import Column
from libs.types.value import LogicalType
from libs.warehouse import clickhouse, delta, iceberg, postgresql
from libs.warehouse.spark_types import spark_type


@dataclass(frozen=True, slots=True)
class Dialect:
    """The types of one kind of warehouse."""

    own_type: Callable[[str, LogicalType | None], str]
    """Of Spark's type, and of its type at the source where the warehouse has more types than Spark."""
    is_wider: Callable[[str, str], bool]
    """Of a new and an old type of ``own_type``: every value of the old fits the new, and the warehouse turns the one into the
    other in place."""
    shown: Callable[[str], str] = str
    """How the warehouse itself calls a type of ``own_type``."""
    reserved_names: frozenset[str] = frozenset()
    """In lower case: no column may be called so."""

    def type_of(self, column: Column) -> str:
        """The type that holds every value of the column."""
        return self.own_type(spark_type(column), column.logical_type)

    def holds(self, stored: str, wanted: str) -> bool:
        """Whether a column of type ``stored`` takes every value of ``wanted``."""
        return stored == wanted or self.is_wider(stored, wanted)


def _sparks(sql_type: str, _: LogicalType | None) -> str:
    return sql_type


DIALECTS: Final[Mapping[str, Dialect]] = {
    "clickhouse": Dialect(clickhouse.own_type, clickhouse.is_wider, clickhouse.clickhouse_type),
    "delta": Dialect(_sparks, delta.is_wider),
    "iceberg": Dialect(_sparks, iceberg.is_wider, iceberg.iceberg_type, iceberg.METADATA_COLUMNS),
    "postgresql": Dialect(postgresql.own_type, postgresql.is_wider),
}
"""By the names of ``spark.sinks.registry``."""
