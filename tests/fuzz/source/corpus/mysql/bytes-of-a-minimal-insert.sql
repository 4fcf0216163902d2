-- found: a row was set aside for a DEFAULT of bytes or bits that a MINIMAL image leaves out
-- [a]
CREATE TABLE u (id INT PRIMARY KEY, a BIT(12) DEFAULT b'1100000001', b BIT DEFAULT 1, c BINARY(3) DEFAULT 'z', d VARBINARY(5) DEFAULT 'ab', e BINARY(4) NOT NULL DEFAULT x'00ff', f VARBINARY(3) DEFAULT '', g INT DEFAULT 5);
-- [a]
SET SESSION binlog_row_image = MINIMAL;
-- [a]
INSERT INTO u (id) VALUES (1);
-- [a]
INSERT INTO u (id, g) VALUES (2, 3);
