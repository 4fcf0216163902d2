-- found: an INSERT that names no column under a MINIMAL image was set aside
-- values: {"unavailable_placeholder":"__debezium_unavailable_value"}
-- [a]
SET SESSION binlog_row_image = MINIMAL;
-- [a]
INSERT IGNORE INTO t0 () VALUES ();
