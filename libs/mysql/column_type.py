"""MySQL column types as records: the parts of ``decimal(12,2) unsigned``, and the one canonical text for it.

Read by the row codec (how are this column's bytes laid out), by ``logical`` (which values has it) and by ``ddl``.
The snapshot meets a type as ``information_schema.COLUMNS.COLUMN_TYPE`` has it, the log as a person wrote it
(``INTEGER(11)``, ``DEC``, ``NATIONAL VARCHAR(9)``). Both become the same ``MysqlType``, whose ``str`` is the text
that MySQL 8.0.19 and later show for it; so a column is equal however it was learned.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from libs.errors import PipelineHalted
from libs.mysql.charsets import text_of_bytes
from libs.mysql.sql_lexer import DEFAULT_SQL_MODE, SqlMode, TokenKind, TokenReader, UnreadableSql, bytes_of_literal


class UnknownColumnType(PipelineHalted):
    """A column has a type that this release does not know; the message names it."""


@dataclass(frozen=True, slots=True)
class MysqlType:
    """A column's type, synonyms resolved and defaults filled in."""

    name: str
    """Canonical and lower case: ``int`` for INTEGER, ``decimal`` for NUMERIC, ``geomcollection`` for
    GEOMETRYCOLLECTION."""
    length: int | None = None
    """Characters of (var)char, bytes of (var)binary, bits of bit, entries of vector, display width of
    ``tinyint(1)`` and of zerofill integers; else None."""
    precision: int | None = None
    """Digits of a decimal; also of a float or double declared as ``float(M,D)``."""
    scale: int | None = None
    """Digits after the point, where there is a precision."""
    fractional_digits: int = 0
    """0 to 6, of time, datetime and timestamp."""
    is_unsigned: bool = False
    is_zerofill: bool = False
    members: tuple[str, ...] = ()
    """Of enum and set, in order."""

    def __str__(self) -> str:
        """The type as ``SHOW CREATE TABLE`` of MySQL 8.0.19 and later writes it."""
        text = self.name
        if self.members:
            text += "(" + ",".join(map(quoted_member, self.members)) + ")"
        elif self.precision is not None:
            text += f"({self.precision},{self.scale})"
        elif self.length is not None:
            text += f"({self.length})"
        elif self.fractional_digits:
            text += f"({self.fractional_digits})"
        return text + " unsigned" * self.is_unsigned + " zerofill" * self.is_zerofill


def set_text(members: Iterable[str]) -> str:
    """A SET's value that has ``members``, which are in the order of their declaration.

    As the server does it (``Field_set::val_str``), no comma follows an empty text: ``''`` and ``x`` are ``x``.
    """
    text = ""
    for member in members:
        text += f",{member}" if text else member
    return text


def quoted_member(member: str) -> str:
    """A member of an enum or set as SHOW CREATE TABLE quotes it."""
    return "'" + member.replace("\\", "\\\\").replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class WrittenType:
    """A type where it is written, with the facts about the column that the same words state."""

    mysql_type: MysqlType
    charset: str | None = None
    """Named by the type itself: CHARACTER SET, or implied by NCHAR, ASCII, UNICODE."""
    collation: str | None = None
    wants_binary_collation: bool = False
    is_serial: bool = False
    """SERIAL: also NOT NULL AUTO_INCREMENT UNIQUE."""
    text_length: int | None = None
    """M of TEXT(M): the smallest text type that holds M characters of the column's charset."""


# Display width of zerofill integers that name none (as SHOW CREATE TABLE prints it).
_ZEROFILL_WIDTH: Final = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}
_TEXT_SIZES: Final = (("tinytext", 2**8), ("text", 2**16), ("mediumtext", 2**24), ("longtext", 2**32))

_VARCHAR_LIMIT: Final = 2**16

_SYNONYMS: Final = {
    "INTEGER": "int", "INT1": "tinyint", "INT2": "smallint", "INT3": "mediumint", "INT4": "int", "INT8": "bigint",
    "MIDDLEINT": "mediumint", "DEC": "decimal", "NUMERIC": "decimal", "FIXED": "decimal", "FLOAT4": "float",
    "FLOAT8": "double", "REAL": "double", "CHARACTER": "char", "VARCHARACTER": "varchar", "NCHAR": "char",
    "NVARCHAR": "varchar", "LONG": "mediumtext", "GEOMETRYCOLLECTION": "geomcollection",
}  # fmt: skip

