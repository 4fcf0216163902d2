-- found: names were compared by Python's lower case: ΤΙΜΕΣ was not τιμεσ, and İ not i
-- [a]
CREATE TABLE t (id INT PRIMARY KEY, `İ` INT, `ΤΙΜΕΣ` INT, `Ⴀ` INT, `ⴀ` INT);
-- [a]
INSERT INTO t VALUES (1,2,3,4,5);
-- [a]
ALTER TABLE t RENAME COLUMN i TO a, RENAME COLUMN `τιμεσ` TO b, DROP COLUMN `ⴀ`;
-- [a]
INSERT INTO t VALUES (2,2,3,4);
-- [a]
ALTER TABLE t CHANGE `Ⴀ` `ⴀ` BIGINT FIRST;
-- [a]
INSERT INTO t VALUES (9,3,2,3);
