"""The model of MySQL's ALTER that sinks are held against is the server's: rows after random statements, asked of a real one."""

import random

from tests.conftest import MysqlServer
from tests.schema_sequences import CREATE, Source, Statement, Written, steps

SEEDS = 25


def test_rows_behind_statements_are_what_the_model_says(mysql_server: MysqlServer, database: str) -> None:
    with mysql_server.connect(database) as connection, connection.cursor() as cursor:
        for seed in range(SEEDS):
            cursor.execute("DROP TABLE IF EXISTS orders")
            cursor.execute(CREATE)
            source, met = Source(), []
            for step in steps(random.Random(seed), source, 14):
                met.append(step)
                match step:
                    case Statement(text=text):
                        cursor.execute(text)
                    case Written(row=row):
                        places = ", ".join(["%s"] * len(row))
                        cursor.execute(f"REPLACE INTO orders ({', '.join(row)}) VALUES ({places})", tuple(row.values()))
            cursor.execute("SELECT * FROM orders")
            names = [each[0] for each in cursor.description or ()]
            rows = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]

            assert {row.pop("id"): row for row in rows} == source.table(), (seed, met)
