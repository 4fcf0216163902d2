"""Tables as Oracle's data dictionary has them: the questions to ask, and the answers' rows as ``OracleTable``.

Plain functions: a reader asks, and hands the rows over. Four questions bring every table of a database, so tens of
thousands of tables cost no more round trips than one. (Oracle Database Reference, "DBA_OBJECTS", "DBA_TABLES",
"DBA_TAB_COLS", "DBA_CONSTRAINTS", "DBA_CONS_COLUMNS".)
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from libs.oracle.column_type import OracleType, UnknownColumnType, type_of_catalog
from libs.oracle.ddl import OracleColumn, OracleTable
from libs.oracle.ddl_syntax import Constraint
from libs.oracle.sql_lexer import UnreadableSql
from libs.types.table import TableId

SYSTEM_SCHEMAS: Final = frozenset(
    {
        "ANONYMOUS", "APPQOSSYS", "AUDSYS", "CTXSYS", "DBSFWUSER", "DBSNMP", "DIP", "DVF", "DVSYS", "GGSYS",
        "GSMADMIN_INTERNAL", "GSMCATUSER", "GSMUSER", "LBACSYS", "MDDATA", "MDSYS", "OJVMSYS", "OLAPSYS", "ORACLE_OCM",
        "ORDDATA", "ORDPLUGINS", "ORDSYS", "OUTLN", "REMOTE_SCHEDULER_AGENT", "SI_INFORMTN_SCHEMA", "SYS", "SYS$UMF",
        "SYSBACKUP", "SYSDG", "SYSKM", "SYSRAC", "SYSTEM", "VECSYS", "WMSYS", "XDB", "XS$NULL",
    }
)  # fmt: skip
"""Schemas that Oracle maintains: never captured."""
_UNUSED: Final = re.compile(r"SYS_C\d+_\d+:\d\d:\d\d\$")
"""The name that SET UNUSED gives a column: number, date and time."""
_IN_RECYCLE_BIN: Final = "BIN$"
_PLACEHOLDER: Final = OracleType("NUMBER")
"""Of a column that no row of the log has: its type does not matter."""


def _not_system(owner: str) -> str:
    names = ", ".join(f"'{name}'" for name in sorted(SYSTEM_SCHEMAS))
    return f"{owner} NOT IN ({names})"


@dataclass(frozen=True, slots=True)
class Questions:
    """The SELECTs about some tables. Each takes the same bind values."""

    objects: str
    tables: str
    columns: str
    keys: str
    binds: tuple[str, ...] = ()


def questions(table: TableId | None = None) -> Questions:
    """About every table outside Oracle's own schemas, or about one."""

    def where(owner: str, name: str) -> str:
        return f"{_not_system(owner)}" if table is None else f"{owner} = :1 AND {name} = :2"

    return Questions(
        objects="SELECT OWNER, OBJECT_NAME, SUBOBJECT_NAME, OBJECT_ID, CREATED, LAST_DDL_TIME FROM DBA_OBJECTS "
        "WHERE OBJECT_TYPE IN ('TABLE', 'TABLE PARTITION', 'TABLE SUBPARTITION') "
        f"AND {where('OWNER', 'OBJECT_NAME')}",
        tables="SELECT OWNER, TABLE_NAME, TEMPORARY, IOT_TYPE, NESTED, NUM_ROWS FROM DBA_TABLES "
        f"WHERE {where('OWNER', 'TABLE_NAME')}",
        columns="SELECT OWNER, TABLE_NAME, COLUMN_NAME, INTERNAL_COLUMN_ID, COLUMN_ID, DATA_TYPE, DATA_TYPE_OWNER, "
        "DATA_LENGTH, CHAR_LENGTH, DATA_PRECISION, DATA_SCALE, NULLABLE, VIRTUAL_COLUMN, HIDDEN_COLUMN, USER_GENERATED, "
        f"DATA_DEFAULT FROM DBA_TAB_COLS WHERE {where('OWNER', 'TABLE_NAME')} "
        "ORDER BY OWNER, TABLE_NAME, INTERNAL_COLUMN_ID",
        keys="SELECT C.OWNER, C.TABLE_NAME, C.CONSTRAINT_NAME, C.CONSTRAINT_TYPE, K.COLUMN_NAME "
        "FROM DBA_CONSTRAINTS C JOIN DBA_CONS_COLUMNS K ON K.OWNER = C.OWNER AND K.CONSTRAINT_NAME = C.CONSTRAINT_NAME "
        f"WHERE C.CONSTRAINT_TYPE IN ('P', 'U') AND C.STATUS = 'ENABLED' AND {where('C.OWNER', 'C.TABLE_NAME')} "
        "ORDER BY C.OWNER, C.TABLE_NAME, C.CONSTRAINT_TYPE, C.CONSTRAINT_NAME, K.POSITION",
        binds=() if table is None else (table.database, table.table),
    )


