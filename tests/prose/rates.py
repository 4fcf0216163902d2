"""How often a folder's English uses words that make a reader stop, and how long its sentences are."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.prose.texts import sentences_of, texts_of, words_of

ROOT = Path(__file__).parents[2]
SUFFIXES = (".py", ".pyx", ".java", ".md")
GENERATED = ("protos/", "bench/RESULTS.md", "tests/prose/", "tests/unit/test_prose.py")
"""Not counted: generated code and pages, and the texts that name the words."""

WORDS: Mapping[str, re.Pattern[str]] = {
    "what": re.compile(r"\bwhat(?:ever)?\b", re.IGNORECASE),
    "who": re.compile(
        r"(?:^\W*|[,;:(—]\s*|\b(?:and|or|of|to|by|with|for|at|that) )who(?:ever)?\b|\bwhoever\b", re.IGNORECASE
    ),
    "behind": re.compile(r"(?<!left )\bbehind\b", re.IGNORECASE),
    "told": re.compile(r"\b(?:told|tells?|telling)\b", re.IGNORECASE),
    "anew": re.compile(r"\banew\b", re.IGNORECASE),
    "has not": re.compile(
        r"\b(?:has|have|had|needs?|knows?|asks?|comes?|goes) not\b"
        r"(?! been| yet|(?: \w+ly)? (?:\w+(?:ed|en|wn)|run|read|begun|exist)\b)",
        re.IGNORECASE,
    ),
    "since": re.compile(r"(?:^\W*|, )since\b", re.IGNORECASE),
}
"""By the name of a word, where it counts."""

TWICE_THE_ANCHORS: Mapping[str, float] = {
    "what": 2.0,
    "who": 0.6,
    "behind": 0.6,
    "told": 0.1,
    "anew": 0.0,
    "has not": 0.1,
    "since": 0.3,
    "median": 14,
    "p90": 26,
}
"""Uses a thousand words: twice the rate of structlog, httpx, anyio, pytest, hypothesis, pyiceberg and redis-py.
Words a sentence: the longest among those projects.

No folder is held to less.
"""


@dataclass(frozen=True, slots=True)
class Rates:
    """One folder's English: uses a thousand words by word, and words a sentence (``median``, ``p90``)."""

    folder: str
    words: int
    by_name: Mapping[str, float]
    examples: float
    """Uses of "for example" a thousand words, for information: more is better."""

    @property
    def distance(self) -> float:
        """How far the folder is above twice the anchors, weighed by its words: the order in which to mend."""
        above = sum(max(0.0, rate - TWICE_THE_ANCHORS[name]) for name, rate in self.by_name.items() if name in WORDS)
        length = max(0.0, self.by_name["median"] - TWICE_THE_ANCHORS["median"]) / 4
        return (above + length) * self.words / 1000


def files_by_folder() -> dict[str, list[Path]]:
    """The files that git knows, by the folder whose English is judged as one."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders: dict[str, list[Path]] = {}
    for name in listed.splitlines():
        if name.endswith(SUFFIXES) and not name.startswith(GENERATED) and (ROOT / name).is_file():
            folders.setdefault(folder_of(name), []).append(ROOT / name)
    return folders


def folder_of(name: str) -> str:
    """The folder under which a file's rates stand: two levels, one for ``docs`` and for files at the root.

    >>> folder_of("services/router/lane/lane.py"), folder_of("docs/adr/0001-a.md"), folder_of("README.md")
    ('services/router', 'docs/adr', '.')
    """
    parts = name.split("/")
    return "/".join(parts[: min(2, len(parts) - 1)]) or "."


def uses_of(name: str, sentence: str) -> list[str]:
    """Where a sentence uses the word ``name``; a question may ask "what" and "who".

    >>> uses_of("what", "What a batch has is written."), uses_of("what", "What does a batch have?")
    (['What'], [])
    """
    return [] if sentence.rstrip(" \"')*").endswith("?") else WORDS[name].findall(sentence)


def rates_of(folder: str, files: list[Path]) -> Rates:
    """The rates of all texts of ``files`` together."""
    sentences = [sentence for file in files for text in texts_of(file) for sentence in sentences_of(text)]
    lengths = sorted(len(words_of(sentence)) for sentence in sentences) or [0]
    thousands = max(sum(lengths), 1) / 1000
    by_name = {name: sum(len(uses_of(name, sentence)) for sentence in sentences) / thousands for name in WORDS}
    by_name["median"] = lengths[len(lengths) // 2]
    by_name["p90"] = lengths[len(lengths) * 9 // 10]
    examples = sum(sentence.lower().count("for example") for sentence in sentences) / thousands
    return Rates(folder, sum(lengths), by_name, examples)
