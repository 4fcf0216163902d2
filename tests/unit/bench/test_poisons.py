"""The twenty kinds of poison that ``bench fairness`` lays beside quiet tenants: each harms the poisoned one alone."""

import msgspec
import pytest
from structlog.testing import capture_logs

from bench.poisons import POISONS, Poison, document_of, odd_tables
from libs.tenants.document import read_tenant
from libs.tenants.row_filter import condition_mistakes
from libs.types.table import TableId
from tests.fuzz.poison import delivered_beside
from tests.integration.router_rig import order_row, orders_schema, row_value

ROW = row_value("c", None, order_row(1))


def test_there_are_twenty_kinds() -> None:
    assert len({each.name for each in POISONS}) == 20


def test_a_plain_document_is_taken() -> None:
    mistakes: list[str] = []

    assert read_tenant(document_of("poisoned", "s", "shop", None), mistakes=mistakes) is not None, mistakes


@pytest.mark.parametrize("poison", POISONS, ids=lambda poison: poison.name)
def test_a_kind_of_poison_costs_nobody_else_a_row(poison: Poison) -> None:
    """Its document is refused in words, or taken; then its names and values meet the router beside another tenant."""
    mistakes: list[str] = []
    text = document_of("poisoned", "s", "shop", poison)
    parsed = read_tenant(text, mistakes=mistakes, check_condition=condition_mistakes)
    tables = odd_tables("poisoned", "shop") if poison.table else [TableId(database="shop", table="poisoned")]

    with capture_logs() as told:
        for table in tables:
            schema = msgspec.structs.replace(orders_schema(), table_id=table)
            delivered = delivered_beside(schema, parsed and parsed.spec, [(b'{"id":1}', poison.value or ROW)])
            assert delivered == 1

    assert (parsed is None) == bool(mistakes)
    assert not [each for each in told if each["event"] == "refused_unforeseen"]
