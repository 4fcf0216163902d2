"""The change of a warehouse's table when its source's table changes: plain functions from schemas and policies to a plan.

A sink carries the plan out; ``headwater schema plan`` shows it before the statement is run. A change is a difference between
two versions of the table as the tenant receives it; the steps to take are those that the warehouse's table lacks for the
newer one. So a change that asks nothing of the table (a narrower column, NOT NULL) can still be refused by policy, and a
column that a policy once left out is added when the policy changes.

Nothing is ever dropped or narrowed: a column that the source dropped stays, NULL in the rows from then on.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from libs.types.table import Column, FormerName, TableSchema, name_at
from libs.types.tenant import ChangeKind, ChangePolicies, ChangePolicy
from libs.warehouse.dialect import Dialect

GONE: Final = "__gone_"
"""Stands in the name of a column that the source dropped, and whose name another one has now, before the last version that had
it: ``note__gone_7``."""
VARIANT: Final = "__v_"
"""Stands in the name of a column beside another, before its type (as dlt names its variant columns): ``note__v_int``."""
_WRITE_ANEW: Final = "write the tenant's tables again (docs/sinks/repair.md, 'Write tables again')"


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column that the warehouse's table has."""

    type: str
    """The dialect's name of it."""
    former_names: tuple[FormerName, ...] = ()
    """Of the source's column, as far as the table took part in its renaming."""
    variant_of: str | None = None
    """The column that it stands beside, with values of another type."""
    after_version: int = 0
    """The source's last version without the column; 0: it came with the table, or nobody knows."""


@dataclass(frozen=True, slots=True)
class Change:
    """How a version of a table differs from the one before, in one column."""

    kind: ChangeKind
    column: str
    """Its name in the newer version; of a dropped one, in the older."""
    detail: str
    """For a person: ``varchar(20) → int``."""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.column}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes to a warehouse's table, so that it takes rows of a newer version."""

    set_aside: tuple[tuple[str, FormerName], ...] = ()
    """Columns by their names in the table that the source has no more, and whose names others have now: what they were called,
    and up to which version."""
    renamed: tuple[tuple[str, Column], ...] = ()
    """Columns by their names in the table, and the source's columns that they are called after from now on."""
    recalled: tuple[tuple[str, Column], ...] = ()
    """Columns by their names in the table, which stay, and the source's columns that were called otherwise in between."""
    widened: tuple[tuple[str, Column], ...] = ()
    """Columns by their names in the table (after renaming), and the source's columns whose values they take."""
    added: tuple[tuple[str, Column], ...] = ()
    """The same of columns that come."""
    refused: tuple[str, ...] = ()
    """Why the table must be parked instead; each ends with the remedy."""
    ignored: tuple[str, ...] = ()
    """Changes that are not delivered, by policy."""

    @property
    def changes_columns(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.set_aside or self.renamed or self.widened or self.added)


def changes_between(before: TableSchema, after: TableSchema, dialect: Dialect) -> tuple[Change, ...]:
    """How two versions differ, for a warehouse of ``dialect``; ``before`` is the older."""
    by_name = {column.name.lower(): column for column in before.columns}
    changes, met = [], set()
    for column in after.columns:
        name = column.name_at(before.version)
        old = by_name.get(name.lower()) if column.is_in(before.version) else None
        if old is None:
            changes.append(Change(ChangeKind.COLUMN_ADDED, column.name, column.source_type))
            continue
        met.add(old.name)
        if name.lower() != column.name.lower():
            changes.append(Change(ChangeKind.COLUMN_RENAMED, column.name, f"was {name}"))
        old_type, new_type = dialect.type_of(old), dialect.type_of(column)
        types = f"{old.source_type} → {column.source_type}"
        if dialect.is_wider(new_type, old_type):
            changes.append(Change(ChangeKind.COLUMN_WIDENED, column.name, types))
        elif dialect.is_wider(old_type, new_type):
            changes.append(Change(ChangeKind.COLUMN_NARROWED, column.name, types))
        elif old_type != new_type:
            changes.append(Change(ChangeKind.TYPE_CHANGED, column.name, types))
        if old.is_optional != column.is_optional:
            now = "NULL → NOT NULL" if old.is_optional else "NOT NULL → NULL"
            changes.append(Change(ChangeKind.NULLABILITY_CHANGED, column.name, now))
    dropped = (old for old in before.columns if old.name not in met)
    return (*changes, *(Change(ChangeKind.COLUMN_DROPPED, old.name, old.source_type) for old in dropped))


