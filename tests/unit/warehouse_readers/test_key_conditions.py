"""Of an Iceberg or Delta table that is asked for some keys, files without such keys are not opened."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from libs.mesh.home import Home, home_at
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from libs.warehouse_readers.delta import DeltaWarehouse
from libs.warehouse_readers.warehouse import (
    IcebergWarehouse,
    KeyCondition,
    KeySpans,
    Span,
    StoredTable,
    TextSpan,
    all_of,
    few_spans,
    open_catalog,
    rows_of,
    spans_sql,
)
from tests.unit.warehouse_readers.warehouse_files import write_table

PLACE = warehouse_table("acme", "shop", TableId(database="shop", table="orders"))
TYPES = (pa.int32(), pa.int64(), pa.decimal128(20, 0))


def batch_of(kind: pa.DataType, *ids: int | None) -> pa.Table:
    numbers = [Decimal(each) if each is not None and pa.types.is_decimal(kind) else each for each in ids]
    return pa.table({"id": pa.array(numbers, kind), "code": ["x" if each is None else f"c{each}" for each in ids]})


def files(folder: Path) -> set[Path]:
    return set(folder.rglob("*.parquet"))


def two_files(home: Home, warehouse: str, near: pa.Table, far: pa.Table) -> tuple[StoredTable, Path]:
    """A table of two files, and the one that holds ``far``."""
    if warehouse == "iceberg":
        write_table(home, "acme", "shop", "shop.orders", near)
        before = files(home.warehouse_dir)
        open_catalog(home.catalog_file, home.warehouse_dir).load_table(PLACE.identifier).append(far)
        [added] = files(home.warehouse_dir) - before
        stored = IcebergWarehouse(home.catalog_file, home.warehouse_dir).load(PLACE)
    else:
        folder = home.delta_dir.joinpath(*PLACE.identifier)
        folder.mkdir(parents=True)
        write_deltalake(str(folder), near)
        before = files(folder)
        write_deltalake(str(folder), far, mode="append")
        [added] = files(folder) - before
        stored = DeltaWarehouse(home.delta_dir).load(PLACE)
    assert stored is not None
    return stored, added


def codes(stored: StoredTable, folder: Path, only: KeyCondition) -> Iterator[str]:
    for batch in stored.sorted_rows(("code",), ("code",), only=only, temporary_dir=folder):
        yield from (code for code, *_ in rows_of(batch))


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("warehouse", ["iceberg", "delta"])
def test_files_outside_of_what_is_asked_for_are_not_read(tmp_path: Path, warehouse: str, kind: pa.DataType) -> None:
    """The other one is gone from the disk. Where there is no lower bound, a row without a key is asked for too."""
    stored, far = two_files(home_at(tmp_path), warehouse, batch_of(kind, 1, 2, None), batch_of(kind, 90, 99))
    far.unlink()

    def within(*spans: Span) -> KeyCondition:
        return KeyCondition("true", (KeySpans("id", spans),))

    assert list(codes(stored, tmp_path, within((2, 50)))) == ["c2"]
    assert list(codes(stored, tmp_path, within((None, 50)))) == ["c1", "c2", "x"]
    assert list(codes(stored, tmp_path, within((-(2**70), 1), (2, 2)))) in (["c1", "c2"], ["c1", "c2", "x"])
    with pytest.raises(Exception, match=r"(?i)no such file|not ?found"):
        list(codes(stored, tmp_path, within((2, 2**70))))


@pytest.mark.parametrize("warehouse", ["iceberg", "delta"])
def test_files_outside_of_the_texts_that_are_asked_for_are_not_read(tmp_path: Path, warehouse: str) -> None:
    """A row without a text is in no span."""
    near, far = batch_of(pa.int64(), 1, 2, None), batch_of(pa.int64(), 90, 99)
    stored, gone = two_files(home_at(tmp_path), warehouse, near, far)
    gone.unlink()

    def found(low: str, high: str) -> list[str]:
        return list(codes(stored, tmp_path, KeyCondition("true", texts=(TextSpan("code", low, high),))))

    assert found("", "c2") == ["c1", "c2"]
    assert found("c2", "c3") == ["c2"]
    with pytest.raises(Exception, match=r"(?i)no such file|not ?found"):
        found("c2", "c91")


def test_rows_of_a_delta_table_are_looked_up_without_reading_all_of_it(tmp_path: Path) -> None:
    """By numbers and by texts, as a second look does."""
    stored, far = two_files(home_at(tmp_path), "delta", batch_of(pa.int64(), 1, 2), batch_of(pa.int64(), 90, 99))
    far.unlink()

    def found(column: str, *values: int | str) -> list[str]:
        batches = stored.sorted_rows(("code",), ("code",), among=(column, values), temporary_dir=tmp_path)
        return [code for batch in batches for code, *_ in rows_of(batch)]

    assert found("id", 1, 2) == found("code", "c1", "c2") == ["c1", "c2"]
    assert found("code", "it's") == []


def test_decimals_of_a_delta_table_are_what_they_are(tmp_path: Path) -> None:
    """delta-rs gives rows another number than theirs where a file's least and greatest are the same double."""
    numbers = (2**62 + 5, 2**62 + 9)
    stored, _ = two_files(
        home_at(tmp_path), "delta", batch_of(pa.decimal128(20, 0), *numbers), batch_of(pa.decimal128(20, 0), 1)
    )

    for spans in ((2**62, 2**63), (0, None), (0, 2**62 + 9)):
        only = KeyCondition("id > 1", (KeySpans("id", (spans,)),))
        batches = stored.sorted_rows(("id",), ("id",), only=only, temporary_dir=tmp_path)
        assert [row[0] for batch in batches for row in rows_of(batch)] == [Decimal(number) for number in numbers]


def test_conditions_are_met_together() -> None:
    first = KeyCondition("(a)", (KeySpans("k", ((1, 2),)),))

    assert all_of(None, first, KeyCondition("(b)")) == KeyCondition("(a) AND (b)", first.within)
    of_texts = KeyCondition("(c)", texts=(TextSpan("t", "", "x"),))
    assert all_of(first, of_texts) == KeyCondition("(a) AND (c)", first.within, of_texts.texts)
    assert all_of(None) is None
    assert spans_sql("k", [(None, None), (None, 1), (2, None), (3, 4)]) == (
        "(1 = 1 OR k IS NULL OR k <= 1 OR k >= 2 OR k BETWEEN 3 AND 4)"
    )


def test_no_number_is_written_that_64_bits_do_not_hold() -> None:
    """Rows beyond a bound that is left out may be read in vain, and nothing is missed."""
    spans = KeySpans("k", ((2**63 - 1, 2**63), (2**64 - 5, 2**64 - 1), (-(2**63), -(2**70))))

    [clamped] = few_spans(KeyCondition("", (spans,)))

    assert clamped.spans == ((2**63 - 1, None), (2**63 - 1, None), (None, -(2**63)))
    assert list(few_spans(KeyCondition("", (KeySpans("k", ((1, 1),) * 999),)))) == []
