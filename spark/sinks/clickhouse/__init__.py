"""The ClickHouse sink: tables of the MergeTree family, written over HTTP."""
