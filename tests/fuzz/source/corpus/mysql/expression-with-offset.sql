-- found: a table whose DEFAULT is an expression with an offset was not followed at all
-- reported: ADD COLUMN b, whose values in the rows of before the server computed
-- [a]
CREATE TABLE v (id INT PRIMARY KEY, c TIMESTAMP DEFAULT ('2024-06-01 12:00:00+05:30'), d VARCHAR(40) DEFAULT (1e300));
-- [a]
INSERT INTO v (id) VALUES (1);
-- [a]
INSERT INTO t0 (id) VALUES (1);
-- [a]
ALTER TABLE t0 ADD COLUMN b DATETIME DEFAULT ('2024-06-01 12:00:00+05:30');
