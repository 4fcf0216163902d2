"""A DEFAULT that a statement writes, as the text that ``logical.canonical_default`` brings to its form.

A literal's meaning depends on the column: in a column of text a number is its digits, bytes are of the column's character set
unless an introducer says another, and an ENUM's member is found as its collation compares (seen on MySQL 9.7,
``tests/integration/test_defaults.py`` asks the server).
"""

import datetime
import re
import unicodedata
import zoneinfo
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from libs.mysql.charsets import python_codec, storable, text_of_bytes
from libs.mysql.column_type import MysqlType, is_character_type, set_text
from libs.mysql.ddl_syntax import SYSTEM_ZONE, DdlNotUnderstood, DefaultKind, DefaultValue, SentIn
from libs.mysql.default_forms import has_printed_values, is_kept, is_known_form
from libs.mysql.json_document import written_document
from libs.mysql.logical import canonical_default
from libs.mysql.sql_lexer import bytes_of_literal

_WITHOUT_LITERAL: Final = frozenset(
    f"{size}{kind}" for size in ("tiny", "", "medium", "long") for kind in ("text", "blob")
)
_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_MOMENTS: Final = ("date", "datetime", "timestamp")
_OFFSET: Final = re.compile(r":\d\d(?:\.\d*)?[+-]\d\d?:\d\d$")
_CANONICAL: Final = re.compile(r"(?!0000)\d{4}-(?!00)\d\d-(?!00)\d\d \d\d:\d\d:\d\d(?:\.\d+)?")
_BYTE_TYPES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


def default_text(
    mysql_type: MysqlType, default: DefaultValue | None, *, charset: str, collation: str, sent_in: SentIn
) -> str | None:
    """None where there is no default, NULL, or an expression that is not constant, or whose value only the server knows.

    Raises DdlNotUnderstood for a literal that only the server reads: its own text of the definition has the value.
    """
    if default is None or default.kind in (DefaultKind.NULL, DefaultKind.COMPUTED):
        return None
    if default.kind is DefaultKind.CURRENT_TIMESTAMP:
        return default.text
    if not has_printed_values(mysql_type):
        return None
    if not is_known_form(mysql_type, default):
        if default.is_expression:
            return None
        raise DdlNotUnderstood(f"a DEFAULT in a form that only the server reads as {mysql_type.name}", ())
    text = _read(mysql_type, default, charset=charset, collation=collation, sent_in=sent_in)
    return None if text is None or (default.is_expression and not is_kept(mysql_type, text)) else text


def _read(mysql_type: MysqlType, default: DefaultValue, *, charset: str, collation: str, sent_in: SentIn) -> str | None:
    if mysql_type.name == "json":  # an expression; of a number the server keeps more than its text says
        is_text = default.kind is DefaultKind.TEXT
        return written_document(_text(default, "utf8mb4", sent_in)) if is_text else None
    if mysql_type.name in _WITHOUT_LITERAL and not default.is_expression:
        return None  # without strict mode the server takes an empty one, and leaves it out
    if mysql_type.name in _BYTE_TYPES:
        return f"x'{_bytes(default, sent_in).hex()}'"
    if mysql_type.members and default.is_expression and default.kind is DefaultKind.NUMBER:
        return _numbered(mysql_type, default.text)
    if is_character_type(mysql_type):
        is_number = default.kind is DefaultKind.NUMBER
        # It is rounded to the text's width; and of a double the bytes of its digits may be taken, for characters of two bytes.
        is_too_long = is_number and charset != "ucs2" and len(_digits(default.text)) > (mysql_type.length or 1 << 32)
        if is_too_long or (is_number and charset == "ucs2" and "e" in default.text.lower()):
            if default.is_expression:
                return None
            raise DdlNotUnderstood("a number is the DEFAULT of a text that only the server makes of it", ())
        return _fitted(mysql_type, storable(_text(default, charset, sent_in), charset), collation)
    if default.kind is DefaultKind.NUMBER and "e" in default.text.lower() and mysql_type.name in _INTEGERS:
        return f"{float(default.text):.0f}"  # a double is rounded to even, an exact number away from zero
    if default.kind is DefaultKind.TEXT and mysql_type.name == "bit":
        return f"x'{_bytes(default, sent_in).hex()}'"
    if default.kind is DefaultKind.TEXT and mysql_type.name in _MOMENTS and _OFFSET.search(default.text):
        if default.is_expression:
            return None  # it is kept as it is written, and computed for each row
        raise DdlNotUnderstood("a DEFAULT with an offset stands in the session's time zone", ())
    if mysql_type.name == "timestamp" and not default.is_expression:
        return _in_utc(canonical_default(mysql_type, default.text), sent_in.time_zone)
    if default.kind is DefaultKind.TEXT and mysql_type.name == "year":
        # A string of one to three zeros is 2000, the number 0 is 0000 (manual, "2-Digit Years in Dates").
        return "2000" if default.text.strip() in ("0", "00", "000") else default.text
    is_exact = default.kind is DefaultKind.NUMBER and "e" not in default.text.lower()
    if is_exact and mysql_type.name in ("float", "double"):
        return default.text.lstrip("-") if not Decimal(default.text) else default.text  # a DECIMAL's zero has no sign
    return default.text


