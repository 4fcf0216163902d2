"""The choices of a table's creation, for its life: its mode, its kind of deletes and its key."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from libs.types.tenant import SinkMode
from libs.types.warehouse import WarehouseTable, own_columns
from spark.sinks.port import SinkTable, TableRefused

_WRITE_ANEW = "write the tenant's tables again (docs/sinks/repair.md, 'Write tables again')"


@dataclass(frozen=True, slots=True)
class Settled:
    """As the warehouse has noted it."""

    mode: str
    deletes: str
    key: str
    """Its columns, with commas between."""


def check_settled(settled: Settled | None, table: SinkTable, key: Sequence[str], columns: Collection[str]) -> None:
    """Whether the table may go on under the tenant's settings and the source's key of today. ``key``: that, by the names that
    its columns have in the table; ``columns``: all that it has.

    Raises:
        TableRefused: it was created with others; or, where nothing is noted, by somebody else.
    """
    if settled is None:
        raise TableRefused(
            f"{table.name} is there, but not by Headwater; rename or move it, or give the tenant another name"
        )
    if settled.mode != table.mode.value:
        raise TableRefused(
            f"{table.name} holds {settled.mode} rows, but the tenant's sink.mode is {table.mode.value}; set the mode back, "
            f"or {_WRITE_ANEW}"
        )
    if settled.deletes != table.deletes.value:
        raise TableRefused(
            f"{table.name} has {settled.deletes} deletes, but the tenant's sink.deletes is {table.deletes.value}; set it "
            f"back, or {_WRITE_ANEW}"
        )
    if table.mode is not SinkMode.APPEND and settled.key.lower() != ",".join(key).lower():
        raise TableRefused(
            f"{table.name} is merged by the key ({settled.key}), but the source's key is ({','.join(table.key)}) "
            f"now; {_WRITE_ANEW}"
        )
    if lacking := [name for name in own_columns(table.mode, table.deletes) if name not in columns]:
        raise TableRefused(
            f"{table.name} lacks {', '.join(lacking)}: an earlier Headwater made it, or somebody dropped them; {_WRITE_ANEW}"
        )


def key_of_log(table: WarehouseTable, settled: Settled | None) -> tuple[str, ...]:
    """The key of the table at the source; empty: it has none.

    Raises:
        TableRefused: it is no log.
    """
    if settled is None or settled.mode != SinkMode.APPEND.value:
        raise TableRefused(
            f"{table}: is no log; only a table of mode append has every change "
            "(docs/sinks/repair.md, 'Rebuild to a past moment')"
        )
    return tuple(filter(None, settled.key.split(",")))


def no_such_table(table: WarehouseTable) -> TableRefused:
    """The error to raise."""
    return TableRefused(f"{table}: there is no such table")


def name_taken(table: WarehouseTable) -> TableRefused:
    """The error to raise if the new table's name is taken."""
    return TableRefused(f"{table}: there is such a table already; choose another name")
