-- found: fz_a.e1.a enum('a','b,c','?'), server enum('a','b,c','Еє')
-- [a]
SET SESSION character_set_connection = binary;
-- [a]
CREATE TABLE e1 (id INT PRIMARY KEY, a ENUM('a','b,c','ź') CHARACTER SET cp1251 DEFAULT 'ź', b VARCHAR(9) CHARACTER SET latin1 DEFAULT 'é');
-- [a]
CREATE TABLE e2 (id INT PRIMARY KEY, a ENUM('a','b,c','ź') CHARACTER SET ucs2, b VARCHAR(9) CHARACTER SET gbk DEFAULT 'é', c VARBINARY(9) DEFAULT 'é');
-- [a]
ALTER TABLE e1 ADD c VARCHAR(9) CHARACTER SET ucs2 NOT NULL DEFAULT 'é', ALTER b SET DEFAULT 'ź';
-- [a]
INSERT INTO e1 (id, a) VALUES (1, 3);
