-- found: a column that an ALTER adds and takes into the primary key is NOT NULL, and was filled with NULL
-- [a]
INSERT INTO t0 (id, a) VALUES (12, 'x');
-- [a]
ALTER TABLE t0 DROP COLUMN id, ADD COLUMN id VARCHAR(9) COMMENT 'x';
-- [a]
INSERT INTO fz_b.t0 (id, a) VALUES (1, 'x');
-- [a]
ALTER TABLE fz_b.t0 DROP PRIMARY KEY, ADD COLUMN n INT, ADD PRIMARY KEY (n);
