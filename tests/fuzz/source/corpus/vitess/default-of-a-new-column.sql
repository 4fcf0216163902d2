-- found: a FIELD event lacks a new column's DEFAULT, a sink filled 0 in the rows of before, and nothing reported it
-- reported: ADD COLUMN c, whose DEFAULT vtgate does not send
-- [a]
CREATE TABLE t (id INT PRIMARY KEY, s INT);
-- [a]
INSERT INTO t VALUES (1, 1), (2, 2);
-- [a]
ALTER TABLE t ADD c INT NOT NULL DEFAULT 7;
-- [a]
INSERT INTO t VALUES (3, 3, 3);
-- [a]
INSERT INTO t VALUES (4, 4, 4);