@dataclass(frozen=True, slots=True)
class TableObjects:
    """The numbers by which the log names a table, and when a statement last changed it."""

    object_ids: tuple[int, ...]
    """OBJECT_ID of the table, then of its partitions and subpartitions."""
    created_at: datetime
    """By the server's own clock, as ``last_ddl_at``."""
    last_ddl_at: datetime
    """LAST_DDL_TIME, of a second's resolution; of a partitioned table the latest."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A row of DBA_TABLES."""

    is_temporary: bool
    is_index_organized: bool
    is_part: bool
    """Another table's overflow, mapping or nested table: its rows come with that one."""
    rows_estimated: int
    """By the last statistics; 0: there are none."""


@dataclass(frozen=True, slots=True)
class DictionaryTable:
    """A table that can be captured, or the reason why it cannot."""

    table: OracleTable
    objects: TableObjects
    facts: TableFacts
    refusal: str = ""
    """Why its rows cannot be captured; empty: they can."""


def objects_of(rows: Iterable[Sequence[Any]]) -> dict[TableId, TableObjects]:
    """The answer to ``Questions.objects``. Dropped tables in the recycle bin are left out."""
    own: dict[TableId, tuple[int, datetime]] = {}
    parts: defaultdict[TableId, list[int]] = defaultdict(list)
    changed: defaultdict[TableId, list[datetime]] = defaultdict(list)
    for owner, name, part, object_id, created_at, last_ddl_at in rows:
        table_id = TableId(database=owner, table=name)
        if name.startswith(_IN_RECYCLE_BIN):
            continue
        changed[table_id].append(last_ddl_at)
        if part is None:
            own[table_id] = int(object_id), created_at
        else:
            parts[table_id].append(int(object_id))
    return {
        table_id: TableObjects((object_id, *sorted(parts[table_id])), created_at, max(changed[table_id]))
        for table_id, (object_id, created_at) in own.items()
    }


def facts_of(rows: Iterable[Sequence[Any]]) -> dict[TableId, TableFacts]:
    """The answer to ``Questions.tables``."""
    found = {}
    for owner, name, temporary, iot_type, nested, rows_estimated in rows:
        is_part = nested == "YES" or iot_type not in (None, "IOT")
        found[TableId(database=owner, table=name)] = TableFacts(
            temporary == "Y", iot_type == "IOT", is_part, int(rows_estimated or 0)
        )
    return found


