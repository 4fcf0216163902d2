-- found: rows that it may not have, by f = 0.1 of a FLOAT
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`f` = 0.1"}]},"conditions":["{f} = 0.1"]}
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`f` > 0.1"}]},"conditions":["{f} > 0.1"]}
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`f` IN (1.5, 16777217)"}]},"conditions":["{f} IN (1.5, 16777217)"]}
-- [a]
CREATE TABLE v (id INT PRIMARY KEY, f FLOAT);
-- [a]
INSERT INTO v VALUES (1, 0.1), (2, 1.5), (3, 16777217), (4, NULL);
-- [a]
UPDATE v SET f = 0.1 WHERE id > 1;
