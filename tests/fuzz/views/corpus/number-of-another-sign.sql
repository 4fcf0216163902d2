-- found: MySQL takes -1 to be IN a list of decimals and 18446744073709551615; such a list is refused
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`d` IN (2., 18446744073709551615, 255)"}]},"conditions":["{d} IN (2., 18446744073709551615, 255)"]}
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`u` IN (1., -1)"}]},"conditions":["{u} IN (1., -1)"]}
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`d` IN (-1, 18446744073709551615)"}]},"conditions":["{d} IN (-1, 18446744073709551615)"]}
-- [a]
CREATE TABLE v (id INT PRIMARY KEY, d TINYINT, u BIGINT UNSIGNED);
-- [a]
INSERT INTO v VALUES (1, -1, 18446744073709551615), (2, 2, 1), (3, 0, 0);
