"""A bounded slice of the fuzzing that was run with a million inputs (``fuzz.py``, ``tests/fuzz``)."""

from pathlib import Path

import pytest

from tests.fuzz.dts_input import KEPT, kept_inputs, take
from tests.unit.dts_decoder.fuzz import run


def test_no_bent_message_crashes_the_decoder() -> None:
    """Rows, or an error of ours; some inputs stay whole enough to be decoded."""
    assert run(3_000, seed=7) > 100


def test_what_the_fuzzer_found_worth_keeping_still_gives_rows_or_an_error_of_ours() -> None:
    """Each input reached a branch, of Python or of a compiled module, that no smaller one did."""
    rows = [take(kept) for kept in kept_inputs()]

    assert len(rows) > 200
    assert sum(count > 0 for count in rows) > 20


@pytest.mark.parametrize("found", sorted(KEPT.parent.glob("*.bin")), ids=lambda found: found.stem)
def test_what_once_crashed_the_decoder_does_not(found: Path) -> None:
    """Rows that are passed over, and are none: an error of ours, as anywhere else. By policy the rest is published."""
    assert take(found.read_bytes()) == 1