def plan_change(
    stored: Mapping[str, StoredColumn],
    stored_version: int | None,
    before: TableSchema | None,
    after: TableSchema,
    dialect: Dialect,
    policies: ChangePolicies,
) -> Plan:
    """The changes that a table with the columns ``stored`` needs to take rows of ``after``.

    ``stored_version``: the newest version that the table was made ready for; None: it did not note one. ``before``: the table
    at that version, as the tenant received it; None: not known, and then policies see only the steps to take.
    """
    work = _Work(dict(stored), stored_version, after, dialect, policies)
    if stored_version is not None and after.version > stored_version:
        if before is not None:
            work.judge(changes_between(before, after, dialect), before)
        work.set_aside()
        work.rename()
    work.place_columns(is_known=before is not None)
    return work.plan()


def plan_creation(after: TableSchema, policies: ChangePolicies) -> Plan:
    """The policies' plan for a table that is not there yet: ``ignored`` or ``refused`` says why it is not to be made."""
    table = str(after.table_id)
    match policies.policy(table, ChangeKind.TABLE_CREATED):
        case ChangePolicy.EXCEPTION:
            return Plan(refused=(f"{table} is new, {_asked('exception', ChangeKind.TABLE_CREATED)}{_accept()}",))
        case ChangePolicy.IGNORE:
            return Plan(ignored=(f"table {table} (it is new, {_asked('ignore', ChangeKind.TABLE_CREATED)})",))
        case _:
            return Plan()


def renames(stored: Mapping[str, StoredColumn], plan: Plan) -> dict[str, str]:
    """From the old names in the table to the new ones, of the columns beside those that are renamed too."""
    old, new = list(stored), list(_renamed(stored, plan.set_aside, plan.renamed))
    return {before: after for before, after in zip(old, new, strict=True) if before != after}


def stored_after(stored: Mapping[str, StoredColumn], plan: Plan, dialect: Dialect) -> dict[str, StoredColumn]:
    """The columns when the plan is carried out."""
    columns = _recalled(_renamed(stored, plan.set_aside, plan.renamed), plan.recalled)
    for name, column in plan.widened:
        columns[name] = replace(columns[name], type=dialect.type_of(column))
    for name, column in plan.added:
        columns[name] = _stored_column(name, column, dialect)
    return columns


def first_columns(schema: TableSchema, dialect: Dialect) -> dict[str, StoredColumn]:
    """The columns of a table that is made for a version."""
    return {column.name: _stored_column(column.name, column, dialect) for column in schema.columns}


def places_of(stored: Mapping[str, StoredColumn], schema: TableSchema, dialect: Dialect) -> dict[str, str]:
    """Which of the table's columns takes the values of each of the source's, at any version; one that no column takes is
    left out. By the source's name."""
    return {
        column.name: place
        for column in schema.columns
        if (place := _place_of(stored, schema.version, column, dialect)) is not None
    }


def left_out(stored: Mapping[str, StoredColumn], schema: TableSchema, dialect: Dialect) -> tuple[str, ...]:
    """The columns of a version that a table with the columns ``stored`` does not take, for a person."""
    texts = []
    for column in schema.columns:
        place = _place_of(stored, schema.version, column, dialect)
        if place is None:
            texts.append(f"column {column.name} is not delivered")
        elif not dialect.holds(stored[place].type, dialect.type_of(column)):
            texts.append(f"column {column.name} stays {dialect.shown(stored[place].type)}")
    return tuple(texts)


def unheld_columns(stored: Mapping[str, StoredColumn], schema: TableSchema, dialect: Dialect) -> list[Column]:
    """Those of the source's columns whose values the table has a column of that name for, but of no type that holds them."""
    unheld = []
    for column in schema.columns:
        base = _base_of(stored, schema.version, column)
        if base is not None and _holder(stored, base, dialect.type_of(column), dialect) is None:
            unheld.append(column)
    return unheld