_INTEGERS: Final = frozenset(_ZEROFILL_WIDTH)
_FRACTIONAL: Final = frozenset({"time", "datetime", "timestamp"})
_TEXTS: Final = frozenset({"tinytext", "text", "mediumtext", "longtext"})
_BLOBS: Final = frozenset({"tinyblob", "blob", "mediumblob", "longblob"})
_GEOMETRIES: Final = frozenset(
    {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection"}
)
_PLAIN: Final = frozenset({"date", "json", *_GEOMETRIES})
_CHARACTER_TYPES: Final = frozenset({"char", "varchar", "enum", "set", *_TEXTS})
_PREFIXABLE: Final = frozenset({"char", "varchar", "binary", "varbinary", *_TEXTS, *_BLOBS, *_GEOMETRIES})
_KNOWN: Final = frozenset(
    {"decimal", "float", "double", "bit", "year", "binary", "varbinary", "vector"}
    | _INTEGERS | _FRACTIONAL | _BLOBS | _PLAIN | _CHARACTER_TYPES
)  # fmt: skip


@functools.lru_cache(maxsize=10_000)
def parse_column_type(source_type: str, sql_mode: SqlMode = DEFAULT_SQL_MODE) -> MysqlType:
    """The type that a text names, as ``SHOW CREATE TABLE``, COLUMN_TYPE or a statement writes it.

    >>> parse_column_type("NUMERIC UNSIGNED")
    MysqlType(name='decimal', length=None, precision=10, scale=0, fractional_digits=0, is_unsigned=True, \
is_zerofill=False, members=())

    Raises:
        UnknownColumnType: this release does not know the type; leave the table out, or upgrade.
    """
    try:
        tokens = TokenReader(source_type, sql_mode)
        written = read_column_type(tokens)
        if not tokens.at_end():
            raise tokens.unreadable("the end of the type")
    except UnreadableSql as error:
        raise UnknownColumnType(f"{source_type!r} is no column type that is known here: {error}") from error
    if written.text_length is not None:
        return sized_text(written.text_length, bytes_each=1)
    return with_members_of_bytes(written.mysql_type, written.charset or "utf8mb4")


def is_character_type(mysql_type: MysqlType) -> bool:
    """The type has a character set."""
    return mysql_type.name in _CHARACTER_TYPES


def sized_text(characters: int, *, bytes_each: int) -> MysqlType:
    """The type that MySQL makes of ``TEXT(characters)``: the smallest that holds so many.

    Manual, "The BLOB and TEXT Types".
    """
    needed = characters * bytes_each
    return MysqlType(next((name for name, limit in _TEXT_SIZES if needed < limit), "longtext"))


_WIDE_CHARSETS: Final = {
    "utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4,
    "utf8mb3": 3, "ujis": 3, "eucjpms": 3,
    "ucs2": 2, "big5": 2, "cp932": 2, "euckr": 2, "gb2312": 2, "gbk": 2, "sjis": 2,
}  # fmt: skip


def bytes_per_character(charset: str) -> int:
    """The most bytes that a character of the charset takes (``SHOW CHARACTER SET``, Maxlen)."""
    return _WIDE_CHARSETS.get(charset, 1)


def converted_text(mysql_type: MysqlType, *, old_charset: str, new_charset: str) -> MysqlType:
    """The type that CONVERT TO CHARACTER SET makes of a character type: large enough for as many characters.

    A varchar too long for its new charset becomes a text (manual, "ALTER TABLE Statement", Changing the Character Set).
    """
    limit = dict(_TEXT_SIZES).get(mysql_type.name)
    if limit is not None and mysql_type.name != "longtext":
        characters = (limit - 1) // bytes_per_character(old_charset)
        return sized_text(characters, bytes_each=bytes_per_character(new_charset))
    return fitted_varchar(mysql_type, new_charset)


def fitted_varchar(mysql_type: MysqlType, charset: str) -> MysqlType:
    """The type itself, or the text that MySQL makes of a varchar of more than 65,535 bytes."""
    length, bytes_each = mysql_type.length or 0, bytes_per_character(charset)
    if mysql_type.name != "varchar" or length * bytes_each < _VARCHAR_LIMIT:
        return mysql_type
    return sized_text(length, bytes_each=bytes_each)


def fitted_varbinary(mysql_type: MysqlType) -> MysqlType:
    """The type itself, or the blob that MySQL makes of a varbinary of more than 65,535 bytes."""
    if mysql_type.name != "varbinary" or (mysql_type.length or 0) < _VARCHAR_LIMIT:
        return mysql_type
    return MysqlType(sized_text(mysql_type.length or 0, bytes_each=1).name.replace("text", "blob"))


def is_member_of_bytes(member: str) -> bool:
    """It was written as hex or bits, and stands for its bytes."""
    return member.startswith(_OF_BYTES)


def with_members_of_bytes(mysql_type: MysqlType, charset: str) -> MysqlType:
    """The type with those members read that were written as hex or bits: their bytes are of the column's character set."""
    if not any(member.startswith(_OF_BYTES) for member in mysql_type.members):
        return mysql_type
    members = [
        text_of_bytes(bytes.fromhex(member[1:]), charset).rstrip(" ") if member.startswith(_OF_BYTES) else member
        for member in mysql_type.members
    ]
    return replace(mysql_type, members=tuple(members))


def fitted_prefix(mysql_type: MysqlType, characters: int) -> int:
    """How much of a column a key part ``column(characters)`` covers; 0 for all of it (manual, "Column Indexes")."""
    takes_prefix = mysql_type.name in _PREFIXABLE
    is_whole = mysql_type.length is not None and mysql_type.length <= characters
    return characters if takes_prefix and not is_whole else 0


def with_binary_charset(mysql_type: MysqlType) -> MysqlType:
    """The type that MySQL makes of a character type of CHARACTER SET binary; enum and set stay.

    Manual, "String Data Type Syntax".
    """
    names = {"char": "binary", "varchar": "varbinary"}
    name = names.get(mysql_type.name) or mysql_type.name
    if name in _TEXTS:
        name = name.replace("text", "blob")
    return MysqlType(name, mysql_type.length, members=mysql_type.members)


def read_column_type(tokens: TokenReader) -> WrittenType:
    """The type that stands next in a statement, its attributes included (manual, chapter "Data Types").

    Raises:
        UnreadableSql: the text is no type.
    """
    name, implied_charset = _type_name(tokens)
    match name:
        case "serial":
            return WrittenType(MysqlType("bigint", is_unsigned=True), is_serial=True)
        case "boolean":
            return WrittenType(MysqlType("tinyint", length=1))
        case "enum" | "set":
            return _with_charset(tokens, MysqlType(name, members=_members(tokens)), None)
        case "text" if tokens.at("("):
            return _with_charset(tokens, MysqlType("text"), implied_charset, text_length=_numbers(tokens)[0])
        case "blob" if tokens.at("("):
            sized = sized_text(_numbers(tokens)[0], bytes_each=1)
            return WrittenType(MysqlType(sized.name.replace("text", "blob")))
        case _ if name in _CHARACTER_TYPES:
            return _with_charset(tokens, _lengthened(tokens, name), implied_charset)
        case _ if name in _INTEGERS | {"decimal", "float", "double"}:
            return WrittenType(_number(tokens, name))
        case _ if name in _FRACTIONAL:
            numbers = _numbers(tokens)
            return WrittenType(MysqlType(name, fractional_digits=numbers[0] if numbers else 0))
        case "year":
            _numbers(tokens)  # YEAR(4) is YEAR
            while tokens.accept_any("UNSIGNED", "SIGNED", "ZEROFILL"):
                pass
            return WrittenType(MysqlType("year"))
        case _:
            return WrittenType(_lengthened(tokens, name))


def _type_name(tokens: TokenReader) -> tuple[str, str | None]:
    """Canonical name of the type that stands next, and the charset that its spelling implies."""
    if tokens.current.kind is not TokenKind.WORD:
        raise tokens.unreadable("a column type")
    if tokens.accept("NATIONAL"):
        word = tokens.accept_any("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER")
        if not word:
            raise tokens.unreadable("CHAR or VARCHAR")
        return _varying(tokens, _SYNONYMS.get(word, word.lower())), "utf8mb3"
    if tokens.at_any("SERIAL", "BOOL", "BOOLEAN"):
        return ("serial" if tokens.advance().keyword == "SERIAL" else "boolean"), None
    if tokens.accept("LONG"):
        return _long_type(tokens), None
    word = tokens.current.keyword
    name = _SYNONYMS.get(word, word.lower())
    if name not in _KNOWN:
        raise tokens.unreadable("a column type")
    tokens.advance()
    if word == "REAL" and tokens.sql_mode.real_as_float:
        return "float", None
    if name == "double":
        tokens.accept("PRECISION")
    if name == "char":
        if tokens.accept("BYTE"):
            return "binary", None
        name = _varying(tokens, name)
    return name, "utf8mb3" if word in ("NCHAR", "NVARCHAR") else None


def _varying(tokens: TokenReader, name: str) -> str:
    """``CHAR VARYING`` and ``NCHAR VARCHAR`` are varchar."""
    return "varchar" if tokens.accept_any("VARYING", "VARCHAR", "VARCHARACTER") else name


def _long_type(tokens: TokenReader) -> str:
    """LONG, LONG VARCHAR, LONG CHAR VARYING are mediumtext; LONG VARBINARY is mediumblob."""
    if tokens.accept("VARBINARY"):
        return "mediumblob"
    if tokens.accept_any("CHAR", "CHARACTER"):
        tokens.expect("VARYING")
    else:
        tokens.accept_any("VARCHAR", "VARCHARACTER")
    return "mediumtext"


def _number(tokens: TokenReader, name: str) -> MysqlType:
    numbers = _numbers(tokens)
    signs = []
    while word := tokens.accept_any("UNSIGNED", "SIGNED", "ZEROFILL"):
        signs.append(word)
    is_zerofill = "ZEROFILL" in signs
    is_unsigned = is_zerofill or "UNSIGNED" in signs  # manual, "Numeric Data Type Syntax"
    if name in _INTEGERS:
        width = numbers[0] if numbers else None
        if is_zerofill:
            width = width or _ZEROFILL_WIDTH[name]
        elif (name, width, is_unsigned) != ("tinyint", 1, False):
            width = None  # a display width says nothing about the values; MySQL 8.0.19 no longer shows it
        return MysqlType(name, width, is_unsigned=is_unsigned, is_zerofill=is_zerofill)
    precision, scale = _precision_and_scale(name, numbers)
    if name == "float" and len(numbers) == 1:
        name = "float" if numbers[0] <= 24 else "double"  # manual, "Floating-Point Types"
    return MysqlType(name, None, precision, scale, is_unsigned=is_unsigned, is_zerofill=is_zerofill)


def _precision_and_scale(name: str, numbers: tuple[int, ...]) -> tuple[int | None, int | None]:
    if name == "decimal":
        # DECIMAL, DECIMAL(0) and DECIMAL(0,0) mean DECIMAL(10) (manual, "Fixed-Point Types").
        precision, scale = (*numbers, 0, 0)[:2]
        return precision or 10, scale
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (None, None)


_DEFAULT_LENGTH: Final = {"char": 1, "binary": 1, "bit": 1, "vector": 2048}


def _lengthened(tokens: TokenReader, name: str) -> MysqlType:
    numbers = _numbers(tokens)
    length = numbers[0] if numbers else _DEFAULT_LENGTH.get(name)
    if name == "bit":
        length = length or 1
    return MysqlType(name, length)


def _with_charset(
    tokens: TokenReader, mysql_type: MysqlType, implied_charset: str | None, *, text_length: int | None = None
) -> WrittenType:
    """The character type with the attributes that may follow it, in any order."""
    charset, collation, wants_binary_collation = implied_charset, None, False
    while True:
        if tokens.accept("CHARACTER", "SET") or tokens.accept_any("CHARSET") or tokens.accept("CHAR", "SET"):
            charset = _charset_name(tokens)
        elif tokens.at("COLLATE"):
            tokens.advance()
            collation = _charset_name(tokens)
        elif tokens.accept("ASCII"):
            charset = "latin1"
        elif tokens.accept("UNICODE"):
            charset = "ucs2"
        elif tokens.accept("BYTE"):
            charset = "binary"
        elif tokens.accept("BINARY"):
            wants_binary_collation = True
        else:
            return WrittenType(mysql_type, charset, collation, wants_binary_collation, text_length=text_length)


def _charset_name(tokens: TokenReader) -> str:
    name = tokens.string() if tokens.current.kind is TokenKind.STRING else tokens.name()
    return name.lower()


def _numbers(tokens: TokenReader) -> tuple[int, ...]:
    """``(M)`` or ``(M,D)`` if it follows."""
    if not tokens.accept("("):
        return ()
    numbers = [tokens.integer()]
    if tokens.accept(","):
        numbers.append(tokens.integer())
    tokens.expect(")")
    return tuple(numbers)


def _members(tokens: TokenReader) -> tuple[str, ...]:
    tokens.expect("(")
    members = [_member(tokens)]
    while tokens.accept(","):
        members.append(_member(tokens))
    tokens.expect(")")
    return tuple(members)


_OF_BYTES: Final = "\ud800"
"""Begins a member of which the bytes alone are known, in hex: no text that was decoded has it."""


def _member(tokens: TokenReader) -> str:
    """A member; MySQL deletes its trailing spaces (manual, "The ENUM Type")."""
    if tokens.current.kind is TokenKind.BYTES:
        return _OF_BYTES + (bytes_of_literal(tokens.advance().value) or b"").hex()
    return tokens.string().rstrip(" ")
