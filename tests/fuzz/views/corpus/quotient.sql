-- found: rows that it may not have, by id / 18446744073709551615 NOT IN (FALSE)
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`id` / 18446744073709551615 NOT IN (FALSE)"}]},"conditions":["{id} / 18446744073709551615 NOT IN (FALSE)"]}
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`d` / `id` / 3 = 0.0834"}]},"conditions":["{d} / {id} / 3 = 0.0834"]}
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`d` / 3 * 3 <> `d`"}]},"conditions":["{d} / 3 * 3 <> {d}"]}
-- tenant: {"selection":{"name":"fz","row_filters":[{"tables":"fz_a\\.v","where":"`e` * `e` * `e` > 0"}]},"conditions":["{e} * {e} * {e} > 0"]}
-- [a]
CREATE TABLE v (id INT PRIMARY KEY, d DECIMAL(12,2), e DECIMAL(65,30));
-- [a]
INSERT INTO v VALUES (1, 0.25, 1e-15), (2, 0.5, 1e-10), (3, 100, 0.000000000100000000000000000001), (4, -0.01, 1);
