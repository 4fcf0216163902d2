"""A table after its source's changes: every kind of change under every policy, without a warehouse."""

from collections.abc import Sequence

import msgspec
import pytest

from libs.mysql.logical import column
from libs.types.table import Born, Column, FormerName, TableId, TableSchema
from libs.types.tenant import ChangeKind, ChangePolicies, ChangePolicy, ChangeRule
from libs.warehouse.dialect import DIALECTS
from libs.warehouse.schema_changes import (
    Plan,
    StoredColumn,
    changes_between,
    first_columns,
    left_out,
    places_of,
    plan_change,
    plan_creation,
    renames,
    stored_after,
    unheld_columns,
    variant_name,
)

ORDERS = TableId(database="shop", table="orders")
ID = column("id", "int", is_optional=False)
NOTE = column("note", "varchar(20)", charset="utf8mb4")
AMOUNT = column("amount", "int")
ICEBERG = DIALECTS["iceberg"]
POLICIES = {policy: ChangePolicies(default=policy) for policy in ChangePolicy}


def schema(*columns: Column, version: int = 2, key: Sequence[str] = ("id",)) -> TableSchema:
    return TableSchema(table_id=ORDERS, columns=(ID, *columns), key=tuple(key), version=version)


def was(item: Column, *former: tuple[str, int]) -> Column:
    """A column that was called otherwise up to some versions."""
    names = tuple(FormerName(name=name, last_version=version) for name, version in former)
    return msgspec.structs.replace(item, former_names=names)


BEFORE = schema(NOTE, AMOUNT, version=1)
CHANGES: dict[ChangeKind, TableSchema] = {
    ChangeKind.COLUMN_ADDED: schema(NOTE, AMOUNT, column("added", "date")),
    ChangeKind.COLUMN_DROPPED: schema(NOTE),
    ChangeKind.COLUMN_RENAMED: schema(was(column("text", "varchar(20)", charset="utf8mb4"), ("note", 1)), AMOUNT),
    ChangeKind.COLUMN_WIDENED: schema(NOTE, column("amount", "bigint")),
    ChangeKind.COLUMN_NARROWED: schema(NOTE, AMOUNT),
    ChangeKind.TYPE_CHANGED: schema(column("note", "json"), column("amount", "date")),
    ChangeKind.NULLABILITY_CHANGED: schema(NOTE, column("amount", "int", is_optional=False)),
}


def planned(after: TableSchema, policies: ChangePolicies, before: TableSchema = BEFORE) -> Plan:
    return plan_change(first_columns(before, ICEBERG), before.version, before, after, ICEBERG, policies)


def told(plan: Plan) -> dict[str, list[str]]:
    """The plan by names alone, empty parts left out."""
    by_name = {
        "renamed": [f"{old}→{item.name}" for old, item in plan.renamed],
        "widened": [name for name, _ in plan.widened],
        "added": [name for name, _ in plan.added],
    }
    return {what: names for what, names in by_name.items() if names}


def test_every_kind_of_change_is_seen() -> None:
    """Each by itself, in the source's words."""
    wide = schema(NOTE, column("amount", "bigint"), version=1)
    found = {
        kind: [str(change) for change in changes_between(wide if "narrow" in kind.value else BEFORE, after, ICEBERG)]
        for kind, after in CHANGES.items()
    }

    assert found == {
        ChangeKind.COLUMN_ADDED: ["column_added added (date)"],
        ChangeKind.COLUMN_DROPPED: ["column_dropped amount (int)"],
        ChangeKind.COLUMN_RENAMED: ["column_renamed text (was note)"],
        ChangeKind.COLUMN_WIDENED: ["column_widened amount (int → bigint)"],
        ChangeKind.COLUMN_NARROWED: ["column_narrowed amount (bigint → int)"],
        ChangeKind.TYPE_CHANGED: ["type_changed amount (int → date)"],
        ChangeKind.NULLABILITY_CHANGED: ["nullability_changed amount (NULL → NOT NULL)"],
    }
    assert {*found, ChangeKind.TABLE_CREATED} == set(ChangeKind)


