-- found: rows that it may not have, by y >= 2 of a YEAR
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`y` >= 2"}]},"conditions":["{y} >= 2"]}
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`y` >= 2002 OR `y` = 0"}]},"conditions":["{y} >= 2002 OR {y} = 0"]}
-- [a]
CREATE TABLE v (id INT PRIMARY KEY, y YEAR);
-- [a]
INSERT INTO v VALUES (1, 1901), (2, 2002), (3, 0), (4, '0'), (5, 99);
