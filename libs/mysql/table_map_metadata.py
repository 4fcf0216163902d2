"""A table map's facts about its columns beyond their widths, compared with the schema that is held of the table.

A statement that was read wrongly, or never seen, often leaves a table of the same widths: a renamed column, an ENUM with other
members, ``INT`` for ``INT UNSIGNED``, a text in another character set. The table map says: with ``binlog_row_metadata=FULL``
names, members and key of the table, by default (MINIMAL) which numbers are unsigned, and the texts' collations. It is looked at
once for each layout of a table: it costs a row nothing.

Layout: MySQL source ``libs/mysql/binlog/event/rows_event.h``, ``Table_map_event::Optional_metadata_field_type``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from libs.errors import SchemaContradiction
from libs.mysql.binlog_events import read_packed
from libs.mysql.charsets import known_charset_of_collation_id, python_codec
from libs.mysql.column_type import parse_column_type
from libs.mysql.row_key import row_key
from libs.types.table import Column, TableSchema

_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _COLUMN_NAME, _SET_MEMBERS, _ENUM_MEMBERS = 1, 2, 3, 4, 5, 6
_SIMPLE_KEY, _KEY_WITH_PREFIX, _MEMBERS_DEFAULT_CHARSET, _MEMBERS_COLUMN_CHARSET = 8, 9, 10, 11
_NUMERIC: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year"})

_BYTE_TYPES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector")
"""Among the texts of a table map, with the collation 63: a VECTOR too, a GEOMETRY or JSON not (seen on MySQL 9.7)."""
_TEXT_TYPES: Final = (*_BYTE_TYPES, "char", "varchar", "tinytext", "text", "mediumtext", "longtext")


@dataclass(frozen=True, slots=True)
class Collations:
    """Numbers of collations, of some columns in their order."""

    default: int | None = None
    """Of a column that ``others`` lacks."""
    others: Mapping[int, int] = field(default_factory=dict)
    """By place among these columns."""

    def of(self, place: int) -> int | None:
        return self.others.get(place, self.default)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The facts of one table map; None: nothing about this."""

    unsigned: bytes | None = None
    """A bit for each numeric column, the highest first."""
    names: tuple[str, ...] | None = None
    set_members: tuple[tuple[bytes, ...], ...] | None = None
    """Of each SET column, in its own character set."""
    enum_members: tuple[tuple[bytes, ...], ...] | None = None
    key: tuple[int, ...] | None = None
    """Places of the primary key's columns, in key order."""
    text_collations: Collations = Collations()
    """Of texts and bytes; 63 is that of bytes."""
    member_collations: Collations = Collations()
    """Of ENUM and SET columns."""


def parse_facts(metadata: bytes) -> TableFacts:
    """The fields after a table map's null bitmap, each type, length and value; those of no use here are passed over."""
    found: dict[int, bytes] = {}
    place = 0
    while place < len(metadata):
        kind = metadata[place]
        length, begin = read_packed(metadata, place + 1)
        found[kind] = metadata[begin : begin + length]
        place = begin + length
    key = found.get(_SIMPLE_KEY)
    prefixed = found.get(_KEY_WITH_PREFIX)
    if prefixed is not None:
        places: tuple[int, ...] | None = tuple(_numbers(prefixed))[::2]
    else:
        places = tuple(_numbers(key)) if key is not None else None
    return TableFacts(
        unsigned=found.get(_SIGNEDNESS),
        names=tuple(text.decode("utf-8") for text in _texts(found[_COLUMN_NAME])) if _COLUMN_NAME in found else None,
        set_members=tuple(_members(found[_SET_MEMBERS])) if _SET_MEMBERS in found else None,
        enum_members=tuple(_members(found[_ENUM_MEMBERS])) if _ENUM_MEMBERS in found else None,
        key=places,
        text_collations=_collations(found.get(_DEFAULT_CHARSET), found.get(_COLUMN_CHARSET)),
        member_collations=_collations(found.get(_MEMBERS_DEFAULT_CHARSET), found.get(_MEMBERS_COLUMN_CHARSET)),
    )


