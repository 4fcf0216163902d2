"""Which tables the sink parks as they are."""

import pytest

from libs.mysql.logical import column
from libs.types.table import TableId, TableSchema
from libs.types.tenant import Deletes, SinkMode
from libs.warehouse.dialect import DIALECTS
from libs.warehouse.fitness import unfit_because

ID = column("id", "int", is_optional=False)


@pytest.mark.parametrize(
    ("names", "key", "mode", "deletes", "warehouse", "reason"),
    [
        ((), (), SinkMode.MIRROR, Deletes.HARD, "iceberg", "no primary key"),
        ((), (), SinkMode.HISTORY, Deletes.HARD, "iceberg", "no primary key"),
        ((), (), SinkMode.APPEND, Deletes.HARD, "iceberg", None),
        (("_Headwater_x",), ("id",), SinkMode.MIRROR, Deletes.HARD, "delta", "Headwater's own in mode mirror"),
        (("valid_from",), ("id",), SinkMode.HISTORY, Deletes.HARD, "delta", "Headwater's own in mode history"),
        (("valid_from",), ("id",), SinkMode.MIRROR, Deletes.SOFT, "delta", None),
        (("_POS",), ("id",), SinkMode.MIRROR, Deletes.HARD, "iceberg", "keeps this name for itself"),
        (("_POS",), ("id",), SinkMode.MIRROR, Deletes.HARD, "postgresql", None),
        ((), ("id",), SinkMode.HISTORY, Deletes.HARD, "postgresql", None),
    ],
)
def test_what_cannot_be_kept_is_named(
    names: tuple[str, ...], key: tuple[str, ...], mode: SinkMode, deletes: Deletes, warehouse: str, reason: str | None
) -> None:
    """With the table, and the column where it is one."""
    schema = TableSchema(
        table_id=TableId(database="shop", table="orders"),
        columns=(ID, *(column(name, "int") for name in names)),
        key=key,
    )

    because = unfit_because(schema, mode, deletes, DIALECTS[warehouse])

    if reason is None:
        assert because is None
    else:
        assert because is not None
        assert reason in because
        assert because.startswith("shop.orders")
