"""The promises that tests are held to are those of README.md."""

import re
from pathlib import Path

from tests.promises import PROMISES

README = Path(__file__).parents[2] / "README.md"


def test_every_promise_is_a_sentence_of_the_readme() -> None:
    text = re.sub(r"[\s*]+", " ", README.read_text())

    assert [name for name, sentence in PROMISES.items() if re.sub(r"[\s*]+", " ", sentence) not in text] == []
