"""The time until DTS deletes unread messages."""

from services.dts_decoder.retention import Headroom, Look


def test_of_a_reader_that_keeps_up_it_is_the_retention() -> None:
    """If it stopped now, so long the next message would be there."""
    assert Headroom(86_400).seen(Look(0, low=0, position=100, oldest_unread_age_s=0)) == 86_400


def test_a_lag_is_taken_off() -> None:
    """By the age of the message that is read now."""
    assert Headroom(86_400).seen(Look(0, low=0, position=100, oldest_unread_age_s=80_000)) == 6_400


def test_a_deletion_that_gains_on_the_reader_is_seen_before_it_arrives() -> None:
    """500 GB may be less than a day: 10 messages a second are deleted, 4 read, 600 are between them."""
    headroom = Headroom(86_400)
    headroom.seen(Look(0, low=0, position=1_200, oldest_unread_age_s=100))

    left_s = headroom.seen(Look(100, low=1_000, position=1_600, oldest_unread_age_s=160))

    assert left_s == 100


def test_it_is_never_negative_and_old_rates_are_forgotten() -> None:
    """Rates are of the last ten minutes."""
    headroom = Headroom(3_600)
    headroom.seen(Look(0, low=0, position=10, oldest_unread_age_s=5_000))
    assert headroom.seen(Look(10, low=10, position=10, oldest_unread_age_s=5_000)) == 0

    assert headroom.seen(Look(5_000, low=10, position=500, oldest_unread_age_s=600)) == 3_000
