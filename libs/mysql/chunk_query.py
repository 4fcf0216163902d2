"""SELECTs that read a table chunk by chunk along a key, in the order in which the server itself compares.

A place in the key is the values of its columns as the text protocol printed ``key_list``. Given back as literals they stand
exactly where ORDER BY put the row, under any collation, so the server does all comparing; here only the literals are
written. Each printed form is exact: a FLOAT or DOUBLE has all its digits, a text has the bytes of its own charset, and an ENUM
has its index, because an empty text may be a member or an invalid value. An ENUM sorts by its index, and MySQL uses an index of
the table for a list of them alone.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from libs.mysql.column_type import parse_column_type
from libs.mysql.identifiers import quote_identifier, quote_table
from libs.mysql.row_key import row_key
from libs.mysql.text_row import checksum_expression, row_cells, select_list, selected, stored_codec
from libs.types.table import Column, TableSchema

KeyPlace = bytes
"""The printed values of a key's columns, packed; b"": before the first row."""

_NUMBERS: Final = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"))
_MOMENTS: Final = frozenset(("date", "time", "datetime", "timestamp"))
_TEXTS: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))
_BYTES: Final = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_COMPARED: Final = _NUMBERS | _MOMENTS | _TEXTS | _BYTES | {"float", "double", "bit", "enum"}
_FORM: Final = 1
"""Of places. An earlier release kept others, without a number in front."""


def pack_key(printed: Sequence[bytes | None]) -> KeyPlace:
    """A place that a checkpoint can hold. Raises ValueError for NULL: a key has none."""
    if None in printed:
        raise ValueError("a key column is NULL")
    return msgspec.msgpack.encode((_FORM, *printed))


def unpack_key(place: KeyPlace) -> tuple[bytes, ...]:
    """The values that ``pack_key`` packed; none of a place that an earlier release kept, whose values had other forms."""
    form, *printed = msgspec.msgpack.decode(place, type=tuple[int | bytes, ...]) or (None,)
    return tuple(value for value in printed if isinstance(value, bytes)) if form == _FORM else ()


def can_order_by(schema: TableSchema, key: Sequence[str]) -> bool:
    """Whether a table can be read chunk by chunk along the columns ``key``."""
    return bool(key) and all(parse_column_type(schema.column(name).source_type).name in _COMPARED for name in key)


def snapshot_key(schema: TableSchema, surrogate: str = "") -> tuple[str, ...]:
    """The columns along which a table is read: its key, or the surrogate key with the key after it. A table without a key is
    read along the one that ``key_columns`` chose, where none of its columns may be NULL.

    The key makes a surrogate unique: rows that share its value would else have to be read in one chunk.

    Raises:
        ValueError: the table has no such column, or cannot be read along it; the message names the columns to choose from.
    """
    own = row_key(schema)
    if not surrogate and not own and not any(schema.column(name).is_optional for name in schema.key):
        own = schema.key  # whether it is a key the source's document alone says; the copy is counted at its end
    if not surrogate:
        if not can_order_by(schema, own):
            raise ValueError(f"{schema.table_id} has no key to read it along; name a unique column as surrogate-key")
        return own
    columns = {column.name: column for column in schema.columns}
    if surrogate not in columns:
        raise ValueError(f"surrogate-key: {schema.table_id} has no column {surrogate!r}; it has {', '.join(columns)}")
    if columns[surrogate].is_optional:
        raise ValueError(f"surrogate-key: {schema.table_id}.{surrogate} may be NULL; name a NOT NULL column")
    key: tuple[str, ...] = (surrogate,)
    if not is_unique_key(schema, key):
        key = (surrogate, *(name for name in own if name != surrogate))
    if not can_order_by(schema, key):
        raise ValueError(f"surrogate-key: {schema.table_id} cannot be ordered by {', '.join(key)}")
    return key


def places_changed(before: TableSchema, after: TableSchema, surrogate: str = "") -> bool:
    """Places in a table mean something else since a DDL. A text's collation is not part of a schema, so of a text they may."""
    try:
        old, new = snapshot_key(before, surrogate), snapshot_key(after, surrogate)
    except ValueError:
        return True
    return old != new or any(
        before.column(name).source_type != after.column(name).source_type
        or parse_column_type(after.column(name).source_type).name in _TEXTS
        for name in new
    )


