"""Names that a person looks for: each metric and log event that a page or an alert names exists, and each metric is set."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from libs.telemetry.metrics import CATALOGUE

REPOSITORY: Final = Path(__file__).parents[3]
CODE: Final = {
    path: path.read_text(encoding="utf-8")
    for folder in ("libs", "services", "spark")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
}
PAGES: Final = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs").glob("**/*.md")),
    *sorted((REPOSITORY / "services").glob("*/README.md")),
    *sorted((REPOSITORY / "spark").glob("**/README.md")),
    REPOSITORY / "charts" / "headwater" / "alerts.yaml",
    REPOSITORY / "charts" / "headwater" / "dashboards" / "headwater.json",
]
METRICS_MODULE: Final = REPOSITORY / "libs" / "telemetry" / "metrics.py"
_LOGGED: Final = re.compile(r'\.(?:debug|info|warning|error|exception|critical)\(\s*(f?)"([a-z][\w{}().]*)"')
_NAMED: Final = re.compile(
    r"\blog(?:'s)?\s+(?:lines?|events?)\s+(?:from\s+)?(`?[a-z]+(?:_[a-z0-9]+)+`?(?:(?:,| and| or)\s+`[a-z]+(?:_[a-z0-9]+)+`)*)"
)
_WORD: Final = re.compile(r"[a-z]+(?:_[a-z0-9]+)+")


def logged_patterns() -> Iterator[str]:
    """A regular expression for each event that the code logs; of a text with holes anything stands there."""
    for text in CODE.values():
        for is_format, event in _LOGGED.findall(text):
            yield re.sub(r"\\\{.*?\\\}", r"\\w+", re.escape(event)) if is_format else re.escape(event)


def test_every_log_event_that_is_named_is_logged() -> None:
    """ "log line `x`", "log event `x`", with several in a row; in pages, alerts and the catalogue of metrics."""
    known = re.compile("|".join(set(logged_patterns())))
    texts = {str(page.relative_to(REPOSITORY)): page.read_text(encoding="utf-8") for page in PAGES}
    named = [
        (page, event)
        for page, text in texts.items()
        for words in _NAMED.findall(text)
        for event in _WORD.findall(words)
    ]

    assert len(named) > 20
    assert [(page, event) for page, event in named if not known.fullmatch(event)] == []


def test_every_metric_that_is_named_exists() -> None:
    """Histograms by their series too; a name that ends in ``_`` or ``*`` stands for several."""
    known = {doc.name for doc in CATALOGUE}
    known |= {f"{name}{suffix}" for name in known for suffix in ("_bucket", "_count", "_sum")}
    others = {"headwater_audit"}  # a table of a tenant's own, in an example

    found = {}
    for page in PAGES:
        for match in re.finditer(r"(?<![\w/.-])headwater_[a-z_]+", page.read_text(encoding="utf-8")):
            name = match.group()
            is_known = any(each.startswith(name) for each in known) if name.endswith("_") else name in known
            if not is_known and name not in others:
                found[name] = str(page.relative_to(REPOSITORY))

    assert found == {}


def test_every_metric_is_set_by_the_product() -> None:
    """An alert once hung on one that nothing set."""
    constants = dict(
        re.findall(r'^([A-Z_]+) = _\w+\(\n\s+Area\.\w+,\n\s+"(headwater_\w+)"', METRICS_MODULE.read_text(), re.M)
    )
    # An import stands at its line's end, or before a comma there.
    used = {
        name
        for path, text in CODE.items()
        if path != METRICS_MODULE
        for name in re.findall(r"\b[A-Z][A-Z_]+\b(?!,?\n)", text)
    }

    assert len(constants) == len(CATALOGUE)
    assert sorted(constants.keys() - used) == []
