"""Classes and functions are measured, and held to ceilings that only go down."""

from tests.widths.__main__ import faults_of, lowered_ceilings
from tests.widths.measure import BOUNDS, Width, widths_of

PYTHON = """
class Outer:
    kind: ClassVar[str] = "a"
    size: int

    def __init__(self) -> None:
        self.size, self.rows = 1, [2]

    async def close(self) -> None:
        def inner() -> None: ...


class Document(msgspec.Struct, frozen=True):
    name: str
"""

CYTHON = """
cdef class Writer:
    cdef int size

    cdef inline int _put(
        self, bytes data
    ) except -1:
        return 1

    def done(self): return self.size

cdef int other(int rows) noexcept:
    cdef int begin = f(rows)

    return begin
"""


def test_classes_and_functions_of_python_are_measured() -> None:
    assert {width.place: dict(width.by_measure) for width in widths_of("a.py", PYTHON)} == {
        "a.py Outer": {"methods": 2, "lines": 9, "fields": 2},
        "a.py Outer.__init__()": {"lines": 2},
        "a.py Outer.close()": {"lines": 2},
        "a.py Outer.close().inner()": {"lines": 1},
        "a.py Document": {"methods": 0, "lines": 2},
    }


def test_classes_and_functions_of_cython_are_measured() -> None:
    assert {width.place: dict(width.by_measure) for width in widths_of("a.pyx", CYTHON)} == {
        "a.pyx Writer": {"methods": 2, "lines": 9},
        "a.pyx _put()": {"lines": 4},
        "a.pyx done()": {"lines": 1},
        "a.pyx other()": {"lines": 4},
    }


def test_a_class_above_its_ceiling_is_a_fault() -> None:
    wide = Width("a.py A", {"methods": 30, "lines": 300}, BOUNDS)

    assert [fault.split(",")[0] for fault in faults_of([wide], {})] == ["widths: a.py A has 30 methods"]
    assert not faults_of([wide], {"a.py A": {"methods": 30, "because": "It is one story."}})
    assert faults_of([wide], {"a.py A": {"methods": 29, "because": "It is one story."}})


def test_an_exception_has_a_reason_and_a_class_that_needs_it() -> None:
    wide = Width("a.py A", {"methods": 30}, BOUNDS)

    assert faults_of([wide], {"a.py A": {"methods": 30}})
    assert faults_of([], {"a.py A": {"methods": 30, "because": "It is one story."}})


def test_a_ceiling_is_lowered_and_never_raised() -> None:
    widths = [Width("a.py A", {"methods": 25, "lines": 455}, BOUNDS), Width("a.py B", {"methods": 99}, BOUNDS)]
    ceilings = {
        "a.py A": {"methods": 30, "lines": 450, "because": "It is one story."},
        "a.py Gone": {"methods": 30, "because": "It is one story."},
    }

    assert lowered_ceilings(widths, ceilings) == {
        "a.py A": {"methods": 25, "lines": 450, "because": "It is one story."}
    }
