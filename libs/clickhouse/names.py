"""Names in ClickHouse: databases and tables, Headwater's own state, and how SQL writes them."""

import hashlib
from typing import Final

from libs.types.warehouse import OWN_COLUMN_PREFIX, PROGRESS_VIEW, WarehouseTable

DATABASE_TEMPLATE: Final = "{tenant}_{source}_{database}"
STATE_DATABASE: Final = "headwater"
"""Of the stages, and of the batches that the tables have taken in."""
_RESERVED: Final = frozenset({STATE_DATABASE, "system", "default", "information_schema"})
_PLACEHOLDERS: Final = ("tenant", "source", "database")
VERSION_COLUMN: Final = f"{OWN_COLUMN_PREFIX}version"
"""By which ClickHouse chooses among rows of a key: of a mirror, materialized, the order as a number; of a history how often the
version was written."""
GONE_COLUMN: Final = f"{OWN_COLUMN_PREFIX}gone"
"""Of a mirror: 1 marks that the row went; of a history, that the version is none any more. ``FINAL`` leaves such rows out."""
BATCH_COLUMN: Final = f"{OWN_COLUMN_PREFIX}batch"
"""Of an append table: the micro-batch that brought the row."""


def quoted(*levels: str) -> str:
    r"""A name as SQL may hold it.

    >>> quoted("acme", "odd`na\\me")
    '`acme`.`odd\\`na\\\\me`'
    """
    return ".".join("`" + level.replace("\\", "\\\\").replace("`", "\\`") + "`" for level in levels)


def literal(text: str) -> str:
    r"""A string constant.

    >>> literal("it's")
    "'it\\'s'"
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


BATCHES: Final = quoted(STATE_DATABASE, "batches")
"""One row a table, after ``FINAL``: the last batch that it took in, and how far that got."""
INTENTS: Final = quoted(STATE_DATABASE, "intents")
"""One row a log, after ``FINAL``: the batch whose rows were to be attached last, and its row for ``BATCHES``."""
PROGRESS: Final = quoted(STATE_DATABASE, PROGRESS_VIEW)


def database_name(template: str, table: WarehouseTable) -> str:
    """The database in which ``table`` lies; a name that is the server's or Headwater's own has a ``_`` before it.

    >>> database_name("{tenant}_{database}", WarehouseTable(namespace=("acme", "shop", "s"), name="t"))
    'acme_s'
    >>> database_name("{tenant}", WarehouseTable(namespace=("system", "shop", "s"), name="t"))
    '_system'
    """
    name = template.format(**dict(zip(_PLACEHOLDERS, table.namespace, strict=True)))
    return f"_{name}" if name.lower() in _RESERVED else name


def template_mistake(template: str) -> str | None:
    """The fault of a database's template; None: it has none."""
    try:
        named = template.format(**{name: name for name in _PLACEHOLDERS})
    except (KeyError, IndexError, ValueError):
        return f"{template!r}: may hold {{tenant}}, {{source}} and {{database}}, each in braces"
    if not named or named.lower() in _RESERVED:
        return f"{template!r}: is no name that a database of tenants may have"
    return None


def stage_prefix(query_id: str) -> str:
    """The beginning of the names of a streaming query's stages in ``STATE_DATABASE``."""
    return f"stage_{_digest(query_id, 16)}_"


def stage_name(query_id: str, table: WarehouseTable, purpose: str) -> str:
    """The name of a query's stage for a table; ``purpose`` distinguishes several."""
    return f"{stage_prefix(query_id)}{_digest(str(table), 12)}_{purpose}"


def rebuild_prefix(tenant: str) -> str:
    """The beginning of the names of a rebuild's tables in ``STATE_DATABASE``."""
    return f"rebuild_{_digest(tenant, 16)}_"


def copy_name(table: WarehouseTable) -> str:
    """Of a table while it is made again with other columns."""
    return f"copy_{_digest(str(table), 24)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
