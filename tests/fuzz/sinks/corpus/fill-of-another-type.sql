-- found: the fill of a number that became a day is no expression of Spark's: the tenant halted
-- tenant: {"warehouse":"postgresql","mode":"mirror"}
-- tenant: {"mode":"mirror"}
-- tenant: {"warehouse":"delta","mode":"history"}
-- [a]
CREATE TABLE t1 (id INT PRIMARY KEY, a INT);
-- [a]
INSERT INTO t1 VALUES (1,101),(2,102);
-- [sink]
all;
-- [a]
ALTER TABLE t1 ADD b INT DEFAULT 20200102, ADD c TIME NOT NULL DEFAULT '01:00:00', ADD d INT NOT NULL DEFAULT 7;
-- [a]
INSERT INTO t1 VALUES (3,103,20200103,'02:00:00',8);
-- [sink]
all;
-- [a]
ALTER TABLE t1 MODIFY b DATE, MODIFY c BIGINT, MODIFY d DECIMAL(6,2);
-- [a]
INSERT INTO t1 VALUES (4,104,'2020-01-04',30000,9);
-- [sink]
all;
-- [a]
ALTER TABLE t1 ADD e INT DEFAULT 5, ADD f INT DEFAULT 20200102;
-- [a]
ALTER TABLE t1 MODIFY e BIGINT, MODIFY f DATETIME;
-- [a]
INSERT INTO t1 VALUES (5,105,'2020-01-05',40000,10,6,'2020-01-06');
-- [sink]
all;
