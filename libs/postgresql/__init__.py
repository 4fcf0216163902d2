"""PostgreSQL as a warehouse: the client of the sink, and of ``headwater query`` and ``check``."""
