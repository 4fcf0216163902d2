-- found: a number as the DEFAULT of an ENUM or SET in parentheses is a place, and rows of before were filled with its digits
-- [a]
INSERT INTO t0 (id) VALUES (1);
-- [a]
ALTER TABLE t0 ADD b ENUM('a','b','3') DEFAULT (2), ADD c SET('a','b','c') DEFAULT (5), ADD d ENUM('a','2','b') DEFAULT '2', ADD e SET('a','b') NOT NULL DEFAULT (1 + 1), ADD f SET('a') DEFAULT (0);
-- [a]
INSERT INTO t0 (id) VALUES (2);
