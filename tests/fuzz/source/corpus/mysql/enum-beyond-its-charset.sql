-- found: a member of an ENUM that its charset lacks is a question mark at the server
-- [a]
CREATE TABLE u (id INT PRIMARY KEY, e ENUM('a','ź','ó') CHARACTER SET latin1, s SET('ź','é') CHARACTER SET latin1, b ENUM('a','ź') CHARACTER SET big5);
-- [a]
INSERT INTO u VALUES (1, 1, 1, 1), (2, 2, 2, 2);
