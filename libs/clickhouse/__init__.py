"""ClickHouse as a warehouse: the sink writes by it, and ``headwater query``, ``check`` and ``erase`` read by it."""
