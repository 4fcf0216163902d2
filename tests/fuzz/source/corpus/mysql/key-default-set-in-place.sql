-- found: SHOW CREATE leaves out a key's DEFAULT that is an expression and was set by an ALTER in place; the reader's model is right
-- [a]
ALTER TABLE fz_b.t0 ALTER id SET DEFAULT (-1), ALGORITHM=INPLACE;
-- [a]
INSERT INTO fz_b.t0 (a) VALUES ('x');