class _Work:
    """A plan in the making."""

    def __init__(
        self,
        stored: dict[str, StoredColumn],
        stored_version: int | None,
        after: TableSchema,
        dialect: Dialect,
        policies: ChangePolicies,
    ) -> None:
        self._stored = stored
        self._stored_version = stored_version
        self._after = after
        self._dialect = dialect
        self._policies = policies
        self._table = str(after.table_id)
        self._set_aside: list[tuple[str, FormerName]] = []
        self._renamed: list[tuple[str, Column]] = []
        self._recalled: list[tuple[str, Column]] = []
        self._widened: list[tuple[str, Column]] = []
        self._added: list[tuple[str, Column]] = []
        self._refused: list[str] = []
        self._ignored: dict[str, str] = {}

    def plan(self) -> Plan:
        return Plan(
            tuple(self._set_aside),
            tuple(self._renamed),
            tuple(self._recalled),
            tuple(self._widened),
            tuple(self._added),
            tuple(self._refused),
            tuple(self._ignored.values()),
        )

    def judge(self, changes: Sequence[Change], before: TableSchema) -> None:
        """Refuse those whose policy is ``exception``, all in one message."""
        refused = [change for change in changes if self._policy(change.kind) is ChangePolicy.EXCEPTION]
        if refused:
            statement = f" (by: {self._after.ddl})" if self._after.ddl else ""
            kinds = sorted({change.kind.value for change in refused})
            self._refused.append(
                f"{self._table} changed between its versions {before.version} and {self._after.version}{statement}: "
                f"{'; '.join(map(str, refused))}; the tenant's sink.schema_changes asks for an exception at "
                f"{', '.join(kinds)}{_accept()}"
            )

    def set_aside(self) -> None:
        """Columns that the source dropped since, and whose names others of its columns have now."""
        assert self._stored_version is not None
        there = [column for column in self._after.columns if column.is_in(self._stored_version)]
        alive = {column.name_at(self._stored_version).lower() for column in there}
        bases = {name.lower(): name for name, column in self._stored.items() if column.variant_of is None}
        for column in self._after.columns:
            base = bases.get(column.name.lower())
            if base is None or column.name.lower() in alive or column.named_after < self._stored_version:
                continue
            kind = ChangeKind.COLUMN_RENAMED if column.is_in(self._stored_version) else ChangeKind.COLUMN_ADDED
            if self._policy(kind) not in (ChangePolicy.EVOLVE, ChangePolicy.LENIENT):
                continue  # a column that is not delivered takes no other's place
            if column.name in self._after.key:
                self._refused.append(
                    f"{self._table}: column {column.name} of the key was dropped, and another one has its name: the rows of "
                    f"before have other keys now, of which no event comes; {_WRITE_ANEW}"
                )
                continue
            self._set_aside.append((base, FormerName(name=base, last_version=column.named_after)))
        self._stored = _renamed(self._stored, self._set_aside, ())

    def rename(self) -> None:
        """Columns that the source renamed since, unless another column stands in the way of the new name."""
        assert self._stored_version is not None
        bases = {name.lower(): name for name, column in self._stored.items() if column.variant_of is None}
        wanted: dict[str, Column] = {}
        for column in self._after.columns:
            former = column.name_at(self._stored_version)
            is_known = column.is_in(self._stored_version) and former.lower() in bases
            if former.lower() == column.name.lower() or not is_known:
                continue
            match self._policy(ChangeKind.COLUMN_RENAMED):
                case ChangePolicy.IGNORE:
                    self._leave_out(column, f"was {former}", ChangeKind.COLUMN_RENAMED)
                case ChangePolicy.EVOLVE | ChangePolicy.LENIENT:
                    wanted[bases[former.lower()]] = column
        while blocked := {
            old
            for old, column in wanted.items()
            if column.name.lower() in bases.keys() - {name.lower() for name in wanted}
        }:
            for old in blocked:
                del wanted[old]
        self._renamed = list(wanted.items())
        self._stored = _renamed(self._stored, (), self._renamed)
        for column in self._after.columns:
            base = _base_of(self._stored, self._after.version, column)
            if base is not None and column.former_names and self._stored[base].former_names != column.former_names:
                self._recalled.append((base, column))
        self._stored = _recalled(self._stored, self._recalled)

    def place_columns(self, *, is_known: bool) -> None:
        """Every part that the newer version's columns lack of a place."""
        for column in self._after.columns:
            if column.name in self._ignored:
                continue
            wanted = self._dialect.type_of(column)
            base = _base_of(self._stored, self._after.version, column)
            if base is None:
                self._add(column, is_known=is_known)
            elif _holder(self._stored, base, wanted, self._dialect) is not None:
                continue
            elif self._dialect.is_wider(wanted, self._stored[base].type):
                self._widen(base, column, is_known=is_known)
            else:
                self._change_type(base, column, wanted, is_known=is_known)

    def _add(self, column: Column, *, is_known: bool) -> None:
        if column.name.lower() in {name.lower() for name in self._stored}:
            return  # of an older version: another column is called so since
        match self._policy(ChangeKind.COLUMN_ADDED):
            case ChangePolicy.IGNORE:
                self._leave_out(column, "is new", ChangeKind.COLUMN_ADDED)
            case ChangePolicy.EXCEPTION if not is_known:
                self._except(column, "is not in the table", ChangeKind.COLUMN_ADDED)
            case ChangePolicy.EXCEPTION:
                pass  # judged, or left out when another policy was in force
            case _:
                self._added.append((column.name, column))

    def _widen(self, base: str, column: Column, *, is_known: bool) -> None:
        match self._policy(ChangeKind.COLUMN_WIDENED):
            case ChangePolicy.IGNORE if column.name in self._after.key or not _overflows(
                self._dialect.type_of(column), self._stored[base].type
            ):
                self._leave_out(column, f"was {self._shown(base)}", ChangeKind.COLUMN_WIDENED)
            case ChangePolicy.IGNORE:
                self._ignored[column.name] = (
                    f"column {column.name} (it stays {self._shown(base)}, and a value that does not fit parks the table; "
                    f"{_asked('ignore', ChangeKind.COLUMN_WIDENED)})"
                )
            case ChangePolicy.EXCEPTION if not is_known:
                self._except(column, f"was {self._shown(base)}", ChangeKind.COLUMN_WIDENED)
            case ChangePolicy.EXCEPTION:
                pass  # judged, or left as it was when another policy was in force
            case _:
                self._widened.append((base, column))

    def _change_type(self, base: str, column: Column, wanted: str, *, is_known: bool) -> None:
        was, now = self._shown(base), self._dialect.shown(wanted)
        refusal = (
            f"{self._table}: column {column.name} was {was} and is {now} now, which the stored values do not fit; "
        )
        match self._policy(ChangeKind.TYPE_CHANGED):
            case ChangePolicy.IGNORE:
                self._leave_out(column, f"was {was} and is {now}", ChangeKind.TYPE_CHANGED)
            case ChangePolicy.LENIENT if column.name not in self._after.key:
                self._added.append((variant_name(base, wanted), column))
            case ChangePolicy.LENIENT:
                self._refused.append(f"{refusal}it is of the key, so no other can stand beside it: {_WRITE_ANEW}")
            case ChangePolicy.EXCEPTION if not is_known:
                self._except(column, f"was {was} and is {now}", ChangeKind.TYPE_CHANGED)
            case ChangePolicy.EXCEPTION:
                pass
            case ChangePolicy.EVOLVE:
                self._refused.append(
                    f"{refusal}let {ChangeKind.TYPE_CHANGED.value} be lenient in the tenant's sink.schema_changes, rename the "
                    f"column at the source, or {_WRITE_ANEW}"
                )

    def _policy(self, kind: ChangeKind) -> ChangePolicy:
        return self._policies.policy(self._table, kind)

    def _leave_out(self, column: Column, what: str, kind: ChangeKind) -> None:
        if column.name in self._after.key:
            self._refused.append(
                f"{self._table}: column {column.name} {what}, and is of the key, which cannot be left out ("
                f"{_asked(self._policy(kind).value, kind)}){_accept()}"
            )
            return
        self._ignored[column.name] = f"column {column.name} ({what}; {_asked(self._policy(kind).value, kind)})"

    def _except(self, column: Column, what: str, kind: ChangeKind) -> None:
        self._refused.append(f"{self._table}: column {column.name} {what}, {_asked('exception', kind)}{_accept()}")

    def _shown(self, name: str) -> str:
        return self._dialect.shown(self._stored[name].type)


