"""CREATE, ALTER, DROP, TRUNCATE, RENAME and COMMENT. Each is a transaction of its own, and a record of redo with its text.

Limits: columns have names without quotes inside; no partitions; a table's storage clauses are passed over.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Final, Protocol

from libs.stand_ins.oracle.answers import Column, OracleError, OracleType
from libs.stand_ins.oracle.blocks import split
from libs.stand_ins.oracle.changes import default_of
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.tables import ModelTable, Named, Row, Version

_NAME: Final = r'(?:"[^"]+"|[A-Za-z][\w$#]*)'
_TABLE: Final = rf"(?P<table>{_NAME}(?:\.{_NAME})?)"
_COLUMN: Final = re.compile(
    rf"\s*(?P<name>{_NAME})\s+(?P<type>TIMESTAMP\s*(?:\(\d+\))?\s*WITH\s+(?P<local>LOCAL\s+)?TIME\s+ZONE"
    r"|INTERVAL\s+YEAR\s*(?:\(\d+\))?\s*TO\s+MONTH|INTERVAL\s+DAY\s*(?:\(\d+\))?\s*TO\s+SECOND\s*(?:\(\d+\))?"
    r"|LONG\s+RAW|DOUBLE\s+PRECISION|\w+)\s*(?P<sizes>\([^)]*\))?(?P<rest>.*)\Z",
    re.IGNORECASE | re.DOTALL,
)
_KEY: Final = re.compile(r"\s*(?:CONSTRAINT\s+\S+\s+)?PRIMARY\s+KEY\s*\(([^)]*)\)", re.IGNORECASE)
_CONSTRAINT: Final = re.compile(r"\s*(?:CONSTRAINT|UNIQUE|CHECK|FOREIGN|PRIMARY|SUPPLEMENTAL)\b", re.IGNORECASE)
_DEFAULT: Final = re.compile(r"\bDEFAULT\s+('(?:[^']|'')*'|[^\s,]+)", re.IGNORECASE)
_VIRTUAL: Final = re.compile(r"\bAS\s*(\(.*\))\s*(?:VIRTUAL)?", re.IGNORECASE | re.DOTALL)
_FIXED: Final = {
    "DATE": Column("", OracleType.DATE, 7),
    "CLOB": Column("", OracleType.CLOB, 4_000),
    "NCLOB": Column("", OracleType.CLOB, 4_000, is_national=True),
    "BLOB": Column("", OracleType.BLOB, 4_000),
    "LONG": Column("", OracleType.LONG, 0),
    "BINARY_FLOAT": Column("", OracleType.BINARY_FLOAT, 4),
    "BINARY_DOUBLE": Column("", OracleType.BINARY_DOUBLE, 8),
    "INTEGER": Column("", OracleType.NUMBER, 22, 0, 0),
    "INT": Column("", OracleType.NUMBER, 22, 0, 0),
    "SMALLINT": Column("", OracleType.NUMBER, 22, 0, 0),
    "ROWID": Column("", OracleType.ROWID, 10),
}
_TEXTS: Final = frozenset({"VARCHAR2", "VARCHAR", "CHAR", "NVARCHAR2", "NCHAR"})


class Definer(Protocol):
    """The session that defines."""

    model: Model
    user: str
    schema: str

    def named(self, owner: str | None, name: str) -> ModelTable:
        """A table, or ``OracleError``."""
        ...


def define(statement: str, session: Definer) -> None:
    """Carry a statement out.

    Raises:
        OracleError: 900, it is none of those above; 942 and 955, the table is not there, or is.
    """
    for pattern, carry_out in _STATEMENTS:
        found = pattern.match(statement)
        if found is not None:
            with session.model.lock:
                carry_out(statement, found, session)
            return
    raise OracleError(900, "invalid SQL statement")


def _create(statement: str, found: re.Match[str], session: Definer) -> None:
    owner, name = _named(found["table"], session)
    if (owner, name) in session.model.tables:
        raise OracleError(955, "name is already used by an existing object")
    parts = split(_inside(statement[found.end() - 1 :]), ",")
    columns = [column(part) for part in parts if not _CONSTRAINT.match(part)]
    key = [plain(each) for part in parts if (whole := _KEY.match(part)) for each in whole[1].split(",")]
    key = key or [
        each.name for part, each in zip(parts, columns, strict=False) if re.search(r"\bPRIMARY\s+KEY\b", part, re.I)
    ]
    columns = [dataclasses.replace(each, is_nullable=each.is_nullable and each.name not in key) for each in columns]
    table = session.model.create(owner, name, columns, key)
    table.made_at = session.model.now.replace(microsecond=0)
    table.is_temporary = re.search(r"\bTEMPORARY\b", found[0], re.IGNORECASE) is not None
    table.changed_at_scn = session.model.begin(session.user).write_ddl(table, statement)
    table.changed_at = session.model.now.replace(microsecond=0)


def _drop(statement: str, found: re.Match[str], session: Definer) -> None:
    table = _free(found["table"], session)
    purges = re.search(r"\bPURGE\b", statement, re.IGNORECASE)
    text = statement if purges else f'{statement} AS "BIN${table.object_id:024X}==$0"'
    session.model.begin(session.user).write_ddl(table, text)
    del session.model.tables[table.named.owner, table.named.name]


def _truncate(statement: str, found: re.Match[str], session: Definer) -> None:
    table = _free(found["table"], session)
    scn = session.model.begin(session.user).write_ddl(table, statement)
    table.data_object_id = session.model.new_object_id()
    for row_id, versions in table.versions.items():
        if versions[-1].row is not None:
            table.versions[row_id] = [*versions, Version(scn, None)]
    table.changed_at_scn = scn
    table.changed_at = session.model.now.replace(microsecond=0)


def _rename(statement: str, found: re.Match[str], session: Definer) -> None:
    table = _free(found["table"], session)
    session.model.begin(session.user).write_ddl(table, statement)
    owner, before = table.named.owner, table.named.name
    table.named = table.named._replace(name=plain(found["to"]))
    session.model.tables[owner, table.named.name] = session.model.tables.pop((owner, before))


def _comment(statement: str, found: re.Match[str], session: Definer) -> None:
    table = session.named(*_named(found["table"], session))
    session.model.begin(session.user).write_ddl(table, statement)
    table.comment = found["text"].replace("''", "'")


def _alter(statement: str, found: re.Match[str], session: Definer) -> None:
    rest = statement[found.end() :].strip()
    if (supplemental := re.match(r"(ADD|DROP)\s+SUPPLEMENTAL\s+LOG\s+DATA", rest, re.IGNORECASE)) is not None:
        table = session.named(*_named(found["table"], session))
        session.model.begin(session.user).write_ddl(table, statement)
        table.logs_all_columns = supplemental[1].upper() == "ADD"
        return
    table = _free(found["table"], session)
    if (key := re.match(r"ADD\s+(.*)", rest, re.IGNORECASE | re.DOTALL)) and (whole := _KEY.match(key[1])):
        session.model.begin(session.user).write_ddl(table, statement)
        table.key = tuple(plain(each) for each in whole[1].split(","))
        return
    columns, change_row = _altered(table.named, rest)
    scn = session.model.begin(session.user).write_ddl(table, statement)
    table.named = table.named._replace(columns=tuple(columns))
    table.object_version += 1
    table.changed_at_scn = scn
    table.changed_at = session.model.now.replace(microsecond=0)
    for row_id, versions in table.versions.items():
        table.versions[row_id] = [
            version if version.row is None else Version(version.scn, change_row(version.row)) for version in versions
        ]


_RowChange = Callable[[Row], Row]


def _altered(named: Named, rest: str) -> tuple[list[Column], _RowChange]:
    """The columns after one clause of ALTER TABLE, and a row's way there."""
    columns = list(named.columns)
    if found := re.match(rf"RENAME\s+COLUMN\s+({_NAME})\s+TO\s+({_NAME})", rest, re.IGNORECASE):
        before, after = plain(found[1]), plain(found[2])
        renamed = [dataclasses.replace(each, name=after) if each.name == before else each for each in columns]
        return renamed, lambda row: {after if name == before else name: value for name, value in row.items()}
    if found := re.match(rf"DROP\s+(?:COLUMN\s+)?\(?\s*({_NAME}(?:\s*,\s*{_NAME})*)", rest, re.IGNORECASE):
        gone = {plain(each) for each in found[1].split(",")}
        return [each for each in columns if each.name not in gone], lambda row: {
            name: value for name, value in row.items() if name not in gone
        }
    if found := re.match(rf"SET\s+UNUSED\s+(?:COLUMN\s+)?\(?\s*({_NAME})", rest, re.IGNORECASE):
        before = plain(found[1])
        number = 1 + [each.name for each in columns].index(before)
        after = f"SYS_C{number:05}_26010100:00:00$"
        hidden = [
            dataclasses.replace(each, name=after, is_hidden=True, is_nullable=True) if each.name == before else each
            for each in columns
        ]
        return hidden, lambda row: {after if name == before else name: value for name, value in row.items()}
    if found := re.match(r"MODIFY\s+(.*)", rest, re.IGNORECASE | re.DOTALL):
        changed = {each.name: each for each in map(column, split(_inside(found[1]), ","))}
        return [_modified(each, changed.get(each.name)) for each in columns], lambda row: row
    if found := re.match(r"ADD\s+(?:COLUMN\s+)?(.*)", rest, re.IGNORECASE | re.DOTALL):
        added = [column(part) for part in split(_inside(found[1]), ",")]
        defaults = {each.name: default_of(each) for each in added}
        return [*columns, *added], lambda row: {**row, **defaults}
    raise OracleError(900, f"invalid SQL statement: {rest}")


