"""The settings of an Oracle source: which tables are captured."""

from libs.source.oracle.capture import capture_filter
from libs.types.table import TableId


def captured(name: str, *, include: tuple[str, ...] = (".*",), exclude: tuple[str, ...] = ()) -> bool:
    schema, _, table = name.partition(".")
    return capture_filter(include, exclude, "OPS.SIGNALS")(TableId(database=schema, table=table))


def test_tables_are_chosen_by_their_whole_name_in_oracles_case() -> None:
    assert captured("SHOP.ORDERS", include=(r"SHOP\..*",))
    assert not captured("SHOP.orders", include=(r"SHOP\.ORDERS",))
    assert not captured("SHOPPING.ORDERS", include=(r"SHOP\..*",))
    assert not captured("SHOP.ORDERS", exclude=(r"SHOP\.ORD.*",))
    assert captured("OPS.SIGNALS", include=(r"SHOP\..*",))


def test_oracles_own_schemas_and_dropped_tables_are_never_captured() -> None:
    assert not captured("SYS.OBJ$")
    assert not captured("SHOP.BIN$4q==$0")
