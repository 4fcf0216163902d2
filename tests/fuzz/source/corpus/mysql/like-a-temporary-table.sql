-- found: the log has a table LIKE a temporary one without its charset, which was taken for the database's
-- [a]
ALTER DATABASE fz_b CHARACTER SET sjis;
-- [a]
CREATE TEMPORARY TABLE fz_b.tmp (id INT PRIMARY KEY, v VARCHAR(9));
-- [a]
CREATE TABLE fz_a.x LIKE fz_b.tmp;
-- [a]
INSERT INTO fz_a.x VALUES (1, '日本');
