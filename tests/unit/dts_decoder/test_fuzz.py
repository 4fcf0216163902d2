"""A bounded slice of the fuzzing that was run with a million inputs (``fuzz.py``)."""

from tests.unit.dts_decoder.fuzz import run


def test_no_bent_message_crashes_the_decoder() -> None:
    """Rows, or an error of ours; some inputs stay whole enough to be decoded."""
    assert run(3_000, seed=7) > 100
