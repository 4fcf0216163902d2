"""Which transactions a batch may take in, by the knowledge of its end."""

import pytest

from spark.batch.whole_transactions import Seen, first_that_waits


@pytest.mark.parametrize(
    ("newest", "beyond", "has_ended", "waits"),
    [
        ("7.", None, True, None),  # its END is there, and nothing lies beyond
        ("7.", None, False, "7."),  # nothing says that it is over
        ("7.", "9.", True, "9."),  # only the one that lies beyond waits
        ("7.", "9.", False, "7."),  # a later one may be on its way beside the rest of it
        ("7.", "7.", True, "7."),  # part of it lies beyond
        ("7.", "5.", True, "5."),  # part of an older one does, in a topic that was read less far
        ("7.", "5.", False, "5."),
        ("7.", "", True, ""),  # it could not be found out: all wait
        ("", None, True, None),  # snapshot rows only
    ],
)
def test_what_is_not_known_to_be_whole_waits(
    newest: str, beyond: str | None, has_ended: bool, waits: str | None
) -> None:
    assert first_that_waits(Seen(newest=newest, beyond=beyond, has_ended=has_ended)) == waits