def is_unique_key(schema: TableSchema, key: Sequence[str]) -> bool:
    """No two rows have the same values in the columns ``key``."""
    own = row_key(schema)
    if own and set(own) <= set(key):
        return True
    return any(
        index.is_unique and index.columns and set(index.columns) <= set(key) and not any(index.prefix_lengths)
        for index in schema.indexes
    )


def chunk_statement(
    schema: TableSchema,
    select_list: str,
    key: Sequence[str],
    *,
    behind: KeyPlace = b"",
    until: KeyPlace = b"",
    condition: str = "",
    limit: int,
    table: str = "",
) -> str:
    """The first ``limit`` rows (0: all) after one place and up to another, b"" meaning the table's ends, that meet the SQL
    ``condition``. A place may hold the first values of a key alone: after it means after all rows that share them.

    Without a ``key`` in no order; ``table``: SQL to read from instead of the table itself.
    """
    order = ", ".join(quote_identifier(name) for name in key)
    tail = (f" ORDER BY {order}" if order else "") + (f" LIMIT {limit}" if limit else "")
    between = _between(schema, key, behind, until, condition)
    return _statement(schema, key, select_list, between, tail, table=table)


def count_statement(
    schema: TableSchema,
    key: Sequence[str],
    *,
    behind: KeyPlace = b"",
    until: KeyPlace = b"",
    condition: str = "",
    table: str = "",
    limit_ms: int,
) -> str:
    """How many rows ``chunk_statement`` gives without a limit. MySQL ends it with an error after ``limit_ms``."""
    counted = f"/*+ MAX_EXECUTION_TIME({limit_ms}) */ COUNT(*)"
    return _statement(schema, key, counted, _between(schema, key, behind, until, condition), "", table=table)


def sum_statement(
    schema: TableSchema,
    key: Sequence[str],
    *,
    behind: KeyPlace = b"",
    until: KeyPlace = b"",
) -> str:
    """How many rows ``chunk_statement`` gives without a limit, and the sum of their checksums."""
    summed = f"COUNT(*), COALESCE(SUM({checksum_expression(schema)}), 0)"
    return _statement(schema, key, summed, _between(schema, key, behind, until, ""), "")


def last_key_statement(
    schema: TableSchema,
    key: Sequence[str],
    *,
    behind: KeyPlace = b"",
    until: KeyPlace = b"",
    condition: str = "",
    nth: int = 0,
) -> str:
    """The key of the last of those rows, where a snapshot that begins now will end; or of the ``nth`` one, from 1."""
    names = [quote_identifier(name) for name in key]
    tail = (
        f" ORDER BY {', '.join(names)} LIMIT {nth - 1}, 1"
        if nth
        else f" ORDER BY {', '.join(f'{name} DESC' for name in names)} LIMIT 1"
    )
    return _statement(schema, key, key_list(schema, key), _between(schema, key, behind, until, condition), tail)


def key_list(schema: TableSchema, key: Sequence[str]) -> str:
    """The columns of a key to SELECT, each in the form that ``chunk_statement`` takes back."""
    return ", ".join(
        f"CAST({quote_identifier(name)} AS UNSIGNED)" if is_enum(schema.column(name)) else selected(schema.column(name))
        for name in key
    )


def chunk_list(schema: TableSchema, key: Sequence[str]) -> str:
    """``select_list``, and ``key_list`` after it where the two have a column in different forms."""
    return f"{select_list(schema)}, {key_list(schema, key)}" if _has_own_form(schema, key) else select_list(schema)


def place_of(schema: TableSchema, key: Sequence[str], packet: bytes) -> KeyPlace:
    """Where a row of ``SELECT chunk_list(schema, key)`` stands in the key. Raises ValueError for NULL."""
    cells = row_cells(packet)
    if _has_own_form(schema, key):
        return pack_key(cells[len(schema.columns) :])
    by_name = dict(zip((column.name for column in schema.columns), cells, strict=True))
    return pack_key([by_name[name] for name in key])


