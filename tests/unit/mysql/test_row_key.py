"""Keys that several rows may share in JSON."""

import orjson
import pytest

from libs.mysql.ddl import show_create_to_schema
from libs.mysql.logical import in_value_modes
from libs.mysql.row_key import may_be_shared
from libs.types.table import TableId
from libs.types.value_modes import DecimalMode, TimePrecision, ValueModes

DEFAULT = ValueModes()
ISO = ValueModes(time_precision=TimePrecision.ISO_STRING)
COARSE = ValueModes(time_precision=TimePrecision.CONNECT, decimal=DecimalMode.DOUBLE)
DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("of", "modes", "shared", "own"),
    [
        # 2024-03-01 may be 2024-02-30, 2024-05-01 may be 2024-04-31.
        ("date", DEFAULT, [0, 19_783, 19_844], [1, 19_782, 19_786, 19_843, -400]),
        ("date", ISO, ["1970-01-01Z", "2024-03-03Z"], ["2024-03-04Z", "2024-01-01Z"]),
        ("datetime(6)", DEFAULT, [0, 5], [DAY_US, -1]),
        ("datetime(6)", COARSE, [86_400_000], []),
        ("datetime(3)", COARSE, [0], [86_400_000]),
        ("time(6)", COARSE, [5], []),
        ("time(3)", COARSE, [], [5]),
        ("decimal(20,0)", COARSE, [1e19], []),
        ("decimal(15,2)", COARSE, [], [1e12]),
        ("decimal(20,0)", DEFAULT, [], ["AQ=="]),
        ("enum('a','')", DEFAULT, [""], ["a"]),
        ("enum('a','b')", DEFAULT, [], ["", "a"]),
        ("varchar(9)", DEFAULT, [], ["", "a"]),
    ],
)
def test_a_value_that_several_rows_may_have_is_known(
    of: str, modes: ValueModes, shared: list[object], own: list[object]
) -> None:
    """As the event's key (an object) and as the table's own (a list) alike."""
    table = f"CREATE TABLE `t` (`n` int NOT NULL, `k` {of} NOT NULL, PRIMARY KEY (`n`,`k`))"
    schema = in_value_modes(show_create_to_schema(TableId(database="s", table="t"), table, "utf8mb4"), modes)

    assert [v for v in [*shared, *own] if may_be_shared(schema, orjson.dumps({"k": v, "n": 0}))] == shared
    assert [v for v in [*shared, *own] if may_be_shared(schema, orjson.dumps([0, v]))] == shared
