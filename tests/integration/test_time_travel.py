"""The statements of docs/sinks/query.md, "Time travel", as they stand there: they show the tables as they were."""

import functools
import itertools
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from libs.testing.sink_contract import put, table
from spark.sinks.delta.sink import open_sink as open_delta_sink
from tests.contract.sink_harness import WarehouseHarness
from tests.spark_session import shared_spark

DOCUMENTED_PLACE = "`/data/delta/acme/shop/shop/orders`"
FIRST = [(1, "first")]
NOW = [(1, "second"), (2, "new")]
_tenants = itertools.count()


def blocks(language: str) -> list[str]:
    """Of the section, in order."""
    page = Path("docs/sinks/query.md").read_text(encoding="utf-8")
    _, found, rest = page.partition("## Time travel\n")
    assert found
    [section, *_] = re.split(r"^#{2,3} ", rest, maxsplit=1, flags=re.M)
    return re.findall(rf"```{language}\n(.*?)```", section, re.S)


def statements(block: str) -> list[str]:
    plain = re.sub(r"^--.*$", "", block, flags=re.M)
    return [statement.strip() for statement in plain.split(";") if statement.strip()]


class Written:
    """A table that held ``FIRST`` until ``moment`` and holds ``NOW``."""

    def __init__(self, sink: Any) -> None:
        spark = shared_spark().session
        self.tenant = f"travel{next(_tenants)}"
        harness = WarehouseHarness(spark, sink, lambda _: [], self.tenant)
        orders = table()
        harness.apply(orders, put(1, 1, "first"))
        time.sleep(1.1)
        self.moment = datetime.now(UTC)
        time.sleep(1.1)
        harness.apply(orders, put(2, 1, "second"), put(2, 2, "new"))
        self.place = harness.place(orders)

    def put_into(self, code: str) -> str:
        """``code`` with this table's moment in place of the documented one."""
        return code.replace("2026-11-21 10:00:00", self.moment.strftime("%Y-%m-%d %H:%M:%S.%f"))


@functools.cache
def written_in_iceberg() -> Written:
    """For all who read it."""
    return Written(shared_spark().sink)


def asked(statement: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in shared_spark().session.newSession().sql(statement).collect())


@pytest.mark.timeout(1_800)
def test_iceberg_tables_are_what_they_were() -> None:
    shared, written = shared_spark(), written_in_iceberg()
    with shared.loaded(written.place) as loaded:
        first = loaded.history()[0].snapshot_id
    iceberg, _ = blocks("sql")

    listed, by_version, by_moment, since = (
        asked(
            written.put_into(statement)
            .replace("acme.shop.shop", f"{written.tenant}.shop.shop")
            .replace("4358109269898280281", str(first))
        )
        for statement in statements(iceberg)
    )

    assert first in {row[0] for row in listed}
    assert by_version == by_moment == FIRST
    assert since == NOW


@pytest.mark.rest(because="the gate shows it on Iceberg")
@pytest.mark.timeout(1_800)
def test_delta_tables_are_what_they_were() -> None:
    shared = shared_spark()
    written = Written(open_delta_sink(shared.delta))
    place = "/".join((shared.delta.warehouse_dir, *written.place.identifier))
    _, delta = blocks("sql")

    found = [
        asked(written.put_into(statement).replace(DOCUMENTED_PLACE, f"`{place}`"))
        if not statement.startswith("DESCRIBE")
        else shared.session.sql(statement.replace(DOCUMENTED_PLACE, f"`{place}`")).collect()
        for statement in statements(delta)
    ]

    assert sorted(row["version"] for row in found[0])[:3] == [0, 1, 2]
    assert found[1] == found[2] == FIRST


@pytest.mark.timeout(1_800)
def test_other_engines_tell_the_same_of_iceberg() -> None:
    """pyiceberg and DuckDB, each asked as documented."""
    shared, iceberg = shared_spark(), written_in_iceberg()
    with shared.loaded(iceberg.place) as loaded:
        first = loaded.history()[0].snapshot_id
    in_iceberg, _ = blocks_of_python()
    in_iceberg = (
        iceberg.put_into(in_iceberg)
        .replace("4358109269898280281", str(first))
        .replace("/data/catalog.db", str(shared.iceberg.catalog.file))
        .replace("file:///data/warehouse", Path(shared.iceberg.warehouse_dir).as_uri())
        .replace('"acme"', f'"{iceberg.tenant}"')
    )
    names: dict[str, Any] = {}

    exec(in_iceberg, names)

    assert names["by_snapshot"] == names["by_moment"] == FIRST


@pytest.mark.rest(because="the gate shows it on Iceberg")
@pytest.mark.timeout(1_800)
def test_delta_rs_tells_the_same_of_delta() -> None:
    shared = shared_spark()
    delta = Written(open_delta_sink(shared.delta))
    in_iceberg, in_delta = blocks_of_python()
    imports, _, _ = in_iceberg.partition("moment =")
    place = "/".join((shared.delta.warehouse_dir, *delta.place.identifier))
    names: dict[str, Any] = {"moment": delta.moment}

    exec(imports + in_delta.replace("/data/delta/acme/shop/shop/orders", place), names)

    assert _rows(names["by_version"]) == _rows(names["by_time"]) == FIRST


def blocks_of_python() -> list[str]:
    """Iceberg's, and Delta's."""
    [code] = blocks("python")
    return code.split("# Delta by delta-rs")


def _rows(found: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in pa.table(found).to_pylist()]
