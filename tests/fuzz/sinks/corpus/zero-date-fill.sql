-- found: the fill of a zero date failed in Spark
-- tenant: {"mode":"mirror"}
-- tenant: {"mode":"history"}
-- tenant: {"mode":"append"}
-- tenant: {"warehouse":"postgresql","mode":"mirror"}
-- tenant: {"warehouse":"delta","mode":"mirror"}
-- [a]
SET SESSION sql_mode = '';
-- [a]
CREATE TABLE t1 (id INT PRIMARY KEY);
-- [a]
INSERT INTO t1 VALUES (1),(2);
-- [sink]
all;
-- [a]
ALTER TABLE t1 ADD d DATE NOT NULL DEFAULT '0000-00-00', ADD e DATETIME NOT NULL DEFAULT '0000-00-00', ADD f DATE DEFAULT '0000-00-00', ADD g VARBINARY(255) NOT NULL DEFAULT '', ADD h BINARY(2) NOT NULL DEFAULT '', ADD i TEXT NOT NULL DEFAULT ('pending'), ADD j ENUM('new','paid') NOT NULL DEFAULT 'NEW', ADD k CHAR(5) NOT NULL DEFAULT TRUE, ADD l YEAR NOT NULL DEFAULT '0', ADD m DATE NOT NULL DEFAULT '200102', ADD n INT NOT NULL DEFAULT (1 + 1);
-- [a]
INSERT INTO t1 (id) VALUES (3);
-- [sink]
all;
