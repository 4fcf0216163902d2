"""Which rows are asked for again, in the words that a source's reader takes."""

import pytest

from libs.local.check.projection import ExpectedColumn, ExpectedTable
from libs.local.check.repair import enclosing_condition
from libs.types.table import TableId


@pytest.mark.parametrize(
    ("key", "types", "keys", "condition"),
    [
        (("id",), {"id": "bigint"}, [(7,), (-2,), (5,)], "`id` >= -2 AND `id` <= 7"),
        (("a", "b"), {"a": "int", "b": "tinyint"}, [(1, 9), (3, 4)], "`a` >= 1 AND `a` <= 3 AND `b` >= 4 AND `b` <= 9"),
        (("code", "id"), {"code": "varchar", "id": "int"}, [("x", 4)], "`id` >= 4 AND `id` <= 4"),
        (("code",), {"code": "varchar"}, [("x",), ("y",)], ""),
    ],
)
def test_a_keyspace_is_asked_for_all_between_the_rows_that_differ(
    key: tuple[str, ...], types: dict[str, str], keys: list[tuple[object, ...]], condition: str
) -> None:
    """vtgate takes neither OR nor, in most releases, IN; of a key without a whole number all rows are read."""
    columns = tuple(ExpectedColumn(name, kind, None, name) for name, kind in types.items())
    table = ExpectedTable(TableId(database="shop", table="items"), key, columns, None)

    assert enclosing_condition(table, keys) == condition
