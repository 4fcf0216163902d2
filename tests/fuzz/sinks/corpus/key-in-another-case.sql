-- found: a history was parked in some batches: the key is (A,b) now
-- tenant: {"mode":"mirror"}
-- tenant: {"mode":"history"}
-- tenant: {"mode":"append"}
-- tenant: {"warehouse":"postgresql","mode":"mirror"}
-- [a]
CREATE TABLE t1 (a INT, b INT, c INT, PRIMARY KEY (a, b));
-- [a]
INSERT INTO t1 VALUES (1,1,101),(2,2,102);
-- [sink]
1;
-- [a]
ALTER TABLE t1 CHANGE a A BIGINT NOT NULL;
-- [a]
UPDATE t1 SET c = 103 WHERE b = 2;
-- [sink]
1;
-- [a]
INSERT INTO t1 VALUES (3,3,104);
-- [sink]
all;
-- [a]
ALTER TABLE t1 RENAME COLUMN c TO C, RENAME COLUMN b TO B;
-- [a]
DELETE FROM t1 WHERE b = 1;
-- [a]
INSERT INTO t1 VALUES (4,4,105);
-- [sink]
all;
