"""The words of a file are found, counted by folder, and held to a ceiling that only goes down."""

import json
from pathlib import Path

import pytest

from tests.prose.__main__ import CEILINGS, faults_of, lowered_ceiling
from tests.prose.rates import TWICE_THE_ANCHORS, WORDS, Rates, rates_of
from tests.prose.texts import sentences_of, texts_of

PYTHON = '''"""The first sentence. The second one."""

# A comment that stands
# on two lines.
NAME = "id"


def f(rows: int) -> str:
    raise ValueError(f"{rows} rows are missing: " "read the table again")
'''


def test_docstrings_comments_and_messages_of_code_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(PYTHON)

    sentences = [sentence for text in texts_of(tmp_path / "a.py") for sentence in sentences_of(text)]

    assert sentences == [
        "The first sentence.",
        "The second one.",
        "A comment that stands on two lines.",
        "code rows are missing: read the table again",
    ]


def test_blocks_of_code_are_no_prose(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Head\n\nOne fact.\n\n```\nwhat behind\n```\n\n| name | a cell of four words |\n")

    sentences = [" ".join(s.split()) for text in texts_of(tmp_path / "a.md") for s in sentences_of(text)]

    assert sentences == ["Head", "One fact.", "a cell of four words"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("what", "What a batch has is written."),
        ("who", "Who takes over reads the checkpoint."),
        ("behind", "It comes behind the commit."),
        ("told", "The operator is told."),
        ("anew", "The table is built anew."),
        ("has not", "It has not the rows."),
        ("since", "It waits, since the log is short."),
    ],
)
def test_words_that_make_a_reader_stop_are_counted(name: str, text: str) -> None:
    assert len(WORDS[name].findall(text)) == 1


@pytest.mark.parametrize(
    "text", ["The batch has not been written.", "the table, which has not yet come", "a tenant who waits"]
)
def test_ordinary_english_is_not_counted(text: str) -> None:
    assert [name for name in ("has not", "who") if WORDS[name].search(text)] == []


def test_a_folder_above_its_ceiling_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("The table is built anew.\n")
    rates = rates_of("docs", [tmp_path / "a.md"])

    (fault,) = faults_of(rates, {})

    assert fault.startswith('prose: docs: "anew" is at 200.00, its ceiling at 0')
    assert fault.endswith("python -m tests.prose --places docs")
    assert faults_of(rates, {"anew": 200.0}) == []


@pytest.mark.parametrize(("former", "expected"), [(None, 8.5), (9.0, 8.5), (4.0, 4.0)])
def test_a_ceiling_only_goes_down(former: float | None, expected: float) -> None:
    by_name = dict.fromkeys(TWICE_THE_ANCHORS, 0.0) | {"what": 8.2}
    rates = Rates("docs", 1000, by_name, examples=0.0)

    lowered = lowered_ceiling(None if former is None else {"what": former}, rates)

    assert lowered == {"what": expected}


def test_what_a_stranger_reads_first_is_held_to_twice_the_anchors() -> None:
    """README and its like ("."), the documentation, the commands' own words: none of them has a ceiling of its own."""
    own = json.loads(CEILINGS.read_text(encoding="utf-8"))

    assert not {".", "docs", "docs/adr", "docs/howto", "docs/sinks", "libs/cli"} & set(own)
