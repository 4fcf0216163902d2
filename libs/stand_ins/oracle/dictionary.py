"""DBA_, ALL_ and USER_ views of the model's tables, and functions that ask the database.

(Oracle Database Reference, "Static Data Dictionary Views"; PL/SQL Packages and Types Reference.)
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, Protocol

from libs.stand_ins.oracle import functions
from libs.stand_ins.oracle.answers import LOBS, Column, OracleError, OracleType, Value
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.redo import is_unused
from libs.stand_ins.oracle.sql import Table
from libs.stand_ins.oracle.tables import ModelTable
from libs.stand_ins.oracle.views import made

_BLOCK_BYTES: Final = 8_192
_SCOPES: Final = ("DBA_", "ALL_", "USER_", "CDB_")


class Viewer(Protocol):
    """The session that looks."""

    model: Model
    user: str
    schema: str


def view(name: str, session: Viewer) -> Table | None:
    """None: there is none of this name. ALL_ has the same rows as DBA_; USER_ has those of the user's own schema."""
    scope = next((scope for scope in _SCOPES if name.startswith(scope)), "")
    found = _VIEWS.get(name.removeprefix(scope)) if scope else _WITHOUT_SCOPE.get(name)
    if found is None:
        return None
    with session.model.lock:
        table = found(session)
    if scope != "USER_" or table.columns[0].name != "OWNER":
        return table
    return Table(table.columns[1:], [row[1:] for row in table.rows if row[0] == session.user])


def _tables(session: Viewer) -> list[ModelTable]:
    return list(session.model.tables.values())


def _table_rows(session: Viewer) -> Table:
    return made(
        "OWNER:t TABLE_NAME:t TABLESPACE_NAME:t STATUS:t NUM_ROWS:n BLOCKS:n AVG_ROW_LEN:n TEMPORARY:t NESTED:t SECONDARY:t"
        " IOT_TYPE:t IOT_NAME:t PARTITIONED:t LOGGING:t DROPPED:t DEPENDENCIES:t EXTERNAL:t CLUSTER_NAME:t DURATION:t"
        " TABLE_TYPE:t TABLE_TYPE_OWNER:t OBJECT_ID_TYPE:t READ_ONLY:t HYBRID:t",
        [
            (
                *(table.named.owner, table.named.name, "USERS", "VALID", None, None, None),
                "Y" if table.is_temporary else "N",
                *("NO", "N", None, None, "NO", "YES", "NO", "DISABLED", "NO", None),
                "SYS$TRANSACTION" if table.is_temporary else None,
                *(None, None, None, "NO", "NO"),
            )
            for table in _tables(session)
        ],
    )


def _columns(session: Viewer, *, hidden: bool) -> Table:
    heading = (
        "OWNER:t TABLE_NAME:t COLUMN_NAME:t DATA_TYPE:t DATA_TYPE_MOD:t DATA_TYPE_OWNER:t DATA_LENGTH:n DATA_PRECISION:n"
        " DATA_SCALE:n NULLABLE:t COLUMN_ID:n DEFAULT_LENGTH:n DATA_DEFAULT:l CHARACTER_SET_NAME:t CHAR_COL_DECL_LENGTH:n"
        " CHAR_LENGTH:n CHAR_USED:t HIDDEN_COLUMN:t VIRTUAL_COLUMN:t SEGMENT_COLUMN_ID:n INTERNAL_COLUMN_ID:n"
        " QUALIFIED_COL_NAME:t USER_GENERATED:t DEFAULT_ON_NULL:t IDENTITY_COLUMN:t"
    )
    rows = []
    for table in _tables(session):
        shown = 0
        stored = 0
        for number, column in enumerate(table.named.columns, start=1):
            shown += not column.is_hidden
            stored += not column.is_virtual
            if column.is_hidden and not hidden:
                continue
            rows.append(
                (
                    *(table.named.owner, table.named.name, column.name, type_name(column), None, None),
                    *_sizes(column),
                    "Y" if column.is_nullable else "N",
                    None if column.is_hidden else shown,
                    column.default and len(column.default),
                    column.default,
                    _charset(column),
                    *_characters(column),
                    "YES" if column.is_hidden else "NO",
                    "YES" if column.is_virtual else "NO",
                    None if column.is_virtual else stored,
                    number,
                    column.name,
                    "NO" if is_unused(column) else "YES",
                    *("NO", "NO"),
                )
            )
    return made(heading, rows)


