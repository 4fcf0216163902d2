"""Which JSON columns become VARIANT."""

from libs.mysql.logical import column
from libs.types.table import TableId, TableSchema
from libs.types.value import LogicalKind
from libs.warehouse.dialect import DIALECTS
from libs.warehouse.json_variants import with_variants

SCHEMA = TableSchema(
    table_id=TableId(database="shop", table="orders"),
    columns=(
        column("id", "json", is_optional=False),
        column("doc", "json", is_optional=False),
        column("more", "json"),
        column("note", "text", charset="utf8mb4"),
        column("at", "point"),
    ),
    key=("id",),
    version=3,
)


def kinds(*patterns: str) -> dict[str, LogicalKind]:
    return {item.name: item.logical_type.kind for item in with_variants(SCHEMA, patterns).columns}


def test_json_columns_that_are_named_are_variant() -> None:
    """None but JSON, and none of a key's: all else of the column stays."""
    assert kinds() == {item.name: item.logical_type.kind for item in SCHEMA.columns}
    assert kinds(r"shop\.orders\.d.*", "nothing") == {**kinds(), "doc": LogicalKind.JSON_VARIANT}
    assert kinds("shop") == kinds()
    assert kinds(".*") == {**kinds(), "doc": LogicalKind.JSON_VARIANT, "more": LogicalKind.JSON_VARIANT}
    changed = with_variants(SCHEMA, [".*"])
    assert (changed.version, changed.key, changed.column("doc").is_optional) == (3, ("id",), False)
    types = {name: DIALECTS[name].shown(DIALECTS[name].type_of(changed.column("doc"))) for name in ("iceberg", "delta")}
    assert types == {"iceberg": "variant", "delta": "variant"}
