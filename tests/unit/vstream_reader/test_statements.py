"""The tables that a statement in the stream is known to be about."""

import pytest

from libs.mysql.logical import column
from libs.types.table import TableId, TableSchema
from services.vstream_reader.table_versions import tables_of

T = TableId(database="ks", table="t")
KNOWN = {T: TableSchema(table_id=T, columns=(column("id", "int"),), key=("id",))}


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("TRUNCATE TABLE t", {T: True}),
        ("/* nightly */ truncate t", {T: True}),
        ("-- nightly\nTRUNCATE `ks`.`t`", {T: True}),
        ("ALTER TABLE t ADD COLUMN truncated INT", {T: False}),
        ("ALTER TABLE t RENAME TO u", {T: False, TableId(database="ks", table="u"): False}),
        ("CREATE VIEW v AS SELECT 1", {}),
    ],
)
def test_a_truncation_is_known_however_it_is_written(statement: str, found: dict[TableId, bool]) -> None:
    assert tables_of(KNOWN, "ks", statement) == found
