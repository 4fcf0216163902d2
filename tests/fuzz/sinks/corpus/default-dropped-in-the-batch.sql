-- found: the fill was that of the newest default, not of the version that brought the column
-- tenant: {"mode":"mirror"}
-- tenant: {"mode":"history"}
-- tenant: {"mode":"append"}
-- tenant: {"warehouse":"postgresql","mode":"mirror"}
-- tenant: {"warehouse":"delta","mode":"mirror"}
-- [a]
CREATE TABLE t1 (id INT PRIMARY KEY, a INT);
-- [a]
INSERT INTO t1 VALUES (1,1),(2,2),(3,3);
-- [sink]
all;
-- [a]
ALTER TABLE t1 ADD c INT NOT NULL DEFAULT 5, ADD d INT NOT NULL DEFAULT 6, ADD e INT NOT NULL DEFAULT 8;
-- [a]
ALTER TABLE t1 ALTER c DROP DEFAULT;
-- [a]
ALTER TABLE t1 ALTER d SET DEFAULT 7;
-- [a]
ALTER TABLE t1 MODIFY e INT NULL;
-- [a]
INSERT INTO t1 VALUES (4,4,4,4,4);
-- [a]
UPDATE t1 SET a = 9 WHERE id = 2;
-- [sink]
all;
