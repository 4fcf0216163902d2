"""When an Iceberg table is rewritten, expired and cleaned: from numbers alone."""

import dataclasses

import pytest

from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from spark.sinks.iceberg.maintenance import Due, TableState, due
from spark.sinks.iceberg.settings import Settings

SETTINGS = Settings(warehouse_dir="w", catalog=CatalogSettings(kind=CatalogKind.HADOOP))
QUIET = TableState(
    data_files=3,
    delete_files=0,
    bytes=3_000_000,
    snapshots=10,
    manifests=3,
    commits=10,
    orphans_removed_at=0,
    identity_age=1,
)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, Due()),
        ({"delete_files": 64}, Due(rewrite_files=True)),
        ({"data_files": 64}, Due(rewrite_files=True)),
        ({"data_files": 64, "bytes": 64 * 100_000_000}, Due()),
        ({"manifests": 50}, Due(rewrite_manifests=True)),
        ({"snapshots": 199}, Due()),
        ({"snapshots": 200}, Due(expire_but=100)),
        ({"commits": 2_000}, Due(remove_orphans=True)),
        ({"commits": 3_999, "orphans_removed_at": 2_000}, Due()),
    ],
)
def test_what_is_due(changed: dict[str, int], expected: Due) -> None:
    assert due(dataclasses.replace(QUIET, **changed), SETTINGS, rewritten_files=0) == expected


def test_small_files_are_rewritten_again_when_they_have_doubled() -> None:
    """A table whose partitions each hold one small file would else be rewritten after every commit."""
    grown = dataclasses.replace(QUIET, data_files=99)

    assert due(grown, SETTINGS, rewritten_files=50) == Due()
    assert due(grown, SETTINGS, rewritten_files=49) == Due(rewrite_files=True)


def test_a_large_table_is_not_rewritten_for_deletes_in_few_of_its_files() -> None:
    large = dataclasses.replace(QUIET, data_files=1_000, bytes=1_000 * 128_000_000)

    assert due(dataclasses.replace(large, delete_files=499), SETTINGS, rewritten_files=0) == Due()
    assert due(dataclasses.replace(large, delete_files=500), SETTINGS, rewritten_files=0) == Due(rewrite_files=True)


def test_expiry_keeps_the_newest_identity_however_old() -> None:
    """Fills and rewrites came since; were it gone, a replayed batch would be written twice."""
    old = dataclasses.replace(QUIET, snapshots=300, identity_age=120)

    assert due(old, SETTINGS, rewritten_files=0).expire_but == 120
