"""Iceberg schemas: types by their Spark names, and what must change for a table to hold a newer source schema.

Plain functions over names; ``sink`` carries the changes out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark.sinks.port import SinkColumn, SinkTable, TableRefused

_ICEBERG_NAMES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp_ntz": "timestamp",
    "timestamp": "timestamptz",
    "string": "string",
    "binary": "binary",
}
_SPARK_NAMES: Final = {iceberg: spark for spark, iceberg in _ICEBERG_NAMES.items()}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_METADATA_COLUMNS: Final = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
"""Iceberg specification, "Reserved Field IDs"."""
_WIDENINGS: Final = frozenset({("int", "bigint"), ("float", "double")})
"""Besides a DECIMAL's precision, all that Iceberg allows in place (specification v2, "Schema Evolution")."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """What a table's schema lacks."""

    added: tuple[SinkColumn, ...]
    widened: tuple[SinkColumn, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)


def iceberg_type(sql_type: str) -> str:
    """Iceberg's name of a Spark type."""
    return sql_type if _DECIMAL.fullmatch(sql_type) else _ICEBERG_NAMES[sql_type]


def sql_type(iceberg_name: str) -> str:
    """Spark's name of an Iceberg type, as ``Type.toString`` gives it."""
    match = _DECIMAL.fullmatch(iceberg_name)
    return f"decimal({match[1]},{match[2]})" if match else _SPARK_NAMES[iceberg_name]


def check_names(table: SinkTable) -> None:
    """Raises TableRefused for a column named like one of Iceberg's own: no MERGE would run."""
    for column in table.columns:
        if column.name.lower() in _METADATA_COLUMNS:
            raise TableRefused(f"{table.table}.{column.name}: Iceberg keeps this name for itself; exclude the column")


def evolution(current: Mapping[str, str], table: SinkTable) -> Evolution:
    """What to add to and widen in the ``current`` columns (name to SQL type); nothing is ever dropped.

    Raises:
        TableRefused: a column became another type that its old values do not fit.
    """
    known = {name.lower(): current_type for name, current_type in current.items()}
    added, widened = [], []
    for column in table.columns:
        current_type = known.get(column.name.lower())
        if current_type is None:
            added.append(column)
        elif is_wider(column.sql_type, than=current_type):
            widened.append(column)
        elif column.sql_type != current_type and not is_wider(current_type, than=column.sql_type):
            raise TableRefused(
                f"{table.name}: column {column.name} was {current_type} and is {column.sql_type} now, which the stored "
                "values do not fit; rename the column at the source, or write the "
                "tenant's tables anew (docs/sinks.md, 'Write tables anew')"
            )
    return Evolution(tuple(added), tuple(widened))


def is_wider(sql_type: str, *, than: str) -> bool:
    """Whether every value of ``than`` fits ``sql_type``, and Iceberg can turn the one into the other in place."""
    if (than, sql_type) in _WIDENINGS:
        return True
    wide, narrow = _DECIMAL.fullmatch(sql_type), _DECIMAL.fullmatch(than)
    return bool(wide and narrow and wide[2] == narrow[2] and int(wide[1]) > int(narrow[1]))


def identifier_columns(columns: Sequence[SinkColumn], key: Sequence[str]) -> tuple[str, ...]:
    """The key's columns as identifier fields; none where one is a float or may be NULL, which Iceberg does not allow."""
    key_columns = [column for column in columns if column.name in key]
    unfit = any(column.sql_type in ("float", "double") or column.is_optional for column in key_columns)
    return () if unfit else tuple(key)
