"""Keys of one's own choice: which columns an event's key has, where it shall not be the table's own (``message.key.columns``).

One shape for every reader's settings and for a source's document.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from libs.errors import InvalidSettings
from libs.types.table import TableId


class KeyColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The key of some tables' events. Rows that share it are one row to a compacted topic and to a warehouse that mirrors."""

    tables: str
    """Regular expression over ``database.table`` (Vitess: ``keyspace.table``)."""
    columns: str
    """Regular expression over column names; those that match are the key, in the table's order."""

    def __post_init__(self) -> None:
        """Raises InvalidSettings, which names the expression that is none."""
        mistakes = []
        for name in self.__struct_fields__:
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                mistakes.append(f"{name}: is no regular expression ({error})")
        if mistakes:
            raise InvalidSettings("key_columns", mistakes)


def chosen_key(table_id: TableId, columns: Iterable[str], key_columns: Sequence[KeyColumns]) -> tuple[str, ...]:
    """The key that the first entry which names the table gives it; empty: none does, or the table lacks such columns.

    Empty means the table's own key, as with Debezium.
    """
    for chosen in key_columns:
        if re.fullmatch(chosen.tables, str(table_id)):
            return tuple(name for name in columns if re.fullmatch(chosen.columns, name))
    return ()
