-- found: DECIMAL(0,0) is decimal(10,0) at the server; a SET's DEFAULT of an empty member and another has no comma
-- [a]
CREATE TABLE z (id INT PRIMARY KEY, a DECIMAL(0,0), b NUMERIC(0), c SET('','x','y') DEFAULT ',x', d SET('','x','y') DEFAULT 'y,');
-- [a]
INSERT INTO z (id, a, c) VALUES (1, 1234567890, 3), (2, -1, 7);
-- [a]
INSERT INTO z (id) VALUES (3);
-- [a]
ALTER TABLE z ADD COLUMN e SET('','x') DEFAULT ',x', MODIFY b DECIMAL(0,0) DEFAULT 5;
-- [a]
INSERT INTO z (id) VALUES (4);
