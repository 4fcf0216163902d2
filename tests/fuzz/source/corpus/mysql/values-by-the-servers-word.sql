-- found: JSON documents, tiny FLOATs and CONVERT TO CHARACTER SET DEFAULT of another database were not the server's
-- [a]
INSERT INTO t0 VALUES (1, 'x');
-- [a]
ALTER TABLE t0 ADD a1 JSON NOT NULL DEFAULT ('{"bb": [1e2, 1.50, 18446744073709551616], "a": "\\u00e9", "a": -0}'), ADD a2 JSON DEFAULT (_latin1'["é"]'), ADD a3 JSON DEFAULT (JSON_ARRAY()), ADD a4 JSON DEFAULT ('null'), ADD a5 JSON DEFAULT ('"it''s \\\\ \\" 😀"'), ADD a6 FLOAT DEFAULT 1e-50;
-- [a]
ALTER DATABASE fz_b CHARACTER SET ucs2;
-- [a]
CREATE TABLE fz_b.u (id INT PRIMARY KEY, a VARCHAR(9), b VARCHAR(9) CHARACTER SET latin1);
-- [a]
ALTER TABLE fz_b.u CONVERT TO CHARACTER SET DEFAULT;
-- [a]
INSERT INTO fz_b.u VALUES (1, 'é', 'x');
-- [a]
SET SESSION collation_database = utf16_bin;
-- [a]
ALTER TABLE fz_b.u CONVERT TO CHARACTER SET DEFAULT;
-- [a]
INSERT INTO fz_b.u VALUES (2, 'é', 'x');