@pytest.mark.parametrize(
    ("kind", "evolve", "lenient"),
    [
        (ChangeKind.COLUMN_ADDED, {"added": ["added"]}, {"added": ["added"]}),
        (ChangeKind.COLUMN_DROPPED, {}, {}),
        (ChangeKind.COLUMN_RENAMED, {"renamed": ["note→text"]}, {"renamed": ["note→text"]}),
        (ChangeKind.COLUMN_WIDENED, {"widened": ["amount"]}, {"widened": ["amount"]}),
        (ChangeKind.TYPE_CHANGED, None, {"added": ["amount__v_date"]}),
        (ChangeKind.NULLABILITY_CHANGED, {}, {}),
    ],
)
def test_each_policy_has_its_answer(
    kind: ChangeKind, evolve: dict[str, list[str]] | None, lenient: dict[str, list[str]]
) -> None:
    """None: refused. An exception refuses any change, by its kind; an ignored one is named if it asks anything of the table."""
    after = CHANGES[kind]
    plans = {policy: planned(after, POLICIES[policy]) for policy in ChangePolicy}

    assert (None if plans[ChangePolicy.EVOLVE].refused else told(plans[ChangePolicy.EVOLVE])) == evolve
    assert told(plans[ChangePolicy.LENIENT]) == lenient
    [reason] = plans[ChangePolicy.EXCEPTION].refused
    assert kind.value in reason
    assert "choose another policy" in reason
    ignored = plans[ChangePolicy.IGNORE]
    assert (told(ignored), ignored.refused) == ({}, ())
    asks_nothing = (ChangeKind.COLUMN_DROPPED, ChangeKind.NULLABILITY_CHANGED)
    assert len(ignored.ignored) == (0 if kind in asks_nothing else 1)


def test_a_table_is_created_by_policy() -> None:
    plans = {policy: plan_creation(BEFORE, POLICIES[policy]) for policy in ChangePolicy}

    assert [policy for policy, plan in plans.items() if plan == Plan()] == [ChangePolicy.EVOLVE, ChangePolicy.LENIENT]
    assert "table_created" in plans[ChangePolicy.EXCEPTION].refused[0]
    assert "table_created" in plans[ChangePolicy.IGNORE].ignored[0]


def test_the_first_rule_that_fits_decides() -> None:
    """By table and by kind of change; else the default."""
    policies = ChangePolicies(
        default=ChangePolicy.EVOLVE,
        rules=(
            ChangeRule(changes=(ChangeKind.COLUMN_ADDED,), tables=r"shop\.orders", policy=ChangePolicy.IGNORE),
            ChangeRule(tables=r"shop\.order", policy=ChangePolicy.EXCEPTION),
            ChangeRule(tables=r"shop\..*", policy=ChangePolicy.LENIENT),
        ),
    )
    added, dropped = ChangeKind.COLUMN_ADDED, ChangeKind.COLUMN_DROPPED

    assert policies.policy("shop.orders", added) is ChangePolicy.IGNORE
    assert policies.policy("shop.orders", dropped) is ChangePolicy.LENIENT
    assert policies.policy("crm.orders", added) is ChangePolicy.EVOLVE


def test_columns_that_exchange_names_take_their_values_along() -> None:
    """And each event finds its column by the version that it is of."""
    after = schema(
        was(column("amount", "varchar(20)", charset="utf8mb4"), ("note", 1)), was(column("note", "int"), ("amount", 1))
    )
    plan = planned(after, POLICIES[ChangePolicy.EVOLVE])
    stored = first_columns(BEFORE, ICEBERG)

    columns = stored_after(stored, plan, ICEBERG)

    assert renames(stored, plan) == {"note": "amount", "amount": "note"}
    assert {name: each.type for name, each in columns.items()} == {"id": "int", "amount": "string", "note": "int"}
    assert places_of(columns, BEFORE, ICEBERG) == {"id": "id", "note": "amount", "amount": "note"}
    assert places_of(columns, after, ICEBERG) == {"id": "id", "note": "note", "amount": "amount"}


