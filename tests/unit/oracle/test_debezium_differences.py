"""The page of differences has each that the comparison with Debezium's Oracle connector lets pass."""

from tests.differential.test_debezium_on_the_oracle_stand_in import DIFFERENCES
from tests.page_blocks import ROOT


def test_the_page_lists_each_field_that_may_differ() -> None:
    page = (ROOT / "docs" / "debezium-differences.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| `source.")}
    assert rows.keys() == {f"`{name}`" for name in DIFFERENCES}
    assert all(cell.strip() for line in rows.values() for cell in line.split("|")[1:-1])
