-- found: tables exchanged their names, and the tenants' tables kept the rows of before without a word
-- reported: RENAME of fz_b.t0 to it
-- [a]
INSERT INTO fz_b.t0 (id, a) VALUES (5, 'a');
-- [a]
RENAME TABLE fz_b.t0 TO swap, t0 TO fz_b.t0, swap TO t0;
-- [a]
INSERT INTO t0 VALUES (6, 'b');
