"""Whether a table can be kept at all, with any columns."""

from libs.types.table import TableSchema
from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import OWN_COLUMN_PREFIX, own_columns
from libs.warehouse.dialect import Dialect


def unfit_because(schema: TableSchema, mode: SinkMode, deletes: Deletes, dialect: Dialect) -> str | None:
    """Why the sink parks such a table; ends with the remedy. None: it does not."""
    if mode is not SinkMode.APPEND and not schema.key:
        return (
            f"{schema.table_id} has no primary key and no unique key without NULLs, so nothing distinguishes its rows; add "
            "one at the source, exclude the table, or set the tenant's sink.mode to append"
        )
    own = own_columns(mode, deletes)
    for column in schema.columns:
        name = column.name.lower()
        if name.startswith(OWN_COLUMN_PREFIX) or name in own:
            return f"{schema.table_id}.{column.name}: such a name is Headwater's own in mode {mode.value}; exclude the column"
        if name in dialect.reserved_names:
            return f"{schema.table_id}.{column.name}: the warehouse keeps this name for itself; exclude the column"
    return None
