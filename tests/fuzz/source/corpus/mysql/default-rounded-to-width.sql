-- found: a double as the DEFAULT of a text is printed with as many digits as the text has room for
-- [a]
ALTER TABLE t0 ALTER COLUMN a SET DEFAULT 3.4028235e38;
