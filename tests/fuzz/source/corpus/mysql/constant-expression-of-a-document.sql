-- found: a constant expression as the DEFAULT of a new JSON column is a value that no sink fills, and nothing was reported
-- reported: ADD COLUMN j, whose values in the rows of before the server computed
-- [a]
INSERT INTO t0 (id) VALUES (1);
-- [a]
ALTER TABLE t0 ADD COLUMN j JSON DEFAULT ('{"a": 1}');
