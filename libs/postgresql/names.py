"""Names in the warehouse: schemas, tables and columns of at most 63 bytes, and Headwater's own registry of them."""

import hashlib
from typing import Final

from libs.types.warehouse import WarehouseTable

MAX_BYTES: Final = 63
"""Of an identifier (PostgreSQL manual 4.1.1); the server would cut a longer one in silence."""
SCHEMA_TEMPLATE: Final = "{tenant}_{source}_{database}"
STATE_SCHEMA: Final = "headwater"
REGISTRY: Final = f"{STATE_SCHEMA}.tables"
"""One row a table: its place, its source's table, and its last batch."""
_SYSTEM_COLUMNS: Final = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""Every table has these (PostgreSQL manual 5.5)."""
_RESERVED_SCHEMAS: Final = frozenset({STATE_SCHEMA, "information_schema"})
_RESERVED_PREFIX: Final = "pg_"
"""The server makes no such schema (PostgreSQL manual 5.10.5)."""
_PLACEHOLDERS: Final = ("tenant", "source", "database")


def schema_name(template: str, table: WarehouseTable) -> str:
    """The schema in which ``table`` lies; a name that is the server's or Headwater's own has a ``_`` before it.

    >>> schema_name("{tenant}_{source}_{database}", WarehouseTable(namespace=("acme", "shop", "s"), name="t"))
    'acme_shop_s'
    >>> schema_name("{tenant}_{source}_{database}", WarehouseTable(namespace=("pg", "shop", "s"), name="t"))
    '_pg_shop_s'
    """
    name = template.format(**dict(zip(_PLACEHOLDERS, table.namespace, strict=True)))
    return identifier(f"_{name}" if _is_reserved(name) else name)


def template_mistake(template: str) -> str | None:
    """The mistake of a schema's template; None: there is none."""
    try:
        named = template.format(**{name: name for name in _PLACEHOLDERS})
    except (KeyError, IndexError, ValueError):
        return f"{template!r}: may hold {{tenant}}, {{source}} and {{database}}, each in braces"
    if not named or _is_reserved(named):
        return f"{template!r}: is no name that a schema of tenants may have"
    return None


def _is_reserved(schema: str) -> bool:
    return schema.startswith(_RESERVED_PREFIX) or schema in _RESERVED_SCHEMAS


def column_name(name: str) -> str:
    """The column's name in the table: the source's own, unless PostgreSQL cannot have it."""
    return _hashed(name) if name in _SYSTEM_COLUMNS else identifier(name)


def identifier(name: str) -> str:
    """``name``, or where it is too long its beginning and a hash of the whole; the same at every call.

    >>> len(identifier("é" * 64).encode())
    63
    """
    return name if len(name.encode()) <= MAX_BYTES else _hashed(name)


def stage_prefix(query_id: str) -> str:
    """The prefix of the names of a streaming query's stages in ``STATE_SCHEMA``."""
    return f"stage_{hashlib.sha256(query_id.encode()).hexdigest()[:16]}_"


def rebuild_stage_prefix(tenant: str) -> str:
    """The same of a rebuild of one of the tenant's tables, of which there is one at a time."""
    return stage_prefix(f"rebuild of {tenant}")  # no query's id has a space


def _hashed(name: str) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name.encode()[: MAX_BYTES - 9].decode(errors='ignore')}_{digest}"


def quoted(*levels: str) -> str:
    """A name as SQL may hold it.

    >>> quoted("acme", 'odd"name')
    '"acme"."odd""name"'
    """
    return ".".join('"' + level.replace('"', '""') + '"' for level in levels)
