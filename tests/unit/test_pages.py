"""The command blocks of README, the tutorial and the tasks: each is run by a test, or says why not."""

from pathlib import Path

import pytest

from tests.e2e.test_pages import TOLD_IN_ORDER
from tests.page_blocks import ROOT, blocks_of

HELD = [ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]


@pytest.mark.parametrize("page", HELD, ids=lambda page: page.name)
def test_each_command_block_is_run_or_says_why_not(page: Path) -> None:
    unmarked = [f"{block.page}:{block.line}" for block in blocks_of(page) if block.mark is None]

    assert unmarked == []


def test_each_page_with_a_block_to_run_is_run() -> None:
    with_runs = {str(page.relative_to(ROOT / "docs")) for page in HELD if any(b.is_run for b in blocks_of(page))}

    assert with_runs == set(TOLD_IN_ORDER)


def test_a_block_is_found_with_its_mark_and_its_typed_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.page_blocks.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- run -->\n```bash\nls\n```\n\n<!-- not run: no network -->\n```console\n$ git pull\nAlready up to date.\n```\n\n"
        "```\nheadwater up\n```\n\n```yaml\nmake: docs\n```\n"
    )

    assert [(block.line, block.text, block.mark) for block in blocks_of(page)] == [
        (2, "ls\n", "run"),
        (7, "git pull\n", "not run: no network"),
        (12, "headwater up\n", None),
    ]
