"""Names in MySQL statements (MySQL manual, "Schema Object Names")."""

from typing import Final

from libs.types.table import TableId

_WITHOUT_LOWER_CASE: Final = (
    (0x220, 0x220), (0x23A, 0x37F), (0x3CF, 0x3D8), (0x3F4, 0x3FF), (0x48A, 0x48A), (0x4C0, 0x4C0), (0x4C5, 0x4C5),
    (0x4C9, 0x4C9), (0x4CD, 0x4CD), (0x4F6, 0x4F6), (0x4FA, 0x52E), (0x10A0, 0x1CBF), (0x1E9E, 0x1E9E), (0x1EFA, 0x1EFE),
    (0x2132, 0x2132), (0x2183, 0x2183), (0x2C00, 0xA7F5),
)  # fmt: skip
"""Characters that MySQL's old tables have no lower case for, and others that have none (seen on 9.7, by LOWER in utf8mb3)."""


def quote_identifier(name: str) -> str:
    """``name`` as a statement may hold it, with any characters.

    >>> quote_identifier("odd`name")
    '`odd``name`'
    """
    return "`" + name.replace("`", "``") + "`"


def quote_table(table_id: TableId) -> str:
    """The table's full name as a statement may hold it.

    >>> quote_table(TableId(database="shop", table="orders"))
    '`shop`.`orders`'
    """
    return f"{quote_identifier(table_id.database)}.{quote_identifier(table_id.table)}"


def in_lower_case(name: str) -> str:
    """``name`` as MySQL compares names of columns, and of tables where it takes no notice of their case.

    It goes by character, where Python looks at the word's end, too.

    >>> in_lower_case("ΑΣ"), in_lower_case("İd")
    ('ασ', 'id')
    """
    return name.lower() if name.isascii() else "".join(map(_lower, name))


def _lower(character: str) -> str:
    number = ord(character)
    if any(first <= number <= last for first, last in _WITHOUT_LOWER_CASE):
        return character
    return character.lower()[0]
