-- found: the stand-in put a comma after an empty member of a SET, which the server does not
-- [a]
CREATE TABLE s (id INT PRIMARY KEY, m SET('','x','y'));
-- [a]
INSERT INTO s VALUES (1, 3), (2, 1), (3, 7), (4, 0);
-- [a]
UPDATE s SET m = 5 WHERE id = 1;
