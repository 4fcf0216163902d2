"""The answers that routers are sent."""

from services.tenant_operator.service import parts


def test_the_first_answer_is_all_even_where_that_is_nothing() -> None:
    [empty] = parts(None, {})
    [full] = parts(None, {"acme": "a", "globex": "b"})

    assert empty.is_whole
    assert [each.tenant for each in full.in_force] == ["acme", "globex"]


def test_later_ones_are_what_changed() -> None:
    [change] = parts({"acme": "a", "globex": "b", "initech": "c"}, {"acme": "a", "globex": "b2", "umbrella": "d"})

    assert [each.tenant for each in change.in_force] == ["globex", "umbrella"]
    assert list(change.left) == ["initech"]
    assert list(parts({"acme": "a"}, {"acme": "a"})) == []


def test_much_comes_in_parts_of_which_the_last_is_whole() -> None:
    sent = list(parts(None, {f"t{n}": "x" * 10 for n in range(5)}, part_bytes=25))

    assert [len(part.in_force) for part in sent] == [2, 2, 1]
    assert [part.is_whole for part in sent] == [False, False, True]
