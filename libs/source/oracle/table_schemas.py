"""Oracle as a ``SchemaDialect``: keys, forms of values and schema-change events of its tables."""

from collections.abc import Sequence

import msgspec

from libs.oracle.logical import in_value_modes
from libs.oracle.schema_change_event import schema_change_key, schema_change_value
from libs.oracle.table_schema import row_key
from libs.source.key_columns import KeyColumns, chosen_key
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import OracleValueModes, ValueModes


def as_source_has_it(schema: TableSchema, modes: ValueModes, key_columns: Sequence[KeyColumns]) -> TableSchema:
    """``schema`` with the values' forms and the key that a source's settings give it."""
    assert isinstance(modes, OracleValueModes)
    schema = in_value_modes(schema, modes)
    names = (column.name for column in schema.columns)
    key = chosen_key(schema.table_id, names, key_columns) or row_key(schema)
    return schema if key == schema.key else msgspec.structs.replace(schema, key=key)


class OracleSchemas:
    """See ``libs.source.table_schemas.SchemaDialect``."""

    def __init__(self, database: str) -> None:
        """``database``: the pluggable database whose tables are captured, or the database without one."""
        self._database = database

    def as_set(self, schema: TableSchema, modes: ValueModes, key_columns: Sequence[KeyColumns]) -> TableSchema:
        """See ``as_source_has_it``."""
        return as_source_has_it(schema, modes, key_columns)

    def schema_change_key(self, table_id: TableId) -> bytes:
        """See ``libs.oracle.schema_change_event``."""
        return schema_change_key(self._database)

    def schema_change_value(
        self, table_id: TableId, schema: TableSchema | None, *, kind: str, ddl: str, source_block: bytes, ts_ms: int
    ) -> bytes:
        """See ``libs.oracle.schema_change_event``."""
        return schema_change_value(
            database=self._database,
            table_id=table_id,
            schema=schema,
            kind=kind,
            ddl=ddl,
            source_block=source_block,
            ts_ms=ts_ms,
        )