def type_name(column: Column) -> str:
    """DATA_TYPE."""
    match column.type:
        case OracleType.NUMBER:
            return "FLOAT" if column.precision and column.scale == -127 else "NUMBER"
        case OracleType.VARCHAR2 | OracleType.CHAR | OracleType.CLOB:
            return "N" * column.is_national + column.type.name
        case OracleType.TIMESTAMP:
            return f"TIMESTAMP({column.scale})"
        case OracleType.TIMESTAMP_TZ:
            return f"TIMESTAMP({column.scale}) WITH TIME ZONE"
        case OracleType.TIMESTAMP_LTZ:
            return f"TIMESTAMP({column.scale}) WITH LOCAL TIME ZONE"
        case OracleType.INTERVAL_YM:
            return f"INTERVAL YEAR({column.precision or 2}) TO MONTH"
        case OracleType.INTERVAL_DS:
            return f"INTERVAL DAY({column.precision or 2}) TO SECOND({column.scale})"
    return column.type.name


def _sizes(column: Column) -> tuple[int | None, int | None, int | None]:
    """DATA_LENGTH, DATA_PRECISION, DATA_SCALE."""
    match column.type:
        case OracleType.NUMBER:
            return 22, column.precision or None, None if column.scale == -127 else column.scale
        case OracleType.TIMESTAMP | OracleType.TIMESTAMP_TZ | OracleType.TIMESTAMP_LTZ:
            return column.size, None, column.scale
        case OracleType.INTERVAL_YM:
            return 5, column.precision or 2, 0
        case OracleType.INTERVAL_DS:
            return 11, column.precision or 2, column.scale
    return column.size, None, None


def _charset(column: Column) -> str | None:
    if column.type not in (OracleType.VARCHAR2, OracleType.CHAR, OracleType.CLOB, OracleType.LONG):
        return None
    return "NCHAR_CS" if column.is_national else "CHAR_CS"


def _characters(column: Column) -> tuple[int | None, int, str | None]:
    """CHAR_COL_DECL_LENGTH, CHAR_LENGTH, CHAR_USED."""
    if column.type not in (OracleType.VARCHAR2, OracleType.CHAR):
        return None, 0, None
    length = column.characters or column.size
    return length, length, "C" if column.characters else "B"


def _objects(session: Viewer) -> Table:
    return made(
        "OWNER:t OBJECT_NAME:t SUBOBJECT_NAME:t OBJECT_ID:n DATA_OBJECT_ID:n OBJECT_TYPE:t CREATED:d LAST_DDL_TIME:d"
        " TIMESTAMP:t STATUS:t TEMPORARY:t GENERATED:t SECONDARY:t NAMESPACE:n ORACLE_MAINTAINED:t",
        [
            (
                *(table.named.owner, table.named.name, None, table.object_id, table.data_object_id, "TABLE"),
                *(table.made_at, table.changed_at, f"{table.changed_at:%Y-%m-%d:%H:%M:%S}"),
                *("VALID", "Y" if table.is_temporary else "N", "N", "N", 1, "N"),
            )
            for table in _tables(session)
        ],
    )


def _constraints(session: Viewer) -> Table:
    rows: list[tuple[Value, ...]] = []
    for table in _tables(session):
        tail = ("ENABLED", "VALIDATED", "NOT DEFERRABLE", "IMMEDIATE", "USER NAME")
        if table.key:
            name = _key_name(table)
            rows.append(
                (table.named.owner, name, "P", table.named.name, None, None, None, *tail, table.named.owner, name)
            )
        for column in table.named.columns:
            if not column.is_nullable and column.name not in table.key:
                name = f"SYS_C{table.object_id}{column.name}"
                rows.append(
                    (
                        table.named.owner,
                        name,
                        "C",
                        table.named.name,
                        f'"{column.name}" IS NOT NULL',
                        None,
                        None,
                        *tail,
                        None,
                        None,
                    )
                )
    return made(
        "OWNER:t CONSTRAINT_NAME:t CONSTRAINT_TYPE:t TABLE_NAME:t SEARCH_CONDITION_VC:t R_OWNER:t R_CONSTRAINT_NAME:t STATUS:t"
        " VALIDATED:t DEFERRABLE:t DEFERRED:t GENERATED:t INDEX_OWNER:t INDEX_NAME:t",
        rows,
    )


