"""Which captured table, and which version of it, a row of the log is of: the log names tables by numbers.

A row names its table by OBJECT_ID, and the definition that it was written under by a version that grows with each change of
the columns. The number of the definition in force is in no view that a reader may ask, so it is learned: the first row of a
version is of the definition that is in force where the row's transaction is delivered. Rows of an older version, of a
transaction that was open across an ONLINE statement, keep the definition that their version had.
"""

from libs.types.table import Column, TableId, TableSchema


class TableNumbers:
    """The tables by their numbers."""

    def __init__(self) -> None:
        self._tables: dict[int, TableId] = {}
        self._schemas: dict[tuple[int, int], TableSchema] = {}
        """By object and version, each as its first row found it."""

    @property
    def object_ids(self) -> frozenset[int]:
        """Of all tables and partitions that are known."""
        return frozenset(self._tables)

    def table_of(self, object_id: int) -> TableId | None:
        """None: the number is of no captured table."""
        return self._tables.get(object_id)

    def of_table(self, table_id: TableId) -> tuple[int, ...]:
        """A table's numbers: its own is the least."""
        return tuple(sorted(object_id for object_id, of in self._tables.items() if of == table_id))

    def name(self, schema: TableSchema) -> None:
        """A table has these numbers under its name of now."""
        for object_id in schema.object_ids:
            self._tables[object_id] = schema.table_id

    def add(self, object_id: int, table_id: TableId) -> None:
        """One more number of a table: of a partition that it got."""
        self._tables[object_id] = table_id

    def forget(self, table_id: TableId) -> None:
        """The name is at an end."""
        ended = {object_id for object_id, of in self._tables.items() if of == table_id}
        for object_id in ended:
            del self._tables[object_id]
        self._schemas = {key: schema for key, schema in self._schemas.items() if key[0] not in ended}

    def schema(self, object_id: int, object_version: int, current: TableSchema) -> TableSchema:
        """The definition that a row was written under; ``current``: the one in force.

        A version whose columns are those in force has the key in force too, which may have changed since.
        """
        found = self._schemas.setdefault((object_id, object_version), current)
        if found is not current and _layout(found) == _layout(current):
            self._schemas[object_id, object_version] = current
            return current
        return found


def _layout(schema: TableSchema) -> tuple[tuple[int, str, str], ...]:
    return tuple(map(_place, schema.columns))


def _place(column: Column) -> tuple[int, str, str]:
    return column.number, column.name, column.source_type