def _modified(before: Column, after: Column | None) -> Column:
    """MODIFY keeps everything that it does not name."""
    if after is None:
        return before
    return dataclasses.replace(
        after, default=after.default or before.default, is_nullable=after.is_nullable and before.is_nullable
    )


def _nothing(statement: str, found: re.Match[str], session: Definer) -> None:
    """Indexes, users, sequences: nothing here depends on them."""


def _statement(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


_STATEMENTS: Final = (
    (_statement(rf"CREATE\s+(?:GLOBAL\s+TEMPORARY\s+)?TABLE\s+{_TABLE}\s*\("), _create),
    (_statement(rf"DROP\s+TABLE\s+{_TABLE}"), _drop),
    (_statement(rf"TRUNCATE\s+TABLE\s+{_TABLE}"), _truncate),
    (_statement(rf"RENAME\s+{_TABLE}\s+TO\s+(?P<to>{_NAME})"), _rename),
    (_statement(rf"ALTER\s+TABLE\s+{_TABLE}\s+RENAME\s+TO\s+(?P<to>{_NAME})"), _rename),
    (_statement(rf"ALTER\s+TABLE\s+{_TABLE}\s+"), _alter),
    (_statement(rf"COMMENT\s+ON\s+TABLE\s+{_TABLE}\s+IS\s+'(?P<text>(?:[^']|'')*)'"), _comment),
    (
        _statement(r"(?:CREATE|DROP)\s+(?:UNIQUE\s+)?(?:INDEX|USER|SEQUENCE)\b|ALTER\s+(?:DATABASE|USER)\b|COMMENT\b"),
        _nothing,
    ),
)


def column(text: str) -> Column:
    """A column's definition.

    Raises:
        OracleError: 902, its type is none of those that the model has.
    """
    found = _COLUMN.match(text)
    if found is None:
        raise OracleError(902, f"invalid datatype: {text}")
    kind = " ".join(found["type"].upper().split())
    sizes = [each.strip() for each in (found["sizes"] or "()")[1:-1].split(",") if each.strip()]
    made = _typed(re.sub(r"\s*\(\d+\)", "", kind), sizes, re.findall(r"\((\d+)\)", kind))
    rest = found["rest"]
    default, virtual = _DEFAULT.search(rest), _VIRTUAL.search(rest)
    return dataclasses.replace(
        made,
        name=plain(found["name"]),
        is_nullable=re.search(r"\bNOT\s+NULL\b|\bPRIMARY\s+KEY\b", rest, re.IGNORECASE) is None,
        default=virtual[1] if virtual else default[1] if default else None,
        is_virtual=virtual is not None,
        is_hidden=re.search(r"\bINVISIBLE\b", rest, re.IGNORECASE) is not None,
    )


def _typed(kind: str, sizes: list[str], inner: list[str]) -> Column:
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in ("NUMBER", "NUMERIC", "DECIMAL", "DEC"):
        if not sizes:
            return Column("", OracleType.NUMBER, 22, 0, -127 if kind == "NUMBER" else 0)
        return Column(
            "", OracleType.NUMBER, 22, 0 if sizes[0] == "*" else int(sizes[0]), int(sizes[1]) if len(sizes) > 1 else 0
        )
    if kind in ("FLOAT", "REAL", "DOUBLE PRECISION"):
        bits = 63 if kind == "REAL" else int(sizes[0]) if sizes else 126
        return Column("", OracleType.NUMBER, 22, bits, -127)
    if kind in _TEXTS:
        return _text(kind, sizes[0] if sizes else "1")
    if kind == "RAW":
        return Column("", OracleType.RAW, int(sizes[0]))
    if kind == "TIMESTAMP":
        return Column("", OracleType.TIMESTAMP, 11, scale=int(sizes[0]) if sizes else 6)
    if kind.startswith("TIMESTAMP"):
        is_local = "LOCAL" in kind
        zoned = OracleType.TIMESTAMP_LTZ if is_local else OracleType.TIMESTAMP_TZ
        return Column("", zoned, 11 if is_local else 13, scale=int(inner[0]) if inner else 6)
    if kind.startswith("INTERVAL YEAR"):
        return Column("", OracleType.INTERVAL_YM, 5, precision=int(inner[0]) if inner else 2)
    if kind.startswith("INTERVAL DAY"):
        fraction = int(sizes[0]) if sizes else int(inner[1]) if len(inner) > 1 else 6
        return Column("", OracleType.INTERVAL_DS, 11, precision=int(inner[0]) if inner else 2, scale=fraction)
    raise OracleError(902, f"invalid datatype: {kind}")


def _text(kind: str, size: str) -> Column:
    is_national = kind.startswith("N")
    length = int(size.split()[0])
    in_characters = is_national or size.upper().endswith("CHAR")
    bytes_each = (2 if is_national else 4) if in_characters else 1
    code = OracleType.CHAR if kind.endswith("NCHAR") or kind == "CHAR" else OracleType.VARCHAR2
    most = 2_000 if code is OracleType.CHAR else 4_000
    return Column(
        "", code, min(length * bytes_each, most), is_national=is_national, characters=length if in_characters else None
    )


def plain(name: str) -> str:
    """A name as the catalogue has it."""
    name = name.strip()
    return name[1:-1] if name.startswith('"') else name.upper()


def _named(text: str, session: Definer) -> tuple[str, str]:
    parts = re.findall(_NAME, text)
    return (plain(parts[0]), plain(parts[1])) if len(parts) > 1 else (session.schema, plain(parts[0]))


def _free(text: str, session: Definer) -> ModelTable:
    """A table that no open transaction has changed."""
    table = session.named(*_named(text, session))
    if table.pending:
        raise OracleError(54, "resource busy and acquire with NOWAIT specified or timeout expired")
    return table


def _inside(text: str) -> str:
    """The content of the parentheses that a text begins with; the text where there are none."""
    text = text.strip()
    if not text.startswith("("):
        return text
    depth = 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return text[1:at]
    raise OracleError(907, "missing right parenthesis")
