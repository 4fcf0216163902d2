-- found: a constant expression as the DEFAULT of a new TIMESTAMP is a value that no sink fills, and nothing was reported
-- reported: ADD COLUMN b, whose values in the rows of before the server computed
-- [a]
INSERT INTO t0 (id) VALUES (1);
-- [a]
ALTER TABLE t0 ADD COLUMN b TIMESTAMP(6) NOT NULL DEFAULT ('1970-01-01 00:00:01');
