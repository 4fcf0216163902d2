"""Whether a change of a column's type may have changed the values that are stored, of which the log has no row event.

The server converts every row as it carries out an ALTER, and logs the statement alone (manual, "ALTER TABLE Statement",
"Type Conversion in Assignment"). In strict mode a value that does not fit stops the ALTER, so that only rounding and
trailing spaces are left.
"""

from typing import Final

from libs.mysql.column_type import MysqlType, bytes_per_character, is_character_type, parse_column_type
from libs.types.table import Column

_INTEGER_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_EXACT_IN_DOUBLE: Final = 53
_TEXT_CHARACTERS: Final = {"tinytext": 255, "text": 65_535, "mediumtext": 2**24 - 1, "longtext": 2**32 - 1}
_BLOB_BYTES: Final = {"tinyblob": 255, "blob": 65_535, "mediumblob": 2**24 - 1, "longblob": 2**32 - 1}


def may_change_values(old: Column, new: Column, *, is_strict: bool) -> bool:
    """Whether rows of before may hold other values once ``old`` is ``new``."""
    before, after = parse_column_type(old.source_type), parse_column_type(new.source_type)
    if old.is_optional and not new.is_optional and not is_strict:
        return True  # NULL becomes the type's zero
    if new.is_auto_increment and not old.is_auto_increment:
        return True  # 0 and NULL become the next numbers
    if old.is_generated or new.is_generated:
        return old.is_generated != new.is_generated or before != after
    if before == after:
        return old.charset != new.charset and not is_strict and new.charset not in ("utf8mb4", None)
    if before.name in _INTEGER_BITS:
        return _of_integer(before, after, is_strict)
    if before.name == "decimal":
        return _of_decimal(before, after, is_strict)
    if before.name == after.name and before.name in ("time", "datetime", "timestamp"):
        return after.fractional_digits < before.fractional_digits
    if (before.name, after.name) == ("date", "datetime"):
        return False
    if before.name == after.name == "bit":
        return (after.length or 1) < (before.length or 1) and not is_strict
    if before.name in ("enum", "set"):
        return _of_members(before, after, is_strict)
    if is_character_type(before) and is_character_type(after) and after.name not in ("enum", "set"):
        return _of_text(before, after, old.charset, new.charset, is_strict)
    if before.name in ("varbinary", *_BLOB_BYTES) and after.name in ("varbinary", *_BLOB_BYTES):
        return _bytes(after) < _bytes(before) and not is_strict
    return True


def _of_integer(before: MysqlType, after: MysqlType, is_strict: bool) -> bool:
    bits = _INTEGER_BITS[before.name]
    if after.name in _INTEGER_BITS:
        wider = _INTEGER_BITS[after.name]
        is_same = before.is_unsigned == after.is_unsigned
        fits = wider >= bits if is_same else before.is_unsigned and wider > bits
        return not fits and not is_strict
    if after.name == "decimal":
        digits = len(str(2**bits))
        fits = (after.precision or 0) - (after.scale or 0) >= digits and (before.is_unsigned or not after.is_unsigned)
        return not fits and not is_strict
    if after.name == "double" and after.scale is None:
        return bits > _EXACT_IN_DOUBLE or (after.is_unsigned and not before.is_unsigned and not is_strict)
    return before.is_zerofill or not _holds_digits(after, len(str(-(1 << bits - 1))), is_strict)


def _of_decimal(before: MysqlType, after: MysqlType, is_strict: bool) -> bool:
    whole = (before.precision or 0) - (before.scale or 0)
    if after.name == "decimal":
        if (after.scale or 0) < (before.scale or 0):
            return True  # it rounds in any mode
        return not is_strict and (
            (after.precision or 0) - (after.scale or 0) < whole or (after.is_unsigned and not before.is_unsigned)
        )
    if after.name in _INTEGER_BITS:
        return bool(before.scale) or not is_strict
    return not _holds_digits(after, (before.precision or 0) + len("-0."), is_strict)


def _holds_digits(text: MysqlType, characters: int, is_strict: bool) -> bool:
    """Whether a text of that type holds a number whole; in strict mode one that does not fit stops the ALTER."""
    if text.name not in ("varchar", "char"):
        return text.name in _TEXT_CHARACTERS
    return is_strict or (text.length or 1) >= characters


def _of_members(before: MysqlType, after: MysqlType, is_strict: bool) -> bool:
    if after.name == before.name == "set":  # whose text has the members in their order
        return tuple(each for each in after.members if each in before.members) != before.members
    if after.name == before.name:
        return not set(before.members) <= set(after.members)
    return after.name not in ("varchar", *_TEXT_CHARACTERS) or not is_strict


def _of_text(
    before: MysqlType, after: MysqlType, old_charset: str | None, new_charset: str | None, is_strict: bool
) -> bool:
    if after.name == "char" and before.name != "char":
        return True  # trailing spaces go
    if _characters(after, new_charset) < _characters(before, old_charset):
        return True  # trailing spaces go in any mode, more of the text without strict mode
    return old_charset != new_charset and new_charset != "utf8mb4" and not is_strict


def _characters(mysql_type: MysqlType, charset: str | None) -> int:
    if mysql_type.name in _TEXT_CHARACTERS:
        return _TEXT_CHARACTERS[mysql_type.name] // bytes_per_character(charset or "utf8mb4")
    return mysql_type.length or 1


def _bytes(mysql_type: MysqlType) -> int:
    return _BLOB_BYTES.get(mysql_type.name, mysql_type.length or 0)
