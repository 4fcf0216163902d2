-- found: other values of an ALTER without a word: a SET's order, numbers cut or zeroed as texts and unsigned, AUTO_INCREMENT's
-- reported: b, whose values the server computed again
-- [a]
CREATE TABLE s (id INT PRIMARY KEY, k SET('a','b'), b INT AS (id + 1), c INT AS (id + 1) STORED);
-- [a]
INSERT INTO s (id, k) VALUES (1, 'a,b');
-- [a]
ALTER TABLE s MODIFY b INT AS (id + 2);
-- [a]
ALTER TABLE s MODIFY c INT AS (id + 2) STORED;
-- [a]
ALTER TABLE s MODIFY k SET('b','a');
-- [a]
CREATE TABLE z (id INT PRIMARY KEY, a INT, b INT, c INT, d DECIMAL(9,2));
-- [a]
INSERT INTO z VALUES (0, 12345, -5, -5, 12345.67);
-- [a]
SET SESSION sql_mode = '';
-- [a]
ALTER TABLE z MODIFY a VARCHAR(2);
-- [a]
ALTER TABLE z MODIFY b DECIMAL(20,2) UNSIGNED;
-- [a]
ALTER TABLE z MODIFY c DOUBLE UNSIGNED;
-- [a]
ALTER TABLE z MODIFY d CHAR(3);
-- [a]
ALTER TABLE z MODIFY id INT AUTO_INCREMENT;
