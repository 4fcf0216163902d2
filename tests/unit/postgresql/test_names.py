"""Names in a PostgreSQL warehouse."""

import pytest

from libs.postgresql.names import MAX_BYTES, schema_name, template_mistake
from libs.types.warehouse import WarehouseTable


@pytest.mark.parametrize(
    ("template", "namespace", "expected"),
    [
        ("{tenant}_{source}_{database}", ("acme", "shop", "s"), "acme_shop_s"),
        ("{tenant}_{source}_{database}", ("pg", "shop", "s"), "_pg_shop_s"),
        ("{database}", ("acme", "shop", "headwater"), "_headwater"),
        ("{database}", ("acme", "shop", "information_schema"), "_information_schema"),
        ("{database}", ("acme", "shop", "pga"), "pga"),
    ],
)
def test_no_tenant_gets_a_schema_of_the_servers_or_of_headwaters(
    template: str, namespace: tuple[str, ...], expected: str
) -> None:
    """PostgreSQL refuses to make a schema ``pg_…``, and a tenant's tables must not lie among Headwater's own."""
    assert schema_name(template, WarehouseTable(namespace=namespace, name="t")) == expected


def test_a_long_name_is_cut_behind_the_mark() -> None:
    """It still fits."""
    name = schema_name("{tenant}_{database}", WarehouseTable(namespace=("pg", "shop", "d" * 70), name="t"))

    assert name.startswith("_pg_ddd")
    assert len(name.encode()) == MAX_BYTES


@pytest.mark.parametrize("template", ["pg_{tenant}", "headwater", "information_schema", ""])
def test_a_template_of_such_names_is_refused(template: str) -> None:
    mistake = template_mistake(template)

    assert mistake is not None
    assert "no name that a schema of tenants may have" in mistake
