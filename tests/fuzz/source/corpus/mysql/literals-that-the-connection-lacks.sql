-- found: fz_a.e1.a enum('a','b,c','ź'), server enum('a','b,c','?')
-- [a]
SET SESSION character_set_connection = latin1;
-- [a]
CREATE TABLE e1 (id INT PRIMARY KEY, a ENUM('a','b,c','ź'), b VARCHAR(9) CHARACTER SET ucs2 DEFAULT 'ź', c VARCHAR(9) DEFAULT _binary'ź');
-- [a]
INSERT INTO t0 VALUES (1, 'x');
-- [a]
ALTER TABLE t0 ADD b VARCHAR(9) NOT NULL DEFAULT 'ź';
