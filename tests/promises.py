"""The promises of README.md. Each is shown by a test of the gate at least, which carries ``@pytest.mark.promise(name)``.

A run of all tests, or of the gate, ends at once where one is shown by none.
"""

from typing import Final

PROMISES: Final = {
    "once and in order": "delivers every committed row change, once and in order",
    "what a tenant gets": "says which tables, rows and columns it gets, and how they are masked",
    "killed reader": "killed at any moment resumes exactly where its last visible event ended",
    "router's transaction": "together with its own consumer offset, again in one transaction",
    "bytes untouched": "gets the reader's bytes untouched",
    "batch run again": "so a batch that is run again changes nothing",
    "killed sink": "three kills -9 on the way, compared row by row",
    "every warehouse": "merges them into Iceberg, PostgreSQL, Delta or ClickHouse",
    "every source": "A Vitess keyspace (`kind: vitess`) is followed by",
    "pre-flight": "lists everything that is missing, each with the statement that mends it",
    "check": "source and warehouse, every row and column, while both are at work",
    "resync": "a doubted table built anew from the source, and swapped in",
    "retry": "a table that the warehouse refused tried again now, once the cause is mended",
    "rebuild": "a table as it was, from its log",
    "erase": "what would go, were everything of a tenant removed",
    "snapshot for one": "the rows that a table has already, to one tenant alone",
    "tenant plan": "what a tenant's document would change",
    "schema plan": "what it would do to the tenants' tables",
    "commands": "./headwater tail acme orders",
    "migration": "begins with `headwater migrate debezium CONFIG.json`",
    "chart": "the Helm chart and the images",
}
"""The sentence of README.md by the promise's name."""
