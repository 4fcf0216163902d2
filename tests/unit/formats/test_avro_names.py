"""Names made fit for Avro, against those that Debezium 3.5.0's own ``SchemaNameAdjuster`` makes."""

import re

import pytest

from libs.formats.avro_names import adjust_field_name, adjust_schema_name
from libs.types.tenant import NameAdjustment

OF_DEBEZIUM = """
id|id|id|id|id
unit-price|unit_price|unit_u002dprice|unit_price|unit_u002dprice
a.b|a.b|a.b|a_b|a_u002eb
1st|_1st|_u0031st|_1st|_u0031st
_id|_id|_u005fid|_id|_u005fid
a_b|a_b|a_u005fb|a_b|a_u005fb
größe|gr__e|gr_u00f6_u00dfe|gr__e|gr_u00f6_u00dfe
数|_|_u6570|_|_u6570
9-x|_9_x|_u0039_u002dx|_9_x|_u0039_u002dx
a b|a_b|a_u0020b|a_b|a_u0020b
x$|x_|x_u0024|x_|x_u0024
-1|_1|_u002d1|_1|_u002d1
ž|_|_u17e|_|_u17e
eu-1.shop.orders.Value|eu_1.shop.orders.Value|eu_u002d1.shop.orders.Value|eu_1_shop_orders_Value|eu_u002d1_u002eshop_u002eorders_u002eValue
1shop.a_b.c.Key|_1shop.a_b.c.Key|_u0031shop.a_u005fb.c.Key|_1shop_a_b_c_Key|_u0031shop_u002ea_u005fb_u002ec_u002eKey
"""
"""Name, then its class's answers for it as a schema's (avro, avro_unicode) and as a field's (avro, avro_unicode)."""


@pytest.mark.parametrize("line", OF_DEBEZIUM.split("\n")[1:-1])
def test_names_are_those_of_debezium(line: str) -> None:
    """Digits in front, dots, letters beyond ASCII, and the underscore itself, which one mode replaces too."""
    name, *expected = line.split("|")

    adjusted = [
        adjust(name, mode)
        for adjust in (adjust_schema_name, adjust_field_name)
        for mode in (NameAdjustment.AVRO, NameAdjustment.AVRO_UNICODE)
    ]

    assert adjusted == expected
    assert all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", field_name) for field_name in adjusted[2:])
    assert adjust_schema_name(name, NameAdjustment.NONE) == adjust_field_name(name, NameAdjustment.NONE) == name
