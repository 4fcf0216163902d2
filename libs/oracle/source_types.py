"""The type of an Oracle column in Oracle's words, as Debezium's connector 3.6.1 shows it."""

from typing import Final

from libs.oracle.column_type import parse_column_type
from libs.types.source_type import SourceType
from libs.types.table import Column

_NAMED_WHOLE: Final = ("TIMESTAMP", "INTERVAL")
"""Types whose name holds their digits, as the data dictionary prints it."""
_WITH_SCALE: Final = frozenset({"NUMBER", "INTERVAL DAY TO SECOND"})


def source_type(column: Column) -> SourceType:
    """The type of a column.

    >>> from libs.oracle.logical import column
    >>> source_type(column("AT", "TIMESTAMP(3)")), source_type(column("N", "NUMBER(9,2)"))
    (SourceType(name='TIMESTAMP(3)', length=3, scale=None), SourceType(name='NUMBER', length=9, scale=2))
    """
    oracle_type = parse_column_type(column.source_type)
    name = column.source_type if oracle_type.name.startswith(_NAMED_WHOLE) else oracle_type.name
    return SourceType(name, oracle_type.size, oracle_type.scale if oracle_type.name in _WITH_SCALE else None)
