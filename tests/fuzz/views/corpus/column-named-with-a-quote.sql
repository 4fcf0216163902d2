-- found: the router halted: ValueError: Renamed field names must not contain '\', '"'
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`q\"r` = 1"}]},"conditions":["{q\"r} = 1"]}
-- tenant: {"selection":{"name":"fz"}}
-- [a]
CREATE TABLE v (id INT PRIMARY KEY, `q"r` INT);
-- [a]
INSERT INTO v VALUES (1, 1), (2, 2), (3, NULL);
-- [a]
UPDATE v SET `q"r` = 3 - `q"r`;
-- [a]
DELETE FROM v WHERE id = 2;