def _collations(default: bytes | None, by_column: bytes | None) -> Collations:
    """A default and the places of others, or a number for each column."""
    if default is not None:
        first, *pairs = _numbers(default)
        return Collations(first, dict(zip(pairs[::2], pairs[1::2], strict=True)))
    return Collations(None, dict(enumerate(_numbers(by_column or b""))))


def _numbers(data: bytes) -> Iterator[int]:
    place = 0
    while place < len(data):
        number, place = read_packed(data, place)
        yield number


def _texts(data: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        length, place = read_packed(data, place)
        yield data[place : place + length]
        place += length


def _members(data: bytes) -> Iterator[tuple[bytes, ...]]:
    """Of each column: how many there are, then each with its length."""
    place = 0
    while place < len(data):
        count, place = read_packed(data, place)
        members = []
        for _ in range(count):
            length, place = read_packed(data, place)
            members.append(data[place : place + length])
            place += length
        yield tuple(members)


def require_agreement(schema: TableSchema, facts: TableFacts) -> None:
    """Raises SchemaContradiction where the log says something else of a column than ``schema``, which has as many columns."""
    if facts.names is not None:
        for column, name in zip(schema.columns, facts.names, strict=True):
            _require(column.name.lower() == name.lower(), schema, column, f"calls it {name!r}")
    if facts.unsigned is not None:
        numeric = [column for column in schema.columns if parse_column_type(column.source_type).name in _NUMERIC]
        for place, column in enumerate(numeric):
            is_unsigned = bool(facts.unsigned[place >> 3] & 0x80 >> (place & 7))
            declared = parse_column_type(column.source_type)
            agrees = declared.name == "year" or declared.is_unsigned == is_unsigned
            _require(agrees, schema, column, "has it " + ("unsigned" if is_unsigned else "signed"))
    _require_charsets(schema, _TEXT_TYPES, facts.text_collations)
    _require_charsets(schema, ("enum", "set"), facts.member_collations)
    _require_members(schema, "enum", facts.enum_members)
    _require_members(schema, "set", facts.set_members)
    if facts.key is not None and facts.names is not None:
        names = [schema.columns[place].name for place in facts.key]
        own = row_key(schema)
        if tuple(names) != own:
            raise SchemaContradiction(
                f"{schema.table_id}: the log has the primary key ({', '.join(names)}) where version {schema.version} of the "
                f"schema has ({', '.join(own)}); re-snapshot the table"
            )


def _require_charsets(schema: TableSchema, types: Collection[str], collations: Collations) -> None:
    columns = [column for column in schema.columns if parse_column_type(column.source_type).name in types]
    if collations.default is None and len(collations.others) != len(columns):
        return  # a server that counts another type among them: nothing is known of which is whose
    for place, column in enumerate(columns):
        collation = collations.of(place)
        charset = None if collation is None else known_charset_of_collation_id(collation)
        is_of_bytes = parse_column_type(column.source_type).name in _BYTE_TYPES
        held = "binary" if is_of_bytes else column.charset or charset
        if column.is_generated:
            continue  # of its expression: 63 for AS (NULL)
        _require(charset in (None, held), schema, column, f"has it in the character set {charset}")


def _require_members(schema: TableSchema, kind: str, logged: tuple[tuple[bytes, ...], ...] | None) -> None:
    if logged is None:
        return
    columns = [column for column in schema.columns if parse_column_type(column.source_type).name == kind]
    for column, members in zip(columns, logged, strict=True):
        read = tuple(map(_decoder(column), members))
        agrees = read == parse_column_type(column.source_type).members
        if "\ufffd" in "".join(read):
            continue  # bytes that no definition shows as they are
        _require(agrees, schema, column, f"gives the {kind} other members")


def _decoder(column: Column) -> Callable[[bytes], str]:
    if column.charset == "binary":  # a definition prints its bytes as UTF-8
        return lambda text: text.decode("utf-8", "replace")
    codec = python_codec(column.charset or "utf8mb4")
    return lambda text: text.decode(codec, "replace")


def _require(agrees: bool, schema: TableSchema, column: Column, what: str) -> None:
    if not agrees:
        raise SchemaContradiction(
            f"{schema.table_id}.{column.name}: the log {what} where version {schema.version} of the schema has "
            f"{column.name} {column.source_type}{f' {column.charset}' if column.charset else ''}; re-snapshot the table"
        )
