"""The promises of README.md. Each is shown by a test of the gate at least, which carries ``@pytest.mark.promise(name)``.

A run of all tests, or of the gate, ends at once where one is shown by none.
"""

from typing import Final

PROMISES: Final = {
    "once and in order": "delivers every committed row change, once and in order",
    "what a tenant gets": "it names the tenant's tables, rows and columns, and masks columns",
    "killed reader": "killed at any moment resumes exactly where its last visible event ended",
    "router's transaction": "together with its own consumer offset, again in one transaction",
    "bytes untouched": "gets the reader's bytes untouched",
    "batch run again": "so a batch that is run again changes nothing",
    "killed sink": "three kills -9 on the way, compared row by row",
    "every warehouse": "merges them into Iceberg, PostgreSQL, Delta or ClickHouse",
    "every source": "A Vitess keyspace (`kind: vitess`) is followed by",
    "pre-flight": "lists every missing setting and grant, each with the statement that adds it",
    "check": "compares source and warehouse, every row and column, while both are in use",
    "resync": "builds a table again from the source, and swaps it in with one commit",
    "retry": "tries a refused table again now, after you have removed the cause",
    "rebuild": "builds a table as it was at a past moment, from its log",
    "erase": "lists everything that erasing a tenant would remove",
    "snapshot for one": "copies existing rows to one tenant alone",
    "tenant plan": "shows the changes that a tenant's document would make",
    "schema plan": "shows the effect of a DDL statement on the tenants' tables",
    "commands": "./headwater tail acme orders",
    "migration": "begins with `headwater migrate debezium CONFIG.json`",
    "chart": "the Helm chart and the images",
}
"""The sentence of README.md by the promise's name."""
