"""Warehouse tables: where a tenant's table lies, and which columns Headwater adds.

The sink writes by these names; ``headwater query``, ``check`` and ``status`` read by them.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from libs.types.table import TableId
from libs.types.tenant import Deletes, SinkMode

CATALOG: Final = "headwater"
"""Name of the catalog in Spark and pyiceberg."""
OWN_COLUMN_PREFIX: Final = "_headwater_"
ORDER_COLUMN: Final = "_headwater_order"
"""EventOrder.sort_key() of the change that wrote the row."""
COMMITTED_AT_COLUMN: Final = "_headwater_committed_at"
"""When the source committed that change."""
OP_COLUMN: Final = "_headwater_op"
"""Only in append tables: c, u, d, r or t, as Debezium's ``op``."""
IMAGE_COLUMN: Final = "_headwater_image"
"""Only in append tables: which image of the row it is, ``after`` the change or ``before`` it (of a delete; of an update with
``images: before_and_after`` besides); NULL for a truncation."""
DELETED_COLUMN: Final = "_headwater_deleted"
"""Only with soft deletes: whether the source has deleted the row. Not ``_deleted``, which Iceberg keeps for itself."""
DELETED_AT_COLUMN: Final = "_headwater_deleted_at"
"""Only with soft deletes: when; NULL while the row is there."""
VALID_FROM_COLUMN: Final = "valid_from"
"""Only in history tables: commit time at the source of the change that opened this version of the row."""
VALID_TO_COLUMN: Final = "valid_to"
"""Only in history tables: commit time of the change that ended it; NULL while it is current."""
IS_CURRENT_COLUMN: Final = "is_current"
"""Only in history tables."""
OPENED_BY_COLUMN: Final = "_headwater_opened_by"
"""Only in history tables: the order of the change that opened the version."""
CLOSED_BY_COLUMN: Final = "_headwater_closed_by"
"""Only in history tables: the order of the change that ended it; NULL while it is current."""
UNAVAILABLE_COLUMN: Final = "_headwater_unavailable"
"""Of changes on their way, in no table: the columns whose value the log does not hold."""
SOURCE_PROPERTY: Final = "headwater.source"
"""Of a table, where the warehouse keeps texts beside one: which source it is of."""
TABLE_PROPERTY: Final = "headwater.table"
"""``database.table`` there."""
BATCH_PROPERTY: Final = "headwater.batch"
"""In an Iceberg snapshot's summary: ``<streaming query id>:<batch id>`` of the micro-batch that it commits."""
REACHED_ORDER_PROPERTY: Final = "headwater.order"
"""Beside it: the newest order that the table has taken in."""
REACHED_AT_PROPERTY: Final = "headwater.committed-at-us"
"""Beside it: when the source committed the newest change that the table has taken in, in microseconds since 1970."""
REACHED_OFFSETS_PROPERTY: Final = "headwater.offsets"
"""Beside it: JSON of Kafka partition to the offset after the last event of the table's topic."""
REACHED_POSITIONS_PROPERTY: Final = "headwater.positions"
"""Beside it: JSON of the ``ReachedPosition``s."""
PROGRESS_VIEW: Final = f"{OWN_COLUMN_PREFIX}progress"
"""Name, for queries, of the progress in the commits of a tenant's tables, by table and source partition."""
CONSISTENT_TABLE: Final = f"{OWN_COLUMN_PREFIX}consistent"
"""A tenant's table of the snapshots that belong together, in the namespace ``<tenant>`` (``sink.consistency: transaction``)."""

_OWN_COLUMNS: Final[Mapping[SinkMode, tuple[str, ...]]] = {
    SinkMode.MIRROR: (ORDER_COLUMN, COMMITTED_AT_COLUMN),
    SinkMode.APPEND: (OP_COLUMN, IMAGE_COLUMN, ORDER_COLUMN, COMMITTED_AT_COLUMN),
    SinkMode.HISTORY: (
        VALID_FROM_COLUMN,
        VALID_TO_COLUMN,
        IS_CURRENT_COLUMN,
        ORDER_COLUMN,
        COMMITTED_AT_COLUMN,
        OPENED_BY_COLUMN,
        CLOSED_BY_COLUMN,
    ),
}


OWN_SQL_TYPES: Final[Mapping[str, str]] = {
    OP_COLUMN: "string",
    IMAGE_COLUMN: "string",
    ORDER_COLUMN: "string",
    COMMITTED_AT_COLUMN: "timestamp",
    DELETED_COLUMN: "boolean",
    DELETED_AT_COLUMN: "timestamp",
    VALID_FROM_COLUMN: "timestamp",
    VALID_TO_COLUMN: "timestamp",
    IS_CURRENT_COLUMN: "boolean",
    OPENED_BY_COLUMN: "string",
    CLOSED_BY_COLUMN: "string",
}
"""Spark's types of Headwater's own columns."""


def own_columns(mode: SinkMode, deletes: Deletes) -> tuple[str, ...]:
    """The columns after the source's, in order."""
    if mode is SinkMode.MIRROR and deletes is Deletes.SOFT:
        return (DELETED_COLUMN, DELETED_AT_COLUMN, *_OWN_COLUMNS[mode])
    return _OWN_COLUMNS[mode]


_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_$-]+")


class WarehouseTable(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A table's place in the catalog: a nested namespace and a name."""

    namespace: tuple[str, ...]
    name: str

    @property
    def identifier(self) -> tuple[str, ...]:
        """As pyiceberg wants it."""
        return (*self.namespace, self.name)

    def quoted(self, catalog: str = CATALOG) -> str:
        """As Spark SQL wants it."""
        return ".".join(f"`{level}`" for level in (catalog, *self.identifier))

    def __str__(self) -> str:
        return ".".join(self.identifier)


def table_named(text: str) -> WarehouseTable:
    """The one whose ``str`` that is: no level of a warehouse's names holds a dot."""
    *namespace, name = text.split(".")
    return WarehouseTable(namespace=tuple(namespace), name=name)


def warehouse_table(tenant: str, source: str, table_id: TableId) -> WarehouseTable:
    """Where a tenant's table lies: the levels of its row topic, ``<tenant>.<source>.<database>.<table>``.

    Two tables never meet: a name that catalogs, paths or SQL could not carry as it is gets a hash of itself.

    >>> str(warehouse_table("acme", "shop", TableId(database="shop", table="orders")))
    'acme.shop.shop.orders'
    """
    levels = tuple(_plain(level) for level in (tenant, source, table_id.database, table_id.table))
    return WarehouseTable(namespace=levels[:-1], name=levels[-1])


def _plain(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_$-]", "_", name) + f"_{digest}"
