"""Flink's SQL on a tenant's topic, by its own Kafka connector and its format debezium-json."""

import datetime as dt
from decimal import Decimal
from typing import Any, Final

import pytest

from tests.consumers import every_type
from tests.consumers.conftest import Publish
from tests.consumers.java import java

pytestmark = pytest.mark.rest(because="the gate holds events to Debezium's recorded ones")
MODES: Final = {"time_precision": "isostring", "decimal": "string", "unsigned_bigint": "string"}
"""Flink reads neither base64 as a DECIMAL nor days since 1970 as a DATE; its format takes texts."""
TYPES: Final = {
    "id": "BIGINT",
    "tiny": "SMALLINT",
    "flag": "SMALLINT",
    "small": "SMALLINT",
    "medium": "INT",
    "num": "INT",
    "positive": "BIGINT",
    "big": "BIGINT",
    "amount": "DECIMAL(20, 4)",
    "part": "FLOAT",
    "ratio": "DOUBLE",
    "one_bit": "BOOLEAN",
    "day": "STRING",
    "clock": "STRING",
    "seen": "TIMESTAMP_LTZ(6)",
    "seen3": "TIMESTAMP_LTZ(6)",
    "seen6": "TIMESTAMP_LTZ(6)",
    "stamped": "TIMESTAMP_LTZ(6)",
    "made": "INT",
    "code": "BYTES",
    "raw_bytes": "BYTES",
    "pile": "BYTES",
    "kind": "STRING",
    "tags": "STRING",
    "letter": "STRING",
    "name": "STRING",
    "note": "STRING",
    "doc": "STRING",
    "extra": "INT",
}
OPENS: Final = (
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.time=ALL-UNNAMED",
)


def test_flinks_table_holds_the_sources_rows(publish: Publish) -> None:
    """The changelog that Flink makes of the events, added up: inserts, updates, deletes and tombstones, a later column."""
    source = publish(MODES, {"plain": {"sink": None}})
    columns = ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items())
    options = {
        "connector": "kafka",
        "topic": source.topic("plain"),
        "properties.bootstrap.servers": source.kafka.bootstrap_servers,
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": "debezium-json",
        "debezium-json.timestamp-format.standard": "ISO-8601",
    }
    told = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    rows: dict[int, every_type.Row] = {}
    with java("flink", *OPENS) as jvm:
        table_api = jvm.org.apache.flink.table.api
        environment = table_api.TableEnvironment.create(table_api.EnvironmentSettings.inStreamingMode())
        environment.getConfig().set("table.local-time-zone", "UTC")
        environment.getConfig().set("parallelism.default", "1")
        environment.executeSql(f"CREATE TABLE t ({columns}) WITH ({told})")
        found = environment.executeSql("SELECT * FROM t").collect()
        while found.hasNext():
            row = found.next()
            values = {name: _plain(name, row.getField(name)) for name in TYPES}
            if row.getKind().shortString() in ("+I", "+U"):
                rows[values["id"]] = values
            else:
                del rows[values["id"]]
        found.close()

    expected = source.stored()
    before_the_column = [key for key, row in rows.items() if row["extra"] is None]
    assert sorted(before_the_column) == [1, 3, 5, 8]  # an ADD COLUMN writes no rows
    for key in before_the_column:
        rows[key]["extra"] = expected[key]["extra"]
    assert every_type.differences(rows, expected) == []


def _plain(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "amount":
        return Decimal(value.toPlainString()) if hasattr(value, "toPlainString") else value
    if name in ("seen", "seen3", "seen6", "stamped"):
        moment = dt.datetime.fromisoformat(value.toString().replace("Z", "+00:00"))
        return moment.replace(tzinfo=None)
    if name == "day":
        return dt.date.fromisoformat(value.removesuffix("Z"))
    if name == "clock":
        return dt.time.fromisoformat(value.removesuffix("Z"))
    return every_type.plain({name: value})[name]
