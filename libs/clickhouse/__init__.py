"""ClickHouse as a warehouse: what the sink writes by, and ``headwater query``, ``check`` and ``erase`` read by."""