def tables_of(
    objects: Mapping[TableId, TableObjects],
    facts: Mapping[TableId, TableFacts],
    columns: Iterable[Sequence[Any]],
    keys: Iterable[Sequence[Any]],
    *,
    is_wanted: Callable[[TableId], bool],
) -> list[DictionaryTable]:
    """The wanted tables, by name. Those without a row in one of the answers are left out: they were made or dropped
    in between, which the log shows.

    Args:
        objects: ``objects_of`` the rows of ``Questions.objects``.
        facts: ``facts_of`` the rows of ``Questions.tables``.
        columns: the rows of ``Questions.columns``.
        keys: the rows of ``Questions.keys``.
        is_wanted: tables that are followed.
    """
    by_table: defaultdict[TableId, list[Sequence[Any]]] = defaultdict(list)
    for owner, name, *column in columns:
        table_id = TableId(database=owner, table=name)
        if table_id in objects and table_id in facts and is_wanted(table_id):
            by_table[table_id].append(column)
    constraints = _constraints(keys)
    return [
        _table(table_id, rows, constraints.get(table_id, ()), objects[table_id], facts[table_id])
        for table_id, rows in sorted(by_table.items())
        if not facts[table_id].is_part
    ]


def _constraints(rows: Iterable[Sequence[Any]]) -> dict[TableId, tuple[Constraint, ...]]:
    columns: defaultdict[tuple[TableId, str, bool], list[str]] = defaultdict(list)
    for owner, table, name, kind, column in rows:
        columns[TableId(database=owner, table=table), name, kind == "P"].append(column)
    found: defaultdict[TableId, list[Constraint]] = defaultdict(list)
    for (table_id, name, is_primary), names in columns.items():
        found[table_id].append(Constraint(name, tuple(names), is_primary))
    return {table_id: tuple(each) for table_id, each in found.items()}


def _table(
    table_id: TableId,
    rows: Sequence[Sequence[Any]],
    constraints: tuple[Constraint, ...],
    objects: TableObjects,
    facts: TableFacts,
) -> DictionaryTable:
    primary = next((each.columns for each in constraints if each.is_primary), ())
    refusals: list[str] = []
    columns = tuple(_column(row, primary, refusals) for row in rows)
    if facts.is_temporary:
        refusals.append("it is a temporary table, whose rows the log does not hold")
    table = OracleTable(table_id, columns, constraints, facts.is_temporary)
    return DictionaryTable(table, objects, facts, "; ".join(refusals))


def _column(row: Sequence[Any], primary: Sequence[str], refusals: list[str]) -> OracleColumn:
    """A column of DBA_TAB_COLS. A type that no rule knows is added to ``refusals``."""
    name, _, column_id, data_type, type_owner, data_length, char_length, precision, scale, nullable, *rest = row
    is_virtual, is_hidden, is_users = (flag == "YES" for flag in rest[:3])
    default = rest[3]
    is_unused = bool(_UNUSED.fullmatch(name))
    is_of_system = is_hidden and not is_users and not is_unused
    oracle_type = _PLACEHOLDER
    if not (is_unused or is_virtual or is_of_system):
        try:
            oracle_type = _type(data_type, type_owner, data_length, char_length, precision, scale)
        except (UnknownColumnType, UnreadableSql):
            written = data_type if type_owner is None else f"{type_owner}.{data_type}"
            refusals.append(f"column {name} has the type {written}, which LogMiner does not read")
    return OracleColumn(
        name,
        oracle_type,
        is_optional=nullable != "N" or name in primary,
        default=None if is_virtual or default is None else str(default).strip(),
        is_unused=is_unused or is_of_system,
        is_virtual=is_virtual,
        is_invisible=column_id is None and not (is_unused or is_of_system or is_virtual),
    )


def _type(
    data_type: str,
    type_owner: str | None,
    data_length: int | None,
    char_length: int | None,
    precision: int | None,
    scale: int | None,
) -> OracleType:
    """Raises UnknownColumnType: an object type, or another that no rule knows."""
    if type_owner is not None and data_type != "XMLTYPE":
        raise UnknownColumnType(f"the type {type_owner}.{data_type} is an object type")
    return type_of_catalog(
        data_type,
        data_length=_whole(data_length),
        char_length=_whole(char_length),
        precision=_whole(precision),
        scale=_whole(scale),
    )


def _whole(number: Any) -> int | None:
    return None if number is None else int(number)
