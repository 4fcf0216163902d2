"""Numbers within JSON as the server printed them (MySQL 9.7, ``CAST(JSON_ARRAY(d) AS CHAR)``)."""

import pytest

from libs.mysql.json_binary import double_text


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (999999999999999.9, "999999999999999.9"),
        (9.9999995e14, "999999950000000.0"),
        (9.9999995e15, "9.9999995e15"),
        (1e15, "1e15"),
        (1e14, "100000000000000.0"),
        (1.5e15, "1.5e15"),
        (1234567890123456.0, "1.234567890123456e15"),
        (1006569242078552.2, "1006569242078552.2"),  # a fraction, so no exponent
        (-3082402946346505.5, "-3082402946346505.5"),
        (1e16, "1e16"),
        (1.234567e-15, "0.000000000000001234567"),
        (-1.2345678901234567e-14, "-0.000000000000012345678901234567"),
        (1.2345678901234567e-5, "0.000012345678901234568"),
        (0.1, "0.1"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
    ],
)
def test_a_double_is_printed_as_mysql_prints_it(value: float, printed: str) -> None:
    assert double_text(value) == printed
