-- found: rows of before a new TIMESTAMP with a literal as its DEFAULT were filled with NULL without a word
-- reported: ADD COLUMN b, whose values in the rows of before the server computed
-- [a]
INSERT INTO t0 (id) VALUES (1);
-- [a]
ALTER TABLE t0 ADD COLUMN b TIMESTAMP(2) NULL DEFAULT 20200102030405;
-- [a]
INSERT INTO t0 (id) VALUES (2);
