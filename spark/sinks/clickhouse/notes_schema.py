"""The tables in which Headwater notes the batches that ClickHouse's tables took in."""

from typing import Final

from libs.clickhouse.names import BATCHES, INTENTS, PROGRESS, STATE_DATABASE, quoted

NOTED_COLUMNS: Final = (
    "name, source, source_table, query_id, batch_id, reached_order, reached_at, reached_offsets, reached_positions"
)
_NOTE: Final = """name String, source String, source_table String, query_id String, batch_id Int64,
        written_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC'), reached_order String, reached_at DateTime64(6, 'UTC'),
        reached_offsets String, reached_positions String"""
NOTES_SCHEMA: Final = (
    f"CREATE DATABASE IF NOT EXISTS {quoted(STATE_DATABASE)}",
    f"""CREATE TABLE IF NOT EXISTS {BATCHES} ({_NOTE})
        ENGINE = ReplacingMergeTree ORDER BY name
        COMMENT 'Tables that Headwater writes, and the last batch that each took in; read it with FINAL'""",
    f"""CREATE TABLE IF NOT EXISTS {INTENTS} ({_NOTE}, least_order String, greatest_order String)
        ENGINE = ReplacingMergeTree ORDER BY name
        COMMENT 'Logs that Headwater writes, and the last batch whose rows were to be attached to each; read it with FINAL'""",
    f"""CREATE OR REPLACE VIEW {PROGRESS} AS
        SELECT splitByChar('.', name)[1] AS tenant, source, source_table AS table,
            JSONExtractString(p, 'source_partition') AS source_partition, JSONExtractRaw(p, 'position') AS position,
            JSONExtractString(p, 'order') AS position_order, reached_order AS order, reached_at AS committed_at,
            reached_offsets AS offsets, concat(query_id, ':', toString(batch_id)) AS batch, written_at
        FROM {BATCHES} FINAL LEFT ARRAY JOIN JSONExtractArrayRaw(reached_positions) AS p
        WHERE query_id <> ''""",
)
"""Statements that make them; repeated, they change nothing."""
