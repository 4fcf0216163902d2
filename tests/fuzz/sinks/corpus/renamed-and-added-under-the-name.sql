-- found: Iceberg parked the table for good
-- tenant: {"mode":"mirror"}
-- tenant: {"mode":"history"}
-- tenant: {"mode":"append"}
-- tenant: {"warehouse":"postgresql","mode":"mirror"}
-- tenant: {"warehouse":"delta","mode":"mirror"}
-- [a]
CREATE TABLE t1 (id INT PRIMARY KEY, a INT);
-- [a]
INSERT INTO t1 VALUES (1,101),(2,102);
-- [sink]
all;
-- [a]
ALTER TABLE t1 CHANGE a a2 INT, ADD COLUMN a INT DEFAULT 9;
-- [a]
INSERT INTO t1 VALUES (3,103,203);
-- [sink]
all;
