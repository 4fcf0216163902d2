-- found: the rows of a table that was dropped and made again stayed at the tenants, and nothing reported it
-- reported: CREATE TABLE of a table that was dropped or renamed
-- [a]
CREATE TABLE t (id INT PRIMARY KEY, s INT);
-- [a]
INSERT INTO t VALUES (1, 1), (2, 2);
-- [a]
DROP TABLE t;
-- [a]
CREATE TABLE t (id INT PRIMARY KEY, s INT);
-- [a]
INSERT INTO t VALUES (3, 3);