def _key_name(table: ModelTable) -> str:
    return f"{table.named.name}_PK"


def _constraint_columns(session: Viewer) -> Table:
    return made(
        "OWNER:t CONSTRAINT_NAME:t TABLE_NAME:t COLUMN_NAME:t POSITION:n",
        [
            (table.named.owner, _key_name(table), table.named.name, name, place)
            for table in _tables(session)
            for place, name in enumerate(table.key, start=1)
        ],
    )


def _indexes(session: Viewer) -> Table:
    return made(
        "OWNER:t INDEX_NAME:t INDEX_TYPE:t TABLE_OWNER:t TABLE_NAME:t TABLE_TYPE:t UNIQUENESS:t STATUS:t LEAF_BLOCKS:n"
        " DISTINCT_KEYS:n NUM_ROWS:n FUNCIDX_STATUS:t VISIBILITY:t",
        [
            (
                *(
                    table.named.owner,
                    _key_name(table),
                    "NORMAL",
                    table.named.owner,
                    table.named.name,
                    "TABLE",
                    "UNIQUE",
                ),
                *("VALID", 1, 1, 1, None, "VISIBLE"),
            )
            for table in _tables(session)
            if table.key
        ],
    )


def _index_columns(session: Viewer) -> Table:
    return made(
        "INDEX_OWNER:t INDEX_NAME:t TABLE_OWNER:t TABLE_NAME:t COLUMN_NAME:t COLUMN_POSITION:n DESCEND:t",
        [
            (table.named.owner, _key_name(table), table.named.owner, table.named.name, name, place, "ASC")
            for table in _tables(session)
            for place, name in enumerate(table.key, start=1)
        ],
    )


def _log_groups(session: Viewer) -> Table:
    return made(
        "OWNER:t LOG_GROUP_NAME:t TABLE_NAME:t LOG_GROUP_TYPE:t ALWAYS:t GENERATED:t",
        [
            (
                table.named.owner,
                f"SYS_C{table.object_id}",
                table.named.name,
                "ALL COLUMN LOGGING",
                "ALWAYS",
                "GENERATED NAME",
            )
            for table in _tables(session)
            if table.logs_all_columns
        ],
    )


def _extents(session: Viewer) -> Table:
    return made(
        "OWNER:t SEGMENT_NAME:t PARTITION_NAME:t SEGMENT_TYPE:t TABLESPACE_NAME:t EXTENT_ID:n FILE_ID:n BLOCK_ID:n BYTES:n"
        " BLOCKS:n RELATIVE_FNO:n",
        [
            (
                *(table.named.owner, table.named.name, None, "TABLE", "USERS", extent.number, extent.file),
                *(extent.first_block, extent.blocks * _BLOCK_BYTES, extent.blocks, extent.file),
            )
            for table in _tables(session)
            if not table.is_temporary
            for extent in table.extents
        ],
    )


def _segments(session: Viewer) -> Table:
    rows = []
    for table in _tables(session):
        blocks = sum(extent.blocks for extent in table.extents)
        named = (table.named.owner, table.named.name, None, "TABLE", "USERS")
        rows.append((*named, blocks * _BLOCK_BYTES, blocks, len(table.extents)))
    return made(
        "OWNER:t SEGMENT_NAME:t PARTITION_NAME:t SEGMENT_TYPE:t TABLESPACE_NAME:t BYTES:n BLOCKS:n EXTENTS:n", rows
    )


def _lobs(session: Viewer) -> Table:
    return made(
        "OWNER:t TABLE_NAME:t COLUMN_NAME:t SEGMENT_NAME:t INDEX_NAME:t CHUNK:n IN_ROW:t SECUREFILE:t",
        [
            (
                *(table.named.owner, table.named.name, column.name, f"SYS_LOB{table.object_id:010}C{number:05}$$"),
                *(f"SYS_IL{table.object_id:010}C{number:05}$$", 8_192, "YES", "YES"),
            )
            for table in _tables(session)
            for number, column in enumerate(table.named.columns, start=1)
            if column.type in LOBS
        ],
    )


def _comments(session: Viewer) -> Table:
    rows = [(table.named.owner, table.named.name, "TABLE", table.comment) for table in _tables(session)]
    return made("OWNER:t TABLE_NAME:t TABLE_TYPE:t COMMENTS:t", rows)


