-- found: an ALTER that the source answers said nothing of values that the server computed
-- reported: ADD COLUMN c, whose values in the rows of before the server computed
-- [a]
INSERT INTO t0 (id) VALUES (1);
-- [a]
ALTER TABLE t0 ADD COLUMN b DATETIME DEFAULT '2024-06-01 12:00:00+05:30', ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP;