def _has_own_form(schema: TableSchema, key: Sequence[str]) -> bool:
    return any(is_enum(schema.column(name)) for name in key)


def is_enum(column: Column) -> bool:
    """``key_list`` has the index, ``select_list`` the text."""
    return parse_column_type(column.source_type).name == "enum"


def _between(
    schema: TableSchema, key: Sequence[str], behind: KeyPlace, until: KeyPlace, condition: str
) -> tuple[str, str, str]:
    columns = [schema.column(name) for name in key]
    low, high = (unpack_key(place) if place else () for place in (behind, until))
    return (
        condition,
        _behind(columns, low) if low else "",
        f"NOT ({_behind(columns, high)})" if high else "",
    )


def _statement(
    schema: TableSchema,
    key: Sequence[str],
    select_list: str,
    conditions: Sequence[str],
    tail: str,
    *,
    table: str = "",
) -> str:
    where = " AND ".join(f"({condition})" for condition in conditions if condition.strip())
    source = table or f"{quote_table(schema.table_id)}{_without_prefixes(schema, key)}"
    return f"SELECT {select_list} FROM {source}{f' WHERE {where}' if where else ''}{tail}"


def _without_prefixes(schema: TableSchema, key: Sequence[str]) -> str:
    """Keeps MySQL from an index over the first characters of a key's column. In a collation with accents it cuts a
    range there too short: of ``PRIMARY KEY (t(3))`` it leaves out rows of ``t > 'éa'`` (seen on 9.7). Each chunk of such a
    table reads all of it."""
    indexes = [
        quote_identifier(index.name)
        for index in schema.indexes
        if any(index.prefix_lengths) and not set(key).isdisjoint(index.columns)
    ]
    return f" IGNORE INDEX ({', '.join(indexes)})" if indexes else ""


def _behind(key: Sequence[Column], values: Sequence[bytes]) -> str:
    """``(a, b) > (x, y)`` written out: MySQL uses no index for the short form (manual 10.2.1.22, "Range Optimization
    of Row Constructor Expressions")."""
    alternatives = []
    for index, (column, value) in enumerate(zip(key, values, strict=False)):
        equal = [
            f"{quote_identifier(c.name)} = {_literal(c, v)}" for c, v in zip(key[:index], values[:index], strict=True)
        ]
        alternatives.append(" AND ".join([*equal, _greater(column, value)]))
    if len(alternatives) == 1:
        return alternatives[0]
    # Implied by the rest, and said for the optimiser: a range of the key's first column.
    first = f"({_greater(key[0], values[0])} OR {quote_identifier(key[0].name)} = {_literal(key[0], values[0])})"
    return f"{first} AND ({' OR '.join(f'({alternative})' for alternative in alternatives)})"


def _greater(column: Column, printed: bytes) -> str:
    name = quote_identifier(column.name)
    if not is_enum(column):
        return f"{name} > {_literal(column, printed)}"
    members = len(parse_column_type(column.source_type).members)
    behind = range(int(printed) + 1, members + 1)  # index 0 is an invalid value
    return f"{name} IN ({', '.join(map(str, behind))})" if behind else "FALSE"


def _literal(column: Column, printed: bytes) -> str:
    """A value as the text protocol printed it, as a literal; texts in hexadecimal, so that nothing needs escaping."""
    name = parse_column_type(column.source_type).name
    if name in _TEXTS:
        charset = column.charset if stored_codec(column) is not None else "utf8mb4"
        return f"_{charset} x'{printed.hex()}'"
    if name in _BYTES:
        return f"x'{printed.hex()}'"
    if name in _MOMENTS:
        return f"'{printed.decode('ascii')}'"
    if name == "bit":
        return str(int.from_bytes(printed, "big"))
    if name in ("float", "double"):
        text = printed.decode("ascii")
        return text if "e" in text else f"{text}e0"  # with an exponent it is a DOUBLE, without a DECIMAL
    return printed.decode("ascii")
