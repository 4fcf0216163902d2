-- found: of DEFAULT (NULL) that is set in place the server keeps no expression
-- [a]
CREATE TABLE t (id INT PRIMARY KEY, b TIME(6), c INT DEFAULT (NULL), d INT DEFAULT 5);
-- [a]
ALTER TABLE t ALTER b SET DEFAULT (NULL), ALTER d SET DEFAULT (NULL);
-- [a]
ALTER TABLE t ALTER c SET DEFAULT (NULL), ADD e INT NOT NULL;
