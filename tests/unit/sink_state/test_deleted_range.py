"""The memory of deletes: enough, and never more than a bound."""

from libs.sink_state.deleted_range import DeletedRange, remembered


def stretch(number: int, *, events: int = 10, version: int = 1) -> DeletedRange:
    return DeletedRange(
        newest_order=f"{number:05d}",
        from_offsets={0: number * 1_000_000},
        to_offsets={0: number * 1_000_000 + events},
        schema_versions=(version,),
    )


def test_a_batch_without_deletes_changes_nothing() -> None:
    known = (stretch(1), stretch(2))

    assert remembered(known, None) == known


def test_beyond_so_many_stretches_the_two_oldest_become_one() -> None:
    """The events between them are read too, so no delete is forgotten."""
    known: tuple[DeletedRange, ...] = ()
    for number in range(40):
        found = DeletedRange(
            newest_order=f"{number:05d}",
            from_offsets={number % 2: number * 10},
            to_offsets={number % 2: number * 10 + 10},
            schema_versions=(number % 3,),
        )
        known = remembered(known, found)

    assert len(known) == 32
    assert known[0] == DeletedRange(
        newest_order="00008", from_offsets={0: 0, 1: 10}, to_offsets={0: 90, 1: 80}, schema_versions=(0, 1, 2)
    )
    assert [each.newest_order for each in known[1:]] == [f"{number:05d}" for number in range(9, 40)]


def test_beyond_so_many_events_the_oldest_is_forgotten() -> None:
    known = (stretch(1, events=900_000), stretch(2, events=900_000))

    assert remembered(known, stretch(3, events=200_000)) == (*known, stretch(3, events=200_000))
    assert remembered(known, stretch(3, events=200_001)) == (known[1], stretch(3, events=200_001))
    assert remembered(known, stretch(3, events=9_000_000)) == (stretch(3, events=9_000_000),)
