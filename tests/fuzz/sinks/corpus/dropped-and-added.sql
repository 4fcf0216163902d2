-- found: the values of a dropped column came back in the one that was added under its name
-- tenant: {"mode":"mirror"}
-- tenant: {"mode":"history"}
-- tenant: {"mode":"append"}
-- tenant: {"warehouse":"postgresql","mode":"mirror"}
-- [a]
CREATE TABLE t1 (id INT PRIMARY KEY, a INT, b INT);
-- [a]
INSERT INTO t1 VALUES (1,101,201),(2,102,202);
-- [sink]
all;
-- [a]
ALTER TABLE t1 DROP COLUMN a, ADD COLUMN a INT DEFAULT 5;
-- [a]
INSERT INTO t1 (id, a) VALUES (3,103);
-- [sink]
all;
-- [a]
ALTER TABLE t1 DROP COLUMN a, CHANGE b a INT;
-- [a]
INSERT INTO t1 VALUES (4,104);
-- [sink]
all;
