"""Every link of a page of documentation leads to a file, and to a heading, that is there."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r'<a id="([^"]+)"')
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """The names under which GitHub shows the headings of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = HEADING.findall(text)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain} | set(NAMED.findall(text))


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_resolves(name: str) -> None:
    page = ROOT / name
    links = [link for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))) if ":" not in link]

    broken = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("page", ["threat-model.md", "compatibility.md"])
def test_each_test_that_a_page_names_is_there(page: str) -> None:
    """A control, or a version, without its test is a wish."""
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / page).read_text(encoding="utf-8"))

    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / file).is_file() or f"def {test}" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert len(named) > 20
    assert missing == []
