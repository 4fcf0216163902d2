"""The table that a person means by a name: ``table``, ``database.table`` or ``source.database.table``."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from libs.errors import InvalidSettings
from libs.tenants.place import nearest

Table = TypeVar("Table")


def table_named(
    name: str, tables: Sequence[Table], place_of: Callable[[Table], tuple[str, str]], *, tenant: str, lack: str
) -> Table:
    """The one table that ``name`` means.

    ``place_of``: a table's source and ``database.table``; ``lack``: the message where none has the name.

    Raises:
        InvalidSettings: none or several have it; the message has the names to choose from, or the nearest one.
    """
    names = [_names(*place_of(each)) for each in tables]
    found = [number for number, each in enumerate(names) if name in each]
    if len(found) == 1:
        return tables[found[0]]
    if found:
        several = ", ".join(sorted(names[number][2] for number in found))
        raise InvalidSettings(f"table {name}", [f"is not unique for tenant {tenant}: name one of {several}"])
    known = sorted({short for each in names for short in each[:2]})
    raise InvalidSettings(f"table {name}", [f"{lack}; {nearest(name, known)}"])


def _names(source: str, table: str) -> tuple[str, str, str]:
    return table.partition(".")[2], table, f"{source}.{table}"