def _nothing(heading: str) -> Callable[[Viewer], Table]:
    """A view of things that the model has none of."""
    return lambda _: made(heading, [])


def _names(session: Viewer) -> list[str]:
    owners = {table.named.owner for table in _tables(session)}
    return sorted(owners | {session.user, "SYS", "SYSTEM"})


_VIEWS: Final[dict[str, Callable[[Viewer], Table]]] = {
    "TABLES": _table_rows,
    "ALL_TABLES": _table_rows,
    "TAB_COLUMNS": lambda session: _columns(session, hidden=False),
    "TAB_COLS": lambda session: _columns(session, hidden=True),
    "OBJECTS": _objects,
    "CONSTRAINTS": _constraints,
    "CONS_COLUMNS": _constraint_columns,
    "INDEXES": _indexes,
    "IND_COLUMNS": _index_columns,
    "IND_EXPRESSIONS": _nothing("INDEX_OWNER:t INDEX_NAME:t TABLE_OWNER:t TABLE_NAME:t COLUMN_POSITION:n"),
    "LOG_GROUPS": _log_groups,
    "EXTENTS": _extents,
    "SEGMENTS": _segments,
    "LOBS": _lobs,
    "TAB_COMMENTS": _comments,
    "COL_COMMENTS": _nothing("OWNER:t TABLE_NAME:t COLUMN_NAME:t COMMENTS:t"),
    "TAB_PARTITIONS": _nothing("TABLE_OWNER:t TABLE_NAME:t PARTITION_NAME:t PARTITION_POSITION:n COMPOSITE:t"),
    "TAB_SUBPARTITIONS": _nothing("TABLE_OWNER:t TABLE_NAME:t PARTITION_NAME:t SUBPARTITION_NAME:t"),
    "TAB_IDENTITY_COLS": _nothing("OWNER:t TABLE_NAME:t COLUMN_NAME:t GENERATION_TYPE:t"),
    "VIEWS": _nothing("OWNER:t VIEW_NAME:t TEXT_LENGTH:n"),
    "MVIEWS": _nothing("OWNER:t MVIEW_NAME:t"),
    "SYNONYMS": _nothing("OWNER:t SYNONYM_NAME:t TABLE_OWNER:t TABLE_NAME:t DB_LINK:t"),
    "EXTERNAL_TABLES": _nothing("OWNER:t TABLE_NAME:t"),
    "NESTED_TABLES": _nothing("OWNER:t TABLE_NAME:t PARENT_TABLE_NAME:t"),
    "LOGSTDBY_NOT_UNIQUE": _nothing("OWNER:t TABLE_NAME:t BAD_COLUMN:t"),
    "TYPES": _nothing("OWNER:t TYPE_NAME:t TYPECODE:t"),
    "USERS": lambda session: made("USERNAME:t ACCOUNT_STATUS:t", [(name, "OPEN") for name in _names(session)]),
    "TAB_PRIVS": _nothing("GRANTEE:t OWNER:t TABLE_NAME:t GRANTOR:t PRIVILEGE:t"),
    "SYS_PRIVS": _nothing("GRANTEE:t PRIVILEGE:t ADMIN_OPTION:t"),
    "ROLE_PRIVS": _nothing("GRANTEE:t GRANTED_ROLE:t ADMIN_OPTION:t"),
}
_WITHOUT_SCOPE: Final[dict[str, Callable[[Viewer], Table]]] = {
    "NLS_DATABASE_PARAMETERS": lambda session: made(
        "PARAMETER:t VALUE:t",
        [
            ("NLS_CHARACTERSET", "AL32UTF8"),
            ("NLS_NCHAR_CHARACTERSET", "AL16UTF16"),
            ("NLS_RDBMS_VERSION", "19.0.0.0.0"),
        ],
    ),
    "SESSION_PRIVS": lambda session: made("PRIVILEGE:t", [("CREATE SESSION",), ("LOGMINING",), ("SELECT ANY TABLE",)]),
    "SESSION_ROLES": lambda session: made("ROLE:t", [("SELECT_CATALOG_ROLE",), ("EXECUTE_CATALOG_ROLE",)]),
    "PRODUCT_COMPONENT_VERSION": lambda session: made(
        "PRODUCT:t VERSION:t VERSION_FULL:t STATUS:t",
        [("Oracle Database 19c Enterprise Edition", "19.0.0.0.0", "19.26.0.0.0", "Production")],
    ),
}


