-- found: without strict mode the server takes an empty DEFAULT of a BLOB or TEXT, and leaves it out
-- [a]
SET SESSION sql_mode = '';
-- [a]
CREATE TABLE d (id INT PRIMARY KEY, b LONGBLOB NOT NULL DEFAULT x'', t TEXT DEFAULT '');
-- [a]
INSERT INTO t0 (id) VALUES (1);
-- [a]
ALTER TABLE t0 ADD b BLOB NOT NULL DEFAULT '', ADD t TINYTEXT DEFAULT '', ADD u TEXT NOT NULL DEFAULT ('');
