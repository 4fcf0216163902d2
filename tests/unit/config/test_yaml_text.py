"""YAML with its lines, and YAML that means harm."""

from pathlib import Path

import pytest

from libs.config.yaml_text import MAX_DOCUMENT_BYTES, DocumentLines, parse_yaml, read_yaml_file

LAUGHS = "\n".join(
    ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)), "tenant: *a11"]
)


def mistakes_of(text: str) -> list[str]:
    """Why a text is refused."""
    mistakes: list[str] = []
    assert parse_yaml(text, file="tenant.yaml", mistakes=mistakes) is None
    return mistakes


def lines_of(text: str) -> DocumentLines:
    """Where a text's values stand."""
    mistakes: list[str] = []
    document = parse_yaml(text, file="tenant.yaml", mistakes=mistakes)
    assert document is not None, mistakes
    return document.lines


def test_places_have_their_lines() -> None:
    """Keys, items of lists in either style, entries below them; an entry that is absent has its surroundings' line."""
    lines = lines_of("tenant: acme\nsources:\n- name: shop\n  masks:\n  - {columns: a,\n     hash: {salt: b}}\n")

    assert lines.line_of("tenant") == 1
    assert lines.line_of("sources[0].name") == 3
    assert lines.line_of("sources[0].masks[0].hash.salt") == 6
    assert lines.line_of("sources[0].masks[0].constant") == 5
    assert lines.line_of("sink.mode") is None


def test_a_mistake_is_told_with_file_and_line() -> None:
    """As editors and terminals can jump to; without a line where its place is not in the document."""
    lines = lines_of("tenant: acme\nsources:\n- nam: shop\n")

    assert lines.locate(["sources[0].nam: unknown name", "sink: is missing"]) == [
        "tenant.yaml:3: sources[0].nam: unknown name",
        "tenant.yaml: sink: is missing",
    ]


def test_merged_names_keep_the_line_where_they_are_written() -> None:
    """``<<`` brings names from elsewhere."""
    lines = lines_of("base: &base\n  mode: append\nsink:\n  <<: *base\n  trigger_s: 1\n")

    assert (lines.line_of("sink.mode"), lines.line_of("sink.trigger_s")) == (2, 5)


def test_names_that_stand_twice_are_all_told() -> None:
    """YAML's reader would keep the last of each in silence."""
    text = "tenant: acme\nsources:\n- {name: shop, name: erp}\ntenant: globex\n"

    assert mistakes_of(text) == [
        "tenant.yaml:3: sources[0].name: stands here twice, first in line 3; keep one of them",
        "tenant.yaml:4: tenant: stands here twice, first in line 1; keep one of them",
    ]


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("tenant: [", 2, "is not YAML"),
        ("tenant: acme\n\tsources: 1", 2, "is not YAML"),
        ("a: 1\n---\nb: 2\n", 2, "is not YAML"),
        ("tenant: acme\nat: !!python/object/apply:os.system [ls]\n", 2, "is not YAML"),
        ("a: *nowhere", 1, "is not YAML"),
        ("? [a, b]\n: 1", 1, "is not YAML"),
        (f"a: 1\nb: {'[' * 40}{']' * 40}", 2, "is nested deeper"),
        ("\n".join("  " * depth + "a:" for depth in range(40)), 33, "is nested deeper"),
        ("[" * 200_000, 1, "is nested deeper"),
        ("a: &a [1, *a]", 1, "by its aliases"),
    ],
)
def test_rubbish_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    """With any mistake in it, in time, and without recursing over it."""
    (mistake,) = mistakes_of(text)

    assert mistake.startswith(f"tenant.yaml:{line}: ")
    assert why in mistake


@pytest.mark.parametrize("text", ["a: 2024-13-45", "a\x00b: 1", "a: \ud800", f"a: {'9' * 10_000}"])
def test_values_that_yaml_cannot_make_are_refused(text: str) -> None:
    """Where the reader has no line to name."""
    assert len(mistakes_of(text)) == 1


def test_aliases_that_multiply_are_refused_by_their_expansion() -> None:
    """Billion laughs: 400 characters that become 60 billion values to a program that walks them."""
    (mistake,) = mistakes_of(LAUGHS)

    assert "by its aliases; write them out" in mistake


def test_aliases_as_such_are_allowed() -> None:
    """A list that two sources share."""
    document = parse_yaml("a: &tables ['shop.*']\nb: *tables\n", mistakes=[])

    assert document is not None
    assert document.value == {"a": ["shop.*"], "b": ["shop.*"]}


def test_a_large_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    """A ConfigMap may have 1 MiB; a file any size."""
    file = tmp_path / "tenant.yaml"
    file.write_text("tenant: acme\n#" + "x" * (1 << 20))
    mistakes: list[str] = []

    assert read_yaml_file(file, shown_as="tenant.yaml", mistakes=mistakes) is None
    assert mistakes == [
        f"tenant.yaml: is larger than {MAX_DOCUMENT_BYTES >> 10} KiB; regular expressions name many tables in one line"
    ]


@pytest.mark.parametrize(
    ("content", "why"), [(None, "cannot be read (No such file"), (b"a: \xff", "is not UTF-8 (byte 3)")]
)
def test_what_is_no_text_is_told(tmp_path: Path, content: bytes | None, why: str) -> None:
    """With the file's name."""
    file = tmp_path / "tenant.yaml"
    if content is not None:
        file.write_bytes(content)
    mistakes: list[str] = []

    assert read_yaml_file(file, shown_as="tenant.yaml", mistakes=mistakes) is None
    assert mistakes[0].startswith(f"tenant.yaml: {why}")


def test_an_empty_document_is_one() -> None:
    """It says nothing; whether that will do is the reader's matter."""
    document = parse_yaml("# nothing\n", mistakes=[])

    assert document is not None
    assert document.value is None
