-- found: NULL in both columns, and left out by policy
-- tenant: {"mode":"mirror"}
-- tenant: {"mode":"history"}
-- tenant: {"mode":"append"}
-- tenant: {"warehouse":"postgresql","mode":"mirror"}
-- tenant: {"warehouse":"delta","mode":"mirror"}
-- [a]
CREATE TABLE t1 (id INT PRIMARY KEY, userid INT);
-- [a]
INSERT INTO t1 VALUES (1,101);
-- [sink]
all;
-- [a]
ALTER TABLE t1 CHANGE userid userId VARCHAR(36);
-- [a]
INSERT INTO t1 VALUES (2,'uuid-1');
-- [sink]
all;
