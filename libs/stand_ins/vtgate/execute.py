"""Statements through vtgate: clients' questions about the topology, and reads and writes routed by the sharding column.

A write goes to the shards that its values hash to, a statement without a value for the sharding column to all of them.
One statement is one transaction on each shard, as with Vitess's autocommit; there are no sessions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pymysql
import sqlglot
from sqlglot import exp

from libs.stand_ins.vtgate.fields import table_names, vitess_type
from libs.stand_ins.vtgate.rules import row_of
from libs.stand_ins.vtgate.topology import CELL, Refused, Shard, Topology
from protos.vitess.query_pb2 import Field, QueryResult, Type
from protos.vitess.topodata_pb2 import TabletType

_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_TABLET_COLUMNS: Final = (
    "Cell",
    "Keyspace",
    "Shard",
    "TabletType",
    "State",
    "Alias",
    "Hostname",
    "PrimaryTermStartTime",
)


def execute(topology: Topology, target: str, sql: str) -> QueryResult:
    """The result of one statement. ``target``: a session's, "keyspace", "keyspace:shard" or with "@replica"; or empty.

    Raises Refused: as vtgate would answer.
    """
    statement = _bare(sql)
    if re.fullmatch(r"SHOW\s+VITESS_TABLETS", statement, re.IGNORECASE):
        return _result(_TABLET_COLUMNS, _tablets(topology))
    shards = {
        keyspace.name: [shard.name for shard in topology.serving(keyspace.name)] for keyspace in topology.keyspaces
    }
    shown = answer_about(sql, target, shards, _TablesOf(topology, _target(target)[1]), _ExecutedIn(topology))
    if shown is not None:
        return shown
    keyspace, shard_name = _target(target)
    if shard_name:
        return _run(topology.shard(keyspace, shard_name), statement)
    return _routed(topology, keyspace, statement)


def answer_about(
    sql: str,
    target: str,
    shards: Mapping[str, Sequence[str]],
    tables: Mapping[str, Sequence[str]],
    executed: Mapping[str, Mapping[str, str]],
) -> QueryResult | None:
    """The answer to SHOW VITESS_SHARDS, SHOW DATABASES, SHOW TABLES or SHOW GLOBAL GTID_EXECUTED; None: it is none of these.

    ``shards``, ``tables`` and ``executed`` (positions by shard) are by keyspace. Raises Refused: there is no such keyspace.
    """
    statement = _bare(sql)
    if shown := re.fullmatch(r"SHOW\s+VITESS_SHARDS(?:\s+LIKE\s+'([^']*)')?", statement, re.IGNORECASE):
        names = [f"{keyspace}/{shard}" for keyspace in sorted(shards) for shard in shards[keyspace]]
        return _result(("Shards",), [(name,) for name in names if _is_like(name, shown[1])])
    if re.fullmatch(r"SHOW\s+(DATABASES|KEYSPACES|VITESS_KEYSPACES)", statement, re.IGNORECASE):
        return _result(("Database",), [(keyspace,) for keyspace in sorted(shards)])
    if shown := re.fullmatch(r"SHOW\s+TABLES(?:\s+FROM\s+`?([^`\s]+)`?)?", statement, re.IGNORECASE):
        keyspace = shown[1] or _target(target)[0]
        if keyspace not in shards:
            raise Refused("NOT_FOUND", f"VT05003: unknown database '{keyspace}' in vschema")
        return _result((f"Tables_in_{keyspace}",), [(table,) for table in tables[keyspace]])
    if shown := re.fullmatch(r"SHOW\s+GLOBAL\s+GTID_EXECUTED(?:\s+FROM\s+`?([^`\s]+)`?)?", statement, re.IGNORECASE):
        # Vitess documentation, "MySQL Query Language Extensions".
        keyspace = shown[1] or _target(target)[0]
        rows = [(keyspace, at.removeprefix("MySQL56/"), shard) for shard, at in executed[keyspace].items()]
        return _result(("db_name", "gtid_executed", "shard"), rows)
    return None


def _bare(sql: str) -> str:
    """Without comments (clients send directives in them) and the semicolon."""
    return _COMMENT.sub("", sql).strip().rstrip(";").strip()


def _target(target: str) -> tuple[str, str]:
    """Keyspace and shard, each perhaps empty."""
    keyspace, _, shard = target.partition("@")[0].partition(":")
    return keyspace, shard


class _TablesOf(dict[str, Sequence[str]]):
    """A keyspace's tables, asked of MySQL when they are wanted; those of one shard, or of the first."""

    def __init__(self, topology: Topology, shard_name: str) -> None:
        super().__init__()
        self._topology = topology
        self._shard_name = shard_name

    def __missing__(self, keyspace: str) -> Sequence[str]:
        topology, name = self._topology, self._shard_name
        tablet = (topology.shard(keyspace, name) if name else topology.serving(keyspace)[0]).primary
        connection = tablet.connect()
        try:
            return table_names(connection, tablet.database)
        finally:
            connection.close()


