"""Row filters: a tenant's SQL condition, compiled once into a Python predicate.

The router compiles a filter for each version of each table it concerns, and asks the predicate about every row image; the
``headwater`` command compiles it to say beforehand whether it fits.
The language is the part of MySQL's that needs nothing but the row: comparisons, AND OR NOT, IN, BETWEEN, LIKE, IS,
arithmetic and literals. Anything outside of it, and a column that the table lacks, is a mistake with its remedy,
never a condition that silently means something else.

Values are compared by their meaning, not by their form: decimals exactly, dates and times on one time line (a
TIMESTAMP, and a literal compared with one, in UTC), NULL by three-valued logic (MySQL manual 14.4.3). Text is compared by
code points and case, as the collation ``utf8mb4_0900_bin`` does: a tenant's boundary must not depend on a collation's version.

The compiler (``row_condition``) is imported with the first filter: it brings a SQL parser of 29 MB.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from libs.errors import HeadwaterError
from libs.tenants.filter_values import FilterKey, WireRow
from libs.types.table import TableSchema


@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """A condition over the rows of one table version."""

    columns: tuple[str, ...]
    """The parts of a row that ``matches`` needs."""
    matches: Callable[[WireRow], bool]
    """Whether the condition is true; false and NULL are both no match, as in WHERE.

    Raises:
        InvalidEvent: a value that the condition needs is not in the log, or is not of its column's type.
    """
    key: FilterKey | None = None
    """None: the condition has no such conjuncts."""


class InvalidCondition(HeadwaterError):
    """A condition cannot be applied to a table; ``mistakes`` holds every reason."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(self.mistakes))


def condition_mistakes(where: str) -> list[str]:
    """The mistakes in a condition for any table: its syntax, and constructs outside the language."""
    from libs.tenants.row_condition import compile_condition

    mistakes: list[str] = []
    compile_condition(where, None, mistakes, set())
    return mistakes


def compile_filter(where: str, table: TableSchema) -> CompiledFilter:
    """A condition as a predicate over a table's rows.

    Raises:
        InvalidCondition: it names columns that the table lacks, or compares incomparable types.
    """
    from libs.tenants.row_condition import compile_condition

    mistakes: list[str] = []
    used: set[str] = set()
    keys: list[FilterKey] = []
    holds = compile_condition(where, table, mistakes, used, keys)
    if mistakes:
        raise InvalidCondition(mistakes)
    return CompiledFilter(tuple(sorted(used)), lambda row: holds(row) is True, next(iter(keys), None))