def variant_name(base: str, own_type: str) -> str:
    """Of a column beside ``base`` for values of another type.

    >>> variant_name("note", "decimal(12,2)")
    'note__v_decimal_12_2'
    """
    return base + VARIANT + "_".join(re.findall(r"[a-z0-9]+", own_type.lower()))


def aside_name(base: str, former: FormerName) -> str:
    """Of a column that the source dropped, and whose name another one has."""
    return f"{base}{GONE}{former.last_version}"


def _stored_column(name: str, column: Column, dialect: Dialect) -> StoredColumn:
    base = name.rpartition(VARIANT)[0] if name != column.name else None
    after_version = 0 if column.born is None else column.born.after_version
    return StoredColumn(dialect.type_of(column), column.former_names, base, after_version)


def _renamed(
    stored: Mapping[str, StoredColumn],
    set_aside: Sequence[tuple[str, FormerName]],
    renamed: Sequence[tuple[str, Column]],
) -> dict[str, StoredColumn]:
    """With the columns beside those that are renamed."""
    after, aside = dict(renamed), dict(set_aside)
    columns = {}
    for name, column in stored.items():
        base = column.variant_of or name
        if base in after:
            new, former_names = after[base].name, after[base].former_names
        elif base in aside:
            new, former_names = aside_name(base, aside[base]), (*column.former_names, aside[base])
        else:
            columns[name] = column
            continue
        variant_of = None if column.variant_of is None else new
        columns[new + name.removeprefix(base)] = replace(column, former_names=former_names, variant_of=variant_of)
    return columns


