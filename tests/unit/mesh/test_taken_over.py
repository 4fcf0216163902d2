"""Documents that only `up` reads: which of them say something else since."""

from pathlib import Path

import pytest

from libs.mesh.home import Home, home_at, write_examples
from libs.mesh.taken_over import changed_since, note_taken_over

SHOP = "database: {user: u, password: one}\ninclude_tables: ['shop\\..*']\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = home_at(tmp_path)
    write_examples(made)
    (made.sources_dir / "shop.yaml").write_text(SHOP)
    note_taken_over(made)
    return made


def changes(home: Home) -> list[tuple[str, str]]:
    return [(each.name, each.how) for each in changed_since(home)]


def test_a_comment_and_another_order_are_no_change(home: Home) -> None:
    """Nor is a tenant's document, which services read while they run."""
    (home.sources_dir / "shop.yaml").write_text(
        "# ours\ninclude_tables: ['shop\\..*']\ndatabase: {password: one, user: u}\n"
    )
    (home.tenants_dir / "acme.yaml").write_text("tenant: acme\n")

    assert changes(home) == []


def test_each_document_that_differs_is_named(home: Home) -> None:
    """Changed, added, removed; of one that is no YAML any more its bytes count."""
    (home.sources_dir / "shop.yaml").write_text("database: {")
    (home.sources_dir / "web.yaml").write_text(SHOP)
    home.warehouses_file.write_text("postgresql: {host: db}\n")

    assert changes(home) == [
        ("sources/shop.yaml", "changed"),
        ("sources/web.yaml", "added"),
        ("warehouses.yaml", "added"),
    ]
    note_taken_over(home)
    home.warehouses_file.unlink()
    assert changes(home) == [("warehouses.yaml", "removed")]


def test_nothing_is_said_of_a_stack_that_kept_nothing(home: Home) -> None:
    """It was started by an earlier release. The file is its owner's alone, because it holds a digest of a password."""
    assert home.taken_over_file.stat().st_mode & 0o077 == 0
    home.taken_over_file.write_text("[]")
    (home.sources_dir / "shop.yaml").unlink()

    assert changes(home) == []
