-- found: members that are no text of the new charset are empty at the server, and halted the reader under full metadata
-- reported: e from enum('','a','b') to enum('','','')
-- [a]
SET GLOBAL binlog_row_metadata = FULL;
-- [a]
CREATE TABLE x (id INT PRIMARY KEY, e ENUM('','a','b') NOT NULL);
-- [a]
INSERT INTO x VALUES (1, 'a'), (2, 'b'), (3, '');
-- [a]
ALTER TABLE x CONVERT TO CHARACTER SET utf16le;
-- [a]
INSERT INTO x VALUES (4, 3);
