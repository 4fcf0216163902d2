"""Documents put into force, kept, and gone back to."""

import datetime
import multiprocessing
from pathlib import Path

import pytest

from libs.errors import InvalidSettings
from libs.mesh.documents import read_documents
from libs.mesh.home import Home, home_at, write_examples
from libs.operations.kept_versions import version_text, versions
from libs.operations.tenant_list import list_tenants
from libs.operations.tenant_versions import apply_text, text_of_version

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
FIRST = "tenant: acme\nsources: [{name: shop}]\n"
SECOND = "tenant: acme  # and no more\nsources: [{name: shop, include_tables: ['shop.orders']}]\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """One source, no tenant."""
    made = home_at(tmp_path)
    write_examples(made)
    (made.sources_dir / "shop.yaml").write_text("database: {user: reader}\n")
    return made


def apply(home: Home, text: str) -> int:
    """The version that a document became."""
    return apply_text(home, text, shown_as="mine.yaml", now=NOW).version.number


def apply_in_process(root: str, count: int) -> None:
    for number in range(count):
        apply(home_at(Path(root)), f"{FIRST}# {count} {number}\n")


def test_each_document_is_a_version_with_its_time(home: Home) -> None:
    """Byte by byte as it was given, comments too; the newest is in the folder."""
    assert [apply(home, FIRST), apply(home, SECOND)] == [1, 2]

    kept = versions(home, "acme")
    assert [(item.number, item.applied_at, version_text(item)) for item in kept] == [(1, NOW, FIRST), (2, NOW, SECOND)]
    assert (home.tenants_dir / "acme.yaml").read_text() == SECOND


def test_the_same_again_is_no_version(home: Home) -> None:
    """A pipeline applies the same many times."""
    apply(home, FIRST)

    again = apply_text(home, FIRST, shown_as="mine.yaml", now=NOW)

    assert (again.version.number, again.is_changed, again.kept) == (1, False, None)


def test_going_back_is_a_version_too(home: Home) -> None:
    """The versions before it stay listed."""
    apply(home, FIRST)
    apply(home, SECOND)

    back = apply_text(home, text_of_version(home, "acme", 1), shown_as="acme version 1", now=NOW)

    assert back.version.number == 3
    assert (home.tenants_dir / "acme.yaml").read_text() == FIRST


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tenant: [", "mine.yaml:2: is not YAML"),
        ("tenant: acme\nsources: [{nam: shop}]", "mine.yaml:2: sources[0].nam: unknown name; did you mean 'name'?"),
        (
            "tenant: acme\nsources:\n- name: shpo\n",
            "mine.yaml:3: sources[0].name: no source 'shpo' in sources/; did you mean 'shop'?",
        ),
        (
            "tenant: acme\nsources: [{name: shop}]\nsink: {warehouse: icberg}",
            "mine.yaml:3: sink.warehouse: 'icberg' is no warehouse",
        ),
        (
            "tenant: acme\nsources: [{name: shop, row_filters: [{tables: t, where: 'a >'}]}]",
            "mine.yaml:2: sources[0].row_filters[0].where: is not SQL",
        ),
        ("tenant: ../../acme\nsources: [{name: shop}]", "mine.yaml:1: tenant: '../../acme' is no tenant's name"),
    ],
)
def test_a_bad_document_replaces_nothing(home: Home, text: str, says: str) -> None:
    """With any mistake in it: the document in force stays, and no version is made."""
    apply(home, FIRST)

    with pytest.raises(InvalidSettings) as caught:
        apply(home, text)

    assert caught.value.mistakes[0].startswith(says)
    assert (home.tenants_dir / "acme.yaml").read_text() == FIRST
    assert len(versions(home, "acme")) == 1


def test_what_was_edited_by_hand_is_kept_first(home: Home) -> None:
    """Good or bad: nobody's work is lost."""
    apply(home, FIRST)
    (home.tenants_dir / "acme.yaml").write_text("tenant: [")

    applied = apply_text(home, SECOND, shown_as="mine.yaml", now=NOW)

    assert applied.kept is not None
    assert [version_text(item) for item in versions(home, "acme")] == [FIRST, "tenant: [", SECOND]


def test_a_document_in_place_becomes_a_version(home: Home) -> None:
    """``tenant apply tenants/acme.yaml`` after an edit of that very file."""
    (home.tenants_dir / "acme.yaml").write_text(FIRST)

    applied = apply_text(home, FIRST, shown_as="tenants/acme.yaml", now=NOW)

    assert (applied.version.number, applied.is_changed, applied.kept) == (1, False, None)


def test_a_tenant_keeps_its_file(home: Home) -> None:
    """Whichever holds it, in either layout; another tenant's file is not taken."""
    (home.tenants_dir / "big").mkdir()
    (home.tenants_dir / "big" / "tenant.yaml").write_text(FIRST)
    apply(home, SECOND)

    assert (home.tenants_dir / "big" / "tenant.yaml").read_text() == SECOND
    assert not (home.tenants_dir / "acme.yaml").exists()

    (home.tenants_dir / "globex.yaml").write_text(FIRST.replace("acme", "initech"))
    with pytest.raises(InvalidSettings, match=r"holds tenant initech; give that file another name"):
        apply(home, FIRST.replace("acme", "globex"))


def test_versions_are_no_documents(home: Home) -> None:
    """A follower of the folder sees the document in force, and not the earlier ones."""
    apply(home, FIRST)
    apply(home, SECOND)

    assert list(read_documents(home).tenants) == ["acme"]


def test_a_missing_version_is_told_with_those_that_are_there(home: Home) -> None:
    """And a tenant that never was with the nearest."""
    apply(home, FIRST)

    with pytest.raises(InvalidSettings, match="has no version 7; there are 1"):
        text_of_version(home, "acme", 7)
    with pytest.raises(InvalidSettings, match="did you mean 'acme'"):
        text_of_version(home, "amce", 1)


def test_two_that_apply_at_once_take_turns(home: Home) -> None:
    """No number twice, no version lost."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=apply_in_process, args=(str(home.root), count)) for count in (7, 8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)

    kept = versions(home, "acme")
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert [item.number for item in kept] == list(range(1, 16))
    assert len({version_text(item) for item in kept}) == 15


def test_the_list_tells_versions_hands_and_mistakes(home: Home) -> None:
    """Good documents with their facts, bad ones with the reason."""
    apply(home, FIRST)
    apply(home, FIRST.replace("acme", "globex"))
    (home.tenants_dir / "globex.yaml").write_text(f"{FIRST.replace('acme', 'globex')}sink: null\n")
    (home.tenants_dir / "broken.yaml").write_text("tenant: [")

    acme, broken, globex = list_tenants(home, read_documents(home))

    assert (acme.tenant, acme.version, acme.sink) == ("acme", 1, "iceberg mirror")
    assert (broken.tenant, broken.version) == ("broken", None)
    assert "broken.yaml:2: is not YAML" in broken.mistakes[0]
    assert (globex.version, globex.sink) == (None, "topics only")
