-- found: a vector that came NOT NULL is an empty one in the rows of before, and was filled with NULL
-- [a]
INSERT INTO t0 (id) VALUES (1),(2);
-- [a]
ALTER TABLE t0 ADD COLUMN v VECTOR(3) NOT NULL;
