"""The peers: jars pinned as the product's are, figures that mean their names, tables like ours."""

import pytest

from bench import plain_merge
from bench.catch_up import steady_cpu_s
from bench.sink import SCHEMA
from libs.warehouse.spark_types import spark_type


def test_a_warm_up_in_the_first_half_costs_no_steady_cpu() -> None:
    samples = [(0, 5.0), (0, 15.0), (50, 20.0), (75, 21.0), (100, 22.0)]

    assert steady_cpu_s(samples) == pytest.approx(4.0)


def test_the_plain_merge_writes_the_columns_that_the_mirror_has() -> None:
    assert {item.name: spark_type(item) for item in SCHEMA.columns} == {
        name: sql_type.lower() for name, sql_type in plain_merge.COLUMNS.items()
    }
