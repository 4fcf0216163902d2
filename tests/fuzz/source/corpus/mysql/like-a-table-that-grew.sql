-- found: a table made LIKE another one had the fills of the other one's versions
-- [a]
ALTER TABLE t0 ADD b INT NOT NULL;
-- [a]
ALTER TABLE t0 ADD c INT NOT NULL DEFAULT 4;
-- [a]
CREATE TABLE u LIKE t0;
-- [a]
INSERT INTO u (id, b, c) VALUES (1, 300, 5);
-- [a]
ALTER TABLE u CHANGE id id BIGINT NOT NULL;
