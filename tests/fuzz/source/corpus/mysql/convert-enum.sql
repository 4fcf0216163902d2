-- found: CONVERT TO CHARACTER SET keeps the bytes of ENUM members, which are other texts then
-- reported: e from utf8mb4 to latin1
-- [a]
CREATE TABLE x (id INT PRIMARY KEY, e ENUM('é','b'), s SET('é','b'));
-- [a]
INSERT INTO x VALUES (1, 'é', 'é,b'), (2, 'b', 'b');
-- [a]
ALTER TABLE x CONVERT TO CHARACTER SET latin1;
-- [a]
INSERT INTO x (id) VALUES (3);
