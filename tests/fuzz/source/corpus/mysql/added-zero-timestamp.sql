-- found: a TIMESTAMP of zero is no time of any zone: its fill is known, and nothing is to be reported
-- [a]
SET SESSION sql_mode = '';
-- [a]
INSERT INTO t0 (id) VALUES (1);
-- [a]
ALTER TABLE t0 ADD COLUMN b TIMESTAMP NULL DEFAULT '0000-00-00 00:00:00', ADD COLUMN c TIMESTAMP NOT NULL DEFAULT 0;