def test_a_rename_that_was_missed_is_made_up_for() -> None:
    """Versions without a row are never delivered: a table goes from the one that it is ready for to the newest."""
    after = schema(was(column("c", "int"), ("amount", 2), ("b", 5)), NOTE, version=9)

    assert told(planned(after, POLICIES[ChangePolicy.EVOLVE])) == {"renamed": ["amount→c"]}
    later = first_columns(schema(NOTE, column("b", "int"), version=4), ICEBERG)
    assert told(plan_change(later, 4, None, after, ICEBERG, POLICIES[ChangePolicy.EVOLVE])) == {"renamed": ["b→c"]}
    done = first_columns(after, ICEBERG)
    assert told(plan_change(done, 9, None, after, ICEBERG, POLICIES[ChangePolicy.EVOLVE])) == {}


def test_a_dropped_column_makes_way_for_another_one_of_its_name() -> None:
    """``note`` was dropped and kept: with all that it held it gets another name, under which late rows find it."""
    stored = first_columns(schema(NOTE, column("text", "varchar(9)", charset="utf8mb4"), version=1), ICEBERG)
    before = schema(column("text", "varchar(9)", charset="utf8mb4"), version=1)
    after = schema(was(NOTE, ("text", 1)))

    plan = plan_change(stored, 1, before, after, ICEBERG, POLICIES[ChangePolicy.EVOLVE])

    assert (told(plan), plan.refused) == ({"renamed": ["text→note"]}, ())
    assert renames(stored, plan) == {"note": "note__gone_1", "text": "note"}
    columns = stored_after(stored, plan, ICEBERG)
    assert places_of(columns, after, ICEBERG)["note"] == "note"
    assert places_of(columns, before, ICEBERG)["text"] == "note"


def born(item: Column, after_version: int) -> Column:
    """A column that came after a version."""
    came = Born(
        after_version=after_version,
        source_type=item.source_type,
        logical_type=item.logical_type,
        is_optional=item.is_optional,
        default_expression=item.default_expression,
    )
    return msgspec.structs.replace(item, born=came)


def test_a_column_that_was_dropped_and_made_again_is_another_one() -> None:
    """Of the key it parks the table: the rows of before have other keys then."""
    after = schema(NOTE, born(AMOUNT, 1))
    stored = first_columns(BEFORE, ICEBERG)

    plan = planned(after, POLICIES[ChangePolicy.LENIENT])

    assert renames(stored, plan) == {"amount": "amount__gone_1"}
    assert [name for name, _ in plan.added] == ["amount"]
    columns = stored_after(stored, plan, ICEBERG)
    assert places_of(columns, BEFORE, ICEBERG)["amount"] == "amount__gone_1"
    assert places_of(columns, after, ICEBERG)["amount"] == "amount"
    assert told(plan_change(columns, 2, after, after, ICEBERG, POLICIES[ChangePolicy.LENIENT])) == {}
    key = TableSchema(table_id=ORDERS, columns=(born(ID, 1), NOTE, AMOUNT), key=("id",), version=2)
    [reason] = planned(key, POLICIES[ChangePolicy.LENIENT]).refused
    assert "of the key was dropped" in reason


def test_a_column_beside_another_is_found_whatever_the_cases_are() -> None:
    """``CHANGE amount Amount VARCHAR(36)``."""
    after = schema(NOTE, column("Amount", "varchar(36)", charset="utf8mb4"))
    stored = first_columns(BEFORE, ICEBERG)

    columns = stored_after(stored, planned(after, POLICIES[ChangePolicy.LENIENT]), ICEBERG)

    assert columns["amount__v_string"].variant_of == "amount"
    assert places_of(columns, after, ICEBERG)["Amount"] == "amount__v_string"
    assert left_out(columns, after, ICEBERG) == ()


def test_columns_beside_others_are_used_again_and_renamed_with_them() -> None:
    """As often as the type changes there is one column for each type."""
    stored = dict(first_columns(BEFORE, ICEBERG))
    lenient = POLICIES[ChangePolicy.LENIENT]
    for kind in ("date", "int", "date", "bigint", "smallint", "decimal(12,2)"):
        after = schema(NOTE, column("amount", kind))
        stored = stored_after(stored, plan_change(stored, None, None, after, ICEBERG, lenient), ICEBERG)

    renamed = schema(NOTE, was(column("sum", "date"), ("amount", 2)), version=3)
    plan = plan_change(stored, 2, None, renamed, ICEBERG, lenient)
    after_all = stored_after(stored, plan, ICEBERG)

    assert list(stored) == ["id", "note", "amount", "amount__v_date", "amount__v_decimal_12_2"]
    assert stored["amount"] == StoredColumn("bigint")
    assert list(after_all) == ["id", "note", "sum", "sum__v_date", "sum__v_decimal_12_2"]
    assert places_of(after_all, renamed, ICEBERG)["sum"] == "sum__v_date"
    assert places_of(after_all, schema(NOTE, AMOUNT), ICEBERG)["amount"] == "sum"
    assert variant_name("a", "timestamp with time zone") == "a__v_timestamp_with_time_zone"