class _ExecutedIn(dict[str, Mapping[str, str]]):
    """Where each serving shard's primary of a keyspace stands, asked of MySQL when it is wanted."""

    def __init__(self, topology: Topology) -> None:
        super().__init__()
        self._topology = topology

    def __missing__(self, keyspace: str) -> Mapping[str, str]:
        return {shard.name: shard.primary.position() for shard in self._topology.serving(keyspace)}


def _serving(topology: Topology) -> Iterable[Shard]:
    return (shard for keyspace in topology.keyspaces for shard in topology.serving(keyspace.name))


def _is_like(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    expression = "".join(".*" if part == "%" else "." if part == "_" else re.escape(part) for part in pattern)
    return re.fullmatch(expression, name) is not None


def _tablets(topology: Topology) -> list[tuple[str, ...]]:
    return [
        (
            CELL,
            shard.keyspace,
            shard.name,
            TabletType.Name(tablet.tablet_type),
            "SERVING",
            tablet.alias,
            tablet.host,
            "",
        )
        for shard in _serving(topology)
        for tablet in shard.tablets
    ]


def _routed(topology: Topology, keyspace: str, statement: str) -> QueryResult:
    if not keyspace:
        if len(topology.keyspaces) != 1:
            raise Refused("INVALID_ARGUMENT", "VT09005: no database selected: use keyspace<:shard><@type>")
        keyspace = topology.keyspaces[0].name
    try:
        parsed = sqlglot.parse_one(statement, read="mysql")
    except sqlglot.ParseError as error:
        raise Refused("INVALID_ARGUMENT", f"syntax error: {error}") from error
    if isinstance(parsed, exp.Insert) and isinstance(parsed.expression, exp.Values):
        parts = [
            _run(shard, part.sql(dialect="mysql")) for shard, part in _split_insert(topology, keyspace, parsed).items()
        ]
    else:
        shards = _concerned(topology, keyspace, parsed)
        parts = [_run(shard, statement) for shard in shards]
    whole = parts[0]
    for part in parts[1:]:
        whole.rows.extend(part.rows)
        whole.rows_affected += part.rows_affected
    return whole


def _split_insert(topology: Topology, keyspace: str, insert: exp.Insert) -> dict[Shard, exp.Insert]:
    """The rows of an INSERT … VALUES by the shard that they belong to."""
    if not isinstance(insert.this, exp.Schema):
        raise Refused(
            "INVALID_ARGUMENT",
            "VT09004: INSERT should contain column list or the table should have authoritative columns in vschema",
        )
    table = insert.this.this.name
    columns = [column.name for column in insert.this.expressions]
    vindex_column = topology.keyspace(keyspace).vindex_column(table)
    is_sharded = len(topology.serving(keyspace)) > 1
    if is_sharded and vindex_column not in columns:
        raise Refused(
            "INVALID_ARGUMENT", f"VT09003: INSERT query does not have primary vindex column '{vindex_column}'"
        )
    rows: dict[Shard, list[exp.Expr]] = {}
    for row in insert.expression.expressions:
        if is_sharded:
            value = int(row.expressions[columns.index(vindex_column)].sql())
            shard = topology.shard_of(keyspace, value)
        else:
            shard = topology.serving(keyspace)[0]
        rows.setdefault(shard, []).append(row)
    split = {}
    for shard, own in rows.items():
        part = insert.copy()
        part.set("expression", exp.Values(expressions=[row.copy() for row in own]))
        split[shard] = part
    return split


def _concerned(topology: Topology, keyspace: str, statement: exp.Expr) -> Sequence[Shard]:
    """The shard of the sharding column's value in the WHERE; without one, all."""
    shards = topology.serving(keyspace)
    table = statement.find(exp.Table)
    where = statement.args.get("where")
    if table is None or where is None or len(shards) == 1:
        return shards
    column = topology.keyspace(keyspace).vindex_column(table.name)
    for equal in where.find_all(exp.EQ):
        if isinstance(equal.left, exp.Column) and equal.left.name == column and where.find(exp.Or) is None:
            return (topology.shard_of(keyspace, int(equal.right.sql())),)
    return shards


def _run(shard: Shard, statement: str) -> QueryResult:
    connection = shard.primary.connect()
    connection.decoders = {}  # values stay as MySQL printed them
    try:
        with connection.cursor() as cursor:
            affected = cursor.execute(statement)
            described = getattr(getattr(cursor, "_result", None), "fields", None) or ()  # a write's result has none
            fields = [
                Field(name=packet.name, type=vitess_type(packet.type_code, packet.flags), charset=packet.charsetnr)
                for packet in described
            ]
            rows = [row_of([_text(value) for value in row]) for row in cursor.fetchall()]
            return QueryResult(fields=fields, rows=rows, rows_affected=affected, insert_id=cursor.lastrowid or 0)
    except pymysql.Error as error:
        code, text = error.args[0], error.args[-1]
        raise Refused("UNKNOWN", f"target: {shard.keyspace}.{shard.name}.primary: {text} (errno {code})") from error
    finally:
        connection.close()


def _text(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()


def _result(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> QueryResult:
    return QueryResult(
        fields=[Field(name=name, type=Type.VARCHAR, charset=255) for name in columns],
        rows=[row_of([value.encode() for value in row]) for row in rows],
        rows_affected=len(rows),
    )
