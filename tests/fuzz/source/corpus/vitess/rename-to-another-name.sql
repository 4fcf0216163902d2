-- found: rows of a table that was renamed stayed under the name of before at the tenants, and nothing reported it
-- reported: RENAME of fz_a.t to it, whose rows came under that name
-- [a]
CREATE TABLE t (id INT PRIMARY KEY, s INT);
-- [a]
INSERT INTO t VALUES (1, 1);
-- [a]
RENAME TABLE t TO u;
-- [a]
INSERT INTO u VALUES (2, 2);