@pytest.mark.parametrize("policy", [ChangePolicy.LENIENT, ChangePolicy.IGNORE])
def test_a_key_is_not_left_out_nor_put_beside(policy: ChangePolicy) -> None:
    """Rows could not be distinguished by it."""
    changed = TableSchema(table_id=ORDERS, columns=(column("id", "date"), NOTE, AMOUNT), key=("id",), version=2)

    [reason] = planned(changed, POLICIES[policy]).refused

    assert "of the key" in reason


@pytest.mark.parametrize(
    ("dialect", "old", "new", "is_taken"),
    [
        ("iceberg", "int", "bigint", True),
        ("iceberg", "float", "double", False),
        ("delta", "int", "decimal(12,2)", False),
        ("delta", "decimal(10,2)", "decimal(12,2)", True),
        ("postgresql", "decimal(10,2)", "decimal(14,4)", False),
        ("postgresql", "json", "longtext", False),
        ("postgresql", "bigint", "bigint unsigned", True),
        ("clickhouse", "decimal(10,2)", "decimal(14,4)", False),
        ("clickhouse", "bigint", "bigint unsigned", False),
    ],
)
def test_a_narrow_column_takes_what_it_can_hold_to_the_last_digit(
    dialect: str, old: str, new: str, is_taken: bool
) -> None:
    """By ``ignore``; where digits would go unnoticed, nothing is delivered into it."""
    chosen = DIALECTS[dialect]
    before, after = schema(column("c", old), version=1), schema(column("c", new, charset="utf8mb4"))
    stored = first_columns(before, chosen)

    plan = plan_change(stored, 1, before, after, chosen, POLICIES[ChangePolicy.IGNORE])

    assert told(plan) == {}
    assert len(plan.ignored) == 1
    assert ("c" in places_of(stored, after, chosen)) is is_taken
    [what] = left_out(stored, after, chosen)
    assert what.startswith("column c stays" if is_taken else "column c is not delivered")


def test_another_policy_brings_what_one_had_left_out() -> None:
    """An exception does not: it is for changes, not for earlier choices."""
    after = CHANGES[ChangeKind.COLUMN_ADDED]
    stored = first_columns(BEFORE, ICEBERG)

    evolved = plan_change(
        stored, 2, after, msgspec.structs.replace(after, version=3), ICEBERG, POLICIES[ChangePolicy.EVOLVE]
    )
    strict = plan_change(
        stored, 2, after, msgspec.structs.replace(after, version=3), ICEBERG, POLICIES[ChangePolicy.EXCEPTION]
    )

    assert told(evolved) == {"added": ["added"]}
    assert strict == Plan()


def test_versions_that_no_column_holds_are_found() -> None:
    """A batch that begins with a text and ends with a number, into a table that is made for the number."""
    stored = first_columns(schema(column("note", "int")), ICEBERG)

    assert [each.name for each in unheld_columns(stored, BEFORE, ICEBERG)] == ["note"]
    assert unheld_columns(stored, schema(column("note", "smallint")), ICEBERG) == []


def test_a_table_that_noted_no_version_is_judged_by_what_it_lacks() -> None:
    """One of an older release: a rename and a new column look alike there."""
    stored = first_columns(BEFORE, ICEBERG)
    after = CHANGES[ChangeKind.COLUMN_RENAMED]

    assert told(plan_change(stored, None, None, after, ICEBERG, POLICIES[ChangePolicy.EVOLVE])) == {"added": ["text"]}
    [reason] = plan_change(stored, None, None, after, ICEBERG, POLICIES[ChangePolicy.EXCEPTION]).refused
    assert "column text is not in the table" in reason
