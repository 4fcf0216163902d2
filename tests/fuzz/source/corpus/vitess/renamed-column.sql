-- found: a FIELD event lacks a column's former name, the rows of before had no value in the renamed column, and nothing reported it
-- reported: s renamed to n, whose values stay under the former name
-- [a]
CREATE TABLE t (id INT PRIMARY KEY, s INT);
-- [a]
INSERT INTO t VALUES (1, 1), (2, 2);
-- [a]
ALTER TABLE t RENAME COLUMN s TO n;
-- [a]
INSERT INTO t VALUES (3, 3), (4, 4), (5, 5), (6, 6);
-- [a]
INSERT INTO t VALUES (7, 7);
