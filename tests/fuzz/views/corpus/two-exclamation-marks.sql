-- found: rows that it lacks, by !!(a = 1), which MySQL takes for !(a = 1)
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"!!(`a` = 1)"}]},"conditions":["!!({a} = 1)"]}
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"! !(`a` = 1)"}]},"conditions":["! !({a} = 1)"]}
-- [a]
CREATE TABLE v (id INT PRIMARY KEY, a INT);
-- [a]
INSERT INTO v VALUES (1, 1), (2, 2), (3, NULL);