def _recalled(stored: Mapping[str, StoredColumn], recalled: Sequence[tuple[str, Column]]) -> dict[str, StoredColumn]:
    names = {base: column.former_names for base, column in recalled}
    return {
        name: replace(column, former_names=names.get(column.variant_of or name, column.former_names))
        for name, column in stored.items()
    }


def _base_of(stored: Mapping[str, StoredColumn], version: int, column: Column) -> str | None:
    """The table's column of the source's name, under any name at that version."""
    fitting = [
        name
        for name, each in stored.items()
        if each.variant_of is None
        and version > each.after_version
        and name_at(name, each.former_names, version).lower() == column.name.lower()
    ]
    return min(fitting, key=lambda name: _looseness(name, stored[name], version), default=None)


def _looseness(name: str, column: StoredColumn, version: int) -> tuple[float, bool]:
    """Of several columns that may have been called so at a version it is the least. Of one that the source dropped nobody knows
    up to when it was called so; at most until another one of its name is met."""
    last_version = next((each.last_version for each in column.former_names if version <= each.last_version), math.inf)
    return last_version, GONE in name


def _holder(stored: Mapping[str, StoredColumn], base: str, wanted: str, dialect: Dialect) -> str | None:
    """The column itself, or one beside it, that holds every value of a type."""
    candidates = [base, *(name for name, column in stored.items() if column.variant_of == base)]
    return next((name for name in candidates if dialect.holds(stored[name].type, wanted)), None)


def _place_of(stored: Mapping[str, StoredColumn], version: int, column: Column, dialect: Dialect) -> str | None:
    base = _base_of(stored, version, column)
    if base is None:
        return None
    wanted = dialect.type_of(column)
    holder = _holder(stored, base, wanted, dialect)
    if holder is None and dialect.is_wider(wanted, stored[base].type) and _overflows(wanted, stored[base].type):
        return base  # it was left as it is: values that fit are taken
    return holder


_INTEGERS: Final = ("int", "integer", "bigint")
_FIXED: Final = re.compile(r"(?:decimal|numeric)\((\d+),(\d+)\)")


def _overflows(new: str, old: str) -> bool:
    """Whether a value of ``new``, which is wider, that does not fit ``old`` is too large for it: no digits go unnoticed."""
    wide, narrow = _FIXED.fullmatch(new), _FIXED.fullmatch(old)
    if old in _INTEGERS:
        return wide is None or wide[2] == "0"
    return wide is not None and narrow is not None and wide[2] == narrow[2]


def _asked(policy: str, kind: ChangeKind) -> str:
    return f"{policy} for {kind.value}"


def _accept() -> str:
    return "; choose another policy for that in the tenant's document, or undo the change at the source"
