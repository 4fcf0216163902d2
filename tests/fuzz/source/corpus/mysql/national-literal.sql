-- found: fz_a.e1.b DEFAULT 'Ã©', server 'é'
-- [a]
SET SESSION character_set_client = latin1;
-- [a]
CREATE TABLE e1 (id INT PRIMARY KEY, b VARCHAR(9) DEFAULT n'é', c VARCHAR(9) DEFAULT (N'é'));
