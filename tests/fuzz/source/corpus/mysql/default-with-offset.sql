-- found: a DEFAULT with an offset was taken as it is written, and the server brings it into the session's time zone
-- [a]
SET SESSION time_zone = '-02:00';
-- [a]
CREATE TABLE d (id INT PRIMARY KEY, a DATETIME(6) NOT NULL DEFAULT '2024-06-01 12:00:00+05:30');
-- [a]
INSERT INTO t0 (id) VALUES (1);
-- [a]
ALTER TABLE t0 ADD COLUMN b DATETIME DEFAULT '2024-06-01 12:00:00+05:30';