def function(name: str, arguments: Sequence[Value], session: Viewer) -> Value:
    """A function's value.

    Raises:
        OracleError: 904, there is none; 8181, the SCN is none; 31603, no such table.
    """
    found = _FUNCTIONS.get(name)
    if found is None:
        raise OracleError(904, f'"{name}": invalid identifier')
    with session.model.lock:
        return found(session, arguments)


def _definition(session: Viewer, arguments: Sequence[Value]) -> str:
    """DBMS_METADATA.GET_DDL of a table."""
    _, name, *owner = arguments
    table = session.model.tables.get((str(owner[0]) if owner else session.schema, str(name)))
    if table is None:
        raise OracleError(31603, f'object "{name!s}" of type TABLE not found')
    columns = [f'\t"{each.name}" {_declared(each)}' for each in table.named.columns if not is_unused(each)]
    if table.key:
        key = ", ".join(f'"{each}"' for each in table.key)
        columns.append(f'\t CONSTRAINT "{_key_name(table)}" PRIMARY KEY ({key}) ENABLE')
    if table.logs_all_columns:
        columns.append("\t SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
    return f"\n  CREATE TABLE {table.named} \n   (" + ", \n".join(columns) + "\n   ) "


def _declared(column: Column) -> str:
    text = type_name(column)
    if column.type is OracleType.NUMBER and column.precision:
        text += f"({column.precision})" if text == "FLOAT" else f"({column.precision},{column.scale})"
    elif column.type is OracleType.NUMBER and column.scale != -127:
        text += f"(*,{column.scale})"
    elif column.type in (OracleType.VARCHAR2, OracleType.CHAR):
        unit = "" if column.is_national else " CHAR" if column.characters else " BYTE"
        text += f"({column.characters or column.size}{unit})"
    elif column.type is OracleType.RAW:
        text += f"({column.size})"
    if column.is_virtual:
        text += f" GENERATED ALWAYS AS {column.default} VIRTUAL"
    elif column.default is not None:
        text += f" DEFAULT {column.default}"
    return text + ("" if column.is_nullable else " NOT NULL ENABLE")


def _at(session: Viewer, arguments: Sequence[Value]) -> datetime:
    """SCN_TO_TIMESTAMP: of the first record from then on."""
    scn = int(Decimal(str(arguments[0])))
    if scn > session.model.scn:
        raise OracleError(8181, "specified number is not a valid system change number")
    return next((row.timestamp for row in session.model.redo if row.scn >= scn), session.model.now)


def _scn_at(session: Viewer, arguments: Sequence[Value]) -> int:
    moment = arguments[0]
    assert isinstance(moment, datetime)
    return max((row.scn for row in session.model.redo if row.timestamp <= moment.replace(tzinfo=None)), default=1)


def _context(session: Viewer, arguments: Sequence[Value]) -> str | None:
    values = {
        "CON_NAME": "ORCLCDB",
        "DB_NAME": "ORCLCDB",
        "CON_ID": "0",
        "SESSION_USER": session.user,
        "CURRENT_SCHEMA": session.schema,
        "CURRENT_USER": session.user,
        "SERVER_HOST": "db1",
        "SID": "1",
        "INSTANCE": "1",
        "DATABASE_ROLE": "PRIMARY",
    }
    return values.get(str(arguments[-1]).upper())


_FUNCTIONS: Final[dict[str, Callable[[Viewer, Sequence[Value]], Value]]] = {
    "DBMS_METADATA_GET_DDL": _definition,
    "SCN_TO_TIMESTAMP": _at,
    "TIMESTAMP_TO_SCN": _scn_at,
    "SYS_CONTEXT": _context,
    "USERENV": _context,
    "NLS_CHARSET_NAME": lambda session, arguments: {number: name for name, number in functions.CHARSETS.items()}.get(
        int(Decimal(str(arguments[0])))
    ),
    "SYSDATE": lambda session, _: session.model.now.replace(microsecond=0),
    "SYSTIMESTAMP": lambda session, _: session.model.now.replace(tzinfo=UTC),
    "USER": lambda session, _: session.user,
    "DBMS_FLASHBACK_GET_SYSTEM_CHANGE_NUMBER": lambda session, _: session.model.scn,
}
