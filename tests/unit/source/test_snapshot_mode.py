"""A reader's first steps, for each ``snapshot.mode`` and each state that it finds."""

import pytest

from libs.source.snapshot_mode import Beginning, SnapshotMode, beginning

COPY = Beginning(learns_schemas=True, copies=True)
LEARN = Beginning(learns_schemas=True)
FOLLOW = Beginning()


@pytest.mark.parametrize(
    ("mode", "without_checkpoint", "with_checkpoint", "unfinished"),
    [
        ("initial", COPY, FOLLOW, Beginning(copies=True)),
        ("always", COPY, Beginning(copies=True, copies_again=True), Beginning(copies=True)),
        (
            "initial_only",
            Beginning(learns_schemas=True, copies=True, follows_log=False),
            Beginning(follows_log=False),
            Beginning(copies=True, follows_log=False),
        ),
        ("no_data", LEARN, FOLLOW, Beginning(copies=True)),
        ("schema_only", LEARN, FOLLOW, Beginning(copies=True)),
        ("never", Beginning(from_oldest_log=True), FOLLOW, Beginning(copies=True)),
        ("when_needed", COPY, FOLLOW, Beginning(copies=True)),
        ("recovery", COPY, LEARN, COPY),
    ],
)
def test_each_mode(mode: str, without_checkpoint: Beginning, with_checkpoint: Beginning, unfinished: Beginning) -> None:
    def found(*, has_checkpoint: bool, is_copying: bool) -> Beginning:
        return beginning(
            SnapshotMode(mode),
            has_checkpoint=has_checkpoint,
            is_copying=is_copying,
            is_purged=False,
            is_process_start=True,
        )

    assert found(has_checkpoint=False, is_copying=False) == without_checkpoint
    assert found(has_checkpoint=True, is_copying=False) == with_checkpoint
    assert found(has_checkpoint=True, is_copying=True) == unfinished


@pytest.mark.parametrize("mode", ["always", "recovery"])
def test_a_connection_that_is_opened_again_is_no_start(mode: str) -> None:
    """Else each loss of the connection would copy everything again."""
    again = beginning(
        SnapshotMode(mode), has_checkpoint=True, is_copying=False, is_purged=False, is_process_start=False
    )

    assert again == FOLLOW


@pytest.mark.parametrize("mode", list(SnapshotMode))
def test_a_purged_position_is_begun_anew_when_needed_only(mode: SnapshotMode) -> None:
    found = beginning(mode, has_checkpoint=True, is_copying=False, is_purged=True, is_process_start=True)

    assert found.starts_over == (mode is SnapshotMode.WHEN_NEEDED)
