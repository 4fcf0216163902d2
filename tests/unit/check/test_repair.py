"""Which rows are asked for again, in the words that a source's reader takes."""

from pathlib import Path

import pytest

from libs.check.compare import MISSING, Comparison, Difference
from libs.check.compared import stack_compared
from libs.check.projection import ExpectedColumn, ExpectedTable
from libs.check.repair import enclosing_condition, not_mended
from libs.check.run import TableCheck
from libs.mesh.documents import DatabaseDocument, Documents, MysqlDocument
from libs.mesh.home import home_at
from libs.types.table import TableId
from libs.types.tenant import SinkMode, SinkSettings, SourceSelection, TenantSpec


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


@pytest.mark.parametrize(
    ("mode", "mend"),
    [
        (SinkMode.MIRROR, "`headwater resync acme shop.items` does"),
        (SinkMode.APPEND, "delete them in the warehouse"),
        (SinkMode.HISTORY, "delete them in the warehouse"),
    ],
)
def test_of_rows_that_only_the_warehouse_has_it_is_said_what_takes_them_away(mode: SinkMode, mend: str) -> None:
    source = MysqlDocument(database=DatabaseDocument(host="db", user="reader"), include_tables=(r"shop\..*",))
    spec = TenantSpec(tenant="acme", sources=(SourceSelection(name="shop"),), sink=SinkSettings(mode=mode))
    documents = Documents(sources={"shop": source}, tenants={"acme": spec}, source_mistakes=(), tenant_mistakes=())
    mesh = stack_compared(home_at(Path("nowhere")), documents, is_up=False)
    only_there = Difference(key=(7,), column=None, source=MISSING, warehouse=(7, "x"))
    changed = Difference(key=(8,), column="note", source="a", warehouse="b")

    def told(*first: Difference) -> str | None:
        table = ExpectedTable(TableId(database="shop", table="items"), ("id",), (), None)
        comparison = Comparison(rows_compared=9, rows_different=len(first), first=list(first))
        return not_mended(TableCheck("acme", "shop", table, comparison, ("id",), is_sure=True), mesh)

    assert told(changed) is None
    assert (told(only_there, changed) or "").endswith(f"reading again takes none away; {mend}")
