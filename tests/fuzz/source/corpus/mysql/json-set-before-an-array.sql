-- found: a cell that JSON_SET puts before an array's first one was refused: the row was set aside
-- [a]
SET binlog_row_value_options='PARTIAL_JSON';
-- [a]
CREATE TABLE t (id INT PRIMARY KEY, k JSON);
-- [a]
INSERT INTO t VALUES (1,'[1,[2,3],{"a":"pppppppppppppppppppppppppppppppppppppp"},4]');
-- [a]
UPDATE t SET k=JSON_SET(k,'$[last-9]','front');
-- [a]
UPDATE t SET k=JSON_SET(k,'$[2][last-2]','inner','$[last][last-1]','wrapped');
