-- found: an unsigned BIGINT came as base64 where its form is text
-- values: {"unsigned_bigint": "string"}
-- [a]
CREATE TABLE u (id BIGINT UNSIGNED PRIMARY KEY, b BIGINT(20) ZEROFILL);
-- [a]
INSERT INTO u VALUES (8, 9), (18446744073709551615, NULL);
-- [a]
UPDATE u SET b = id;
