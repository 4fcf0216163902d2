"""Types of Oracle's columns in Oracle's words."""

import pytest

from libs.oracle.logical import column
from libs.oracle.source_types import source_type

SOURCE = "__debezium.source.column."


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("NUMBER", {"type": "NUMBER", "length": "38"}),
        ("NUMBER(9,2)", {"type": "NUMBER", "length": "9", "scale": "2"}),
        ("VARCHAR2(40)", {"type": "VARCHAR2", "length": "40"}),
        ("TIMESTAMP(3) WITH TIME ZONE", {"type": "TIMESTAMP(3) WITH TIME ZONE", "length": "3"}),
        ("INTERVAL DAY(2) TO SECOND(6)", {"type": "INTERVAL DAY(2) TO SECOND(6)", "length": "2", "scale": "6"}),
        ("DATE", {"type": "DATE"}),
    ],
)
def test_a_type_has_its_name_and_sizes(written: str, told: dict[str, str]) -> None:
    parameters = source_type(column("c", written)).parameters("c")

    assert parameters == {f"{SOURCE}{name}": value for name, value in {**told, "name": "c"}.items()}