def _in_utc(text: str | None, time_zone: str) -> str | None:
    """A TIMESTAMP's literal, as SHOW CREATE has it in a session in UTC."""
    if text is None or time_zone in ("", "+00:00", "UTC") or not _CANONICAL.fullmatch(text):
        return text
    if time_zone == SYSTEM_ZONE:
        raise DdlNotUnderstood("a TIMESTAMP's DEFAULT stands in the server's own time zone", ())
    moment = datetime.datetime.fromisoformat(f"{text[:19]}{time_zone if time_zone[0] in '+-' else ''}")
    if moment.tzinfo is None:
        try:
            moment = moment.replace(tzinfo=zoneinfo.ZoneInfo(time_zone))
        except (ValueError, zoneinfo.ZoneInfoNotFoundError):
            raise DdlNotUnderstood("a TIMESTAMP's DEFAULT stands in a time zone that is not known here", ()) from None
    return f"{moment.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}{text[19:]}"


def _bytes(default: DefaultValue, sent_in: SentIn) -> bytes:
    match default.kind:
        case DefaultKind.BYTES:
            return bytes_of_literal(default.text) or b""
        case DefaultKind.NUMBER:
            return _digits(default.text).encode()
        case _:
            is_converted = default.charset is None and sent_in.connection != "binary"
            return _encoded(default.text, sent_in.connection if is_converted else sent_in.client)


def text_as_sent(text: str, charset: str, sent_in: SentIn) -> str:
    """A string that a statement writes, as a column of ``charset`` gets it: the session's connection charset lies between."""
    if sent_in.connection == "binary":
        return text_of_bytes(_encoded(text, sent_in.client), charset)
    return text if text.isascii() else storable(text, sent_in.connection)


def _text(default: DefaultValue, charset: str, sent_in: SentIn) -> str:
    introduced = default.charset if default.charset != "binary" else None
    match default.kind:
        case DefaultKind.BYTES:
            return text_of_bytes(bytes_of_literal(default.text) or b"", introduced or charset)
        case DefaultKind.NUMBER:
            return _digits(default.text)
        case _ if default.charset is not None:
            return text_of_bytes(_encoded(default.text, sent_in.client), introduced or charset)
        case _:
            return text_as_sent(default.text, charset, sent_in)


def _encoded(text: str, charset: str) -> bytes:
    """As the client sent it."""
    return text.encode(python_codec(charset) if charset != "binary" else "utf-8", errors="replace")


def _digits(number: str) -> str:
    """A number as text: an exact one as it is written, a double in MySQL's form."""
    if "e" not in number.lower():
        sign, digits = ("-", number[1:]) if number.startswith("-") else ("", number)
        whole, point, fraction = digits.partition(".")
        whole = whole.lstrip("0") or "0"
        is_zero = not whole.strip("0") and not fraction.strip("0")
        return ("" if is_zero else sign) + whole + (point + fraction if fraction else "")
    value = float(number)
    if value == 0:
        return "0"
    exponent = Decimal(repr(value)).adjusted()
    if -16 < exponent < 15:
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    mantissa = f"{Decimal(repr(value)).scaleb(-exponent).normalize():f}"
    return f"{mantissa}e{exponent}"


def _fitted(mysql_type: MysqlType, text: str, collation: str) -> str:
    match mysql_type.name:
        case "char":
            return text.rstrip(" ")
        case "enum":
            return _member(mysql_type.members, text, collation)
        case "set":
            return ",".join(_member(mysql_type.members, each, collation) for each in text.split(","))
        case _:
            return text


def _member(members: Sequence[str], text: str, collation: str) -> str:
    """The member that a text is to the column's collation; nearly all are blind to case, many to accents too."""
    for read in (str, str.casefold, _without_accents):
        if collation.endswith(("_bin", "_cs")) and read is not str:
            break
        for member in members:
            if read(member.rstrip(" ")) == read(text.rstrip(" ")):
                return member
    return text


def _numbered(mysql_type: MysqlType, number: str) -> str | None:
    """The members that a computed number stands for: of an ENUM its place, of a SET a bit for each; None: it names none."""
    if not number.isdigit():
        return None
    value, members = int(number), mysql_type.members
    if mysql_type.name == "enum":
        return members[value - 1] if 0 < value <= len(members) else None
    chosen = [member for place, member in enumerate(members) if value >> place & 1]
    return set_text(chosen) if value < 1 << len(members) else None


def _without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)).casefold()
