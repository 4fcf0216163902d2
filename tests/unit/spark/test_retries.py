"""When parked tables are tried again."""

from spark.jobs.retries import LONGEST_WAIT_S, Retries


def test_a_table_is_tried_at_the_start_for_a_new_version_and_ever_more_rarely() -> None:
    """Each try reads everything since the table was parked: not at each batch."""
    now_s = [0.0]
    retries = Retries(clock=lambda: now_s[0])

    def tried_at(*times_s: float, version: int = 1) -> list[float]:
        due = []
        for at_s in times_s:
            now_s[0] = at_s
            due += [at_s] if retries.is_due("t", version) else []
        return due

    assert tried_at(0, 1, 59, 60, 61, 179, 180, 419, 420) == [0, 60, 180, 420]
    assert tried_at(421, 422, version=2) == [421]
    assert tried_at(423, version=1) == []
    assert tried_at(481, version=2) == [481]
    assert retries.is_due("another", 1)
    for _ in range(10):
        now_s[0] += LONGEST_WAIT_S
        assert retries.is_due("t", 2)
