-- found: as text a number with ZEROFILL had its zeros where it was copied, and none from the log: two keys for one row
-- values: {"unsigned_bigint": "string", "decimal": "string"}
-- [a]
CREATE TABLE u (id BIGINT UNSIGNED PRIMARY KEY, b BIGINT(20) ZEROFILL, d DECIMAL(9,3) ZEROFILL, f DOUBLE(10,2) ZEROFILL, i INT(4) ZEROFILL);
-- [a]
INSERT INTO u VALUES (8, 9, 1.5, 2.5, 7), (18446744073709551615, NULL, NULL, NULL, NULL);
-- [a]
INSERT INTO u VALUES (9, 9, 1.5, 2.5, 7);
-- [a]
INSERT INTO u VALUES (10, 9, 1.5, 2.5, 7);
-- [a]
UPDATE u SET b = 10;
-- [a]
ALTER TABLE u ADD COLUMN x INT;
-- [a]
INSERT INTO u VALUES (11, 9, 1.5, 2.5, 7, 1);
-- [a]
INSERT INTO u VALUES (12, 9, 1.5, 2.5, 7, 1);
