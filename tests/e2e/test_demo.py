"""The demo, as a user runs it: real MySQL, Kafka, services and Spark, three kills -9, and the comparison."""

import re
import sys
from pathlib import Path

import pytest

from tests.headwater_command import headwater_in

DEMO_TIMEOUT_S = 1_600.0


@pytest.mark.promise("killed sink")
@pytest.mark.promise("once and in order")
@pytest.mark.timeout(1_800)
def test_the_demo_delivers_every_row_through_three_kills_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Exit code 0, every table of both tenants equal, latencies measured; no process and no port is left."""
    with headwater_in(tmp_path / "demo") as headwater:
        exit_code, output = headwater.run(
            "demo", "--scale", "0.02", "--traffic-seconds", "20", timeout_s=DEMO_TIMEOUT_S
        )
        sys.stderr.write(output)  # pytest shows it when the test fails

        assert exit_code == 0
        assert headwater.left_over() == []

    assert re.search(r"^[\d,]+ rows \([\d,]+ values\) compared in [\d.]+ s: 0 difference\(s\)$", output, re.M)
    assert re.search(r"^differences +0$", output, re.M)
    assert compared_tables(output) == {
        ("acme", "shop.customers"),
        ("acme", "shop.products"),
        ("acme", "shop.orders"),
        ("acme", "shop.order_items"),
        ("globex", "shop.orders"),
    }
    assert re.search(r"^killed with -9 +router, reader-shop, sink$", output, re.M)
    for hop in ("topic", "table"):
        assert re.search(
            rf"^commit to {hop} .*; p50 [\d.]+ m?s, p99 [\d.]+ m?s with the kills and restarts$", output, re.M
        )


@pytest.mark.rest(because="the gate has MySQL's demo, and each reader by itself")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("source", ["dts", "vitess", "oracle"])
def test_the_demo_follows_other_sources(tmp_path: Path, source: str) -> None:
    """By their stand-ins, with the same kills: every table of both tenants equals the source."""
    with headwater_in(tmp_path / "demo") as headwater:
        scale = "0.2" if source == "oracle" else "0.02"  # of a tenth of the rows
        options = ("--source", source, "--scale", scale, "--traffic-seconds", "20")
        exit_code, output = headwater.run("demo", *options, timeout_s=DEMO_TIMEOUT_S)
        sys.stderr.write(output)

        assert exit_code == 0
        assert headwater.left_over() == []

    assert re.search(r"^differences +0$", output, re.M)
    assert {tenant for tenant, _ in compared_tables(output)} == {"acme", "globex"}
    assert re.search(r"^killed with -9 +.*router", output, re.M)


def compared_tables(output: str) -> set[tuple[str, str]]:
    """Tenant and table of each line that says ``equal`` of more than no rows."""
    lines = re.findall(r"^(\S+) +(\S+) +([\d,]+) rows x +\d+ columns  equal", output, re.M)
    return {(tenant, table) for tenant, table, rows in lines if rows != "0"}
