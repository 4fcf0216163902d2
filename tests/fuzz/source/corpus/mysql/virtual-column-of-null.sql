-- found: quarantined, since the table map gives a virtual column of NULL the charset binary
-- [a]
CREATE TABLE x (id INT PRIMARY KEY, n CHAR(10) AS (NULL) VIRTUAL, s VARCHAR(9) CHARACTER SET latin1 AS (NULL) STORED, a CHAR(3) CHARACTER SET ucs2, b ENUM('é') CHARACTER SET latin2, c TEXT, d CHAR(4) BYTE, e JSON);
-- [a]
INSERT INTO x (id, a, b, c, d, e) VALUES (1, 'x', 1, 'ź', 'x', '{}');
-- [a]
ALTER TABLE x MODIFY a CHAR(3) CHARACTER SET sjis;
-- [a]
INSERT INTO x (id, a, b, c, d, e) VALUES (2, '日本', 1, 'ź', 'x', '{}');
