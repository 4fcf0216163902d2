"""Files of others, changed at random, end no command and write no line of their own (``make fuzz-files`` has many more)."""

import pytest

from tests.fuzz.foreign import play


@pytest.mark.filterwarnings("ignore:Possible nested set")
def test_files_of_others_are_read_or_refused_in_words() -> None:
    play(175, seed=4711)
