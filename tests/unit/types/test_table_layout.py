"""A tenant's terms under ``layouts``."""

import pytest

from libs.types.table_layout import OrderedTerm, Term, parse_ordered_term, parse_term


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("status", Term("status")),
        (" Day( created_at ) ", Term("created_at", "day")),
        ("days(created_at)", Term("created_at", "day")),
        ("bucket(16, id)", Term("id", "bucket", 16)),
        ("truncate(4,`odd, (name) ``x`)", Term("odd, (name) `x", "truncate", 4)),
        ("`a b`", Term("a b")),
        ("größe", Term("größe")),
    ],
)
def test_a_term_is_read(text: str, term: Term) -> None:
    assert parse_term(text) == term


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no column"),
        ("a b", "is no column"),
        ("a, b", "is no column"),
        ("day(a))", "is no column"),
        ("bucket(id)", "is written bucket(16, column)"),
        ("day(3, a)", "is written day(column)"),
        ("bucket(0, id)", "at least 1"),
        ("minute(a)", "there is no minute; known: identity, year"),
        ("id; DROP TABLE x", "is no column"),
    ],
)
def test_what_is_no_term_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="'") as refused:
        parse_term(text)

    assert reason in str(refused.value)


def test_an_order_may_be_descending() -> None:
    assert parse_ordered_term("day(at) DESC") == OrderedTerm(Term("at", "day"), is_descending=True)
    assert parse_ordered_term("`desc`") == OrderedTerm(Term("desc"))
    assert parse_ordered_term("desc asc") == OrderedTerm(Term("desc"))
