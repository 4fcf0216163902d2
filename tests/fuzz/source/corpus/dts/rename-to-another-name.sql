-- found: rows of a table that was renamed came under the name of before alone, and DTS's decoder said nothing
-- reported: RENAME of fz_a.t0 to it, whose rows came under that name
-- [a]
INSERT INTO t0 (id) VALUES (3), (9);
-- [a]
RENAME TABLE fz_a.t0 TO `20151214`;
-- [a]
INSERT INTO `20151214` (id) VALUES (4);
