"""PostgreSQL as a warehouse: what the sink writes by, and ``headwater query`` and ``check`` read by."""
