"""The offsets of some topics that each task reads."""

import pytest

from spark.kafka.kafka_ranges import OffsetRange, Piece, parts_of


def test_few_offsets_are_one_tasks_however_many_topics_they_lie_in() -> None:
    ranges: dict[str, OffsetRange] = {f"topic-{number}": ({0: 10}, {0: 20}) for number in range(100)}

    [part] = parts_of(ranges, most_parts=4)

    assert {piece.topic for piece in part} == ranges.keys()


def test_nothing_to_read_is_no_task() -> None:
    """A topic that ends before it was read to is another one of that name, of which nothing was asked."""
    assert parts_of({}, most_parts=4) == []
    assert parts_of({"a": ({0: 7}, {0: 7}), "b": ({0: 7}, {0: 3})}, most_parts=4) == []


@pytest.mark.parametrize("most_parts", [1, 3, 4, 8])
def test_tasks_read_each_offset_once_and_about_as_many_as_one_another(most_parts: int) -> None:
    ranges: dict[str, OffsetRange] = {
        "large": ({0: 1_000, 1: 0}, {0: 101_000, 1: 30_000}),
        **{f"small-{number}": ({0: 0}, {0: 50}) for number in range(40)},
    }

    parts = parts_of(ranges, most_parts)

    sizes = [sum(piece.to_offset - (piece.from_offset or 0) for piece in part) for part in parts]
    assert len(parts) == most_parts
    assert max(sizes) - min(sizes) <= 50 + most_parts
    read = sorted(
        (piece for part in parts for piece in part),
        key=lambda piece: (piece.topic, piece.kafka_partition, piece.from_offset),
    )
    for topic, (begins, ends) in ranges.items():
        for partition, end in ends.items():
            at = begins[partition]
            for piece in read:
                if (piece.topic, piece.kafka_partition) == (topic, partition):
                    assert piece.from_offset == at
                    at = piece.to_offset
            assert at == end


def test_where_the_begin_is_not_known_one_task_reads_all_of_it() -> None:
    assert parts_of({"a": ({}, {0: 90_000})}, most_parts=4) == [[Piece("a", 0, None, 90_000)]]
