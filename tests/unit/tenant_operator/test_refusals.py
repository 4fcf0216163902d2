"""Routers' refusals: taken into records, also while others write beside it."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from libs.errors import ServiceUnavailable
from libs.tenants.config_map import record_refusals
from libs.types.refusal import Refusal, RefusedKind
from libs.types.table import TableId
from services.tenant_operator.kubernetes_client import Conflict, KubernetesClient
from services.tenant_operator.objects import record_manifest, tenant_record
from services.tenant_operator.refusals import RefusalKeeper, with_news, without_silent
from tests.unit.tenant_operator.tenants import record
from tests.unit.tenant_operator.test_reconcile import mirror


def refusal(table: str = "orders", **fields: Any) -> Refusal:
    given: dict[str, Any] = {
        "tenant": "acme",
        "source": "shop",
        "table_id": TableId(database="shop", table=table),
        "schema_version": 1,
        "reason": "cannot compare",
        "found_at_us": 1,
        "is_of_document": True,
    }
    return Refusal(**(given | fields))


def refused_document(router: str, **fields: Any) -> Refusal:
    nothing = TableId(database="", table="")
    return refusal(table_id=nothing, source="", what=RefusedKind.DOCUMENT, router=router, **fields)


def test_what_is_found_stands_and_what_is_over_does_not() -> None:
    orders, items = refusal("orders"), refusal("items")

    assert with_news([], [orders, items], []) == (items, orders)
    assert with_news([items, orders], [], [orders]) == (items,)


def test_the_same_again_changes_nothing() -> None:
    assert with_news([refusal()], [refusal()], []) == (refusal(),)


def test_the_later_of_two_findings_counts_whichever_comes_first() -> None:
    first, later = refusal(), refusal(reason="no such column", found_at_us=2)

    assert with_news([first], [later], []) == (later,)
    assert with_news([later], [first], []) == (later,)


def test_what_was_found_anew_is_not_over() -> None:
    anew = refusal(found_at_us=2)

    assert with_news([anew], [], [refusal()]) == (anew,)


def test_a_tenant_has_so_many_and_those_change_yet() -> None:
    standing = with_news([], [refusal(f"t{number}") for number in range(5)], [], most=3)
    again = refusal("t0", reason="other", found_at_us=2)

    assert len(standing) == 3
    assert with_news(standing, [again], [], most=3)[0] == again


class Records:
    """The API server; ``conflicts``: how many writes find that somebody else was faster."""

    def __init__(self, conflicts: int = 0, **fields: Any) -> None:
        self.found = record_manifest(record("acme", **fields), "headwater")
        self.conflicts = conflicts

    async def get(self, path: str) -> dict[str, Any] | None:
        return self.found if path.endswith("/headwater-tenant-acme") else None

    async def merge(self, _path: str, body: Mapping[str, Any]) -> bool:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("another version")
        assert body["metadata"]["resourceVersion"] == self.found["metadata"]["resourceVersion"]
        data = {**self.found["data"], **body["data"]}
        self.found["data"] = {key: text for key, text in data.items() if text is not None}
        return True

    def keeper(self) -> RefusalKeeper:
        """Its mirror is late: it shows the record of before."""
        before = {**self.found, "data": dict(self.found["data"])}
        return RefusalKeeper(cast(KubernetesClient, self), "headwater", mirror([before], None))


async def test_it_is_durable_when_it_is_answered_also_where_the_leader_wrote_the_record_meanwhile() -> None:
    records = Records(conflicts=2)
    keeper = records.keeper()

    standing = await keeper.take("r", ["shop"], [refusal()], [])

    assert standing == [refusal()]
    assert tenant_record(records.found).refusals == (refusal(),)
    assert await keeper.take("r", ["shop"], [], [refusal()]) == []
    assert "refusals.json" not in records.found["data"]


def test_records_wait_in_each_partition_by_itself_and_leave_room_for_tables() -> None:
    nothing = TableId(database="", table="")
    waiting = [refusal(table_id=nothing, what=RefusedKind.RECORDS, kafka_partition=number) for number in range(2)]

    assert with_news([refusal("orders")], waiting, [], most=2) == (*waiting, refusal("orders"))
    assert with_news(waiting, [], waiting[:1]) == (waiting[1],)


async def test_where_it_cannot_be_written_the_router_is_to_tell_it_again() -> None:
    with pytest.raises(ServiceUnavailable, match="try again"):
        await Records(conflicts=99).keeper().take("r", ["shop"], [refusal()], [])


async def test_of_a_tenant_that_goes_or_is_none_nothing_is_kept() -> None:
    records = Records(text="")

    assert await records.keeper().take("r", ["shop"], [refusal(), refusal(tenant="nobody")], []) == []
    assert record_refusals(records.found) == ()


async def test_whoever_routes_a_source_is_answered_its_refusals() -> None:
    keeper = Records(refusals=(refusal(), refusal(source="crm"))).keeper()

    assert await keeper.take("r", ["crm"], [], []) == [refusal(source="crm")]


async def test_a_document_is_refused_by_each_router_by_itself_and_each_is_answered_its_own() -> None:
    keeper = Records().keeper()
    first, second = refused_document("r1"), refused_document("r2")

    await keeper.take("r1", ["shop"], [first, refusal()], [])
    assert await keeper.take("r2", ["shop"], [second], []) == [second, refusal()]
    assert await keeper.take("r1", ["shop"], [], [first]) == [refusal()]


def test_a_router_that_is_long_silent_refuses_no_document_any_more() -> None:
    """Tables stay refused without the router: their rows come to another one."""
    old, new = refused_document("gone", found_at_us=1), refused_document("here", found_at_us=200_000_000)

    assert without_silent((old, new, refusal()), 300_000_001) == (old, new, refusal())
    assert without_silent((old, new, refusal()), 300_000_002) == (new, refusal())


def test_tables_leave_room_for_documents() -> None:
    tables = [refusal(f"t{number}") for number in range(5)]

    assert len(with_news([], [*tables, refused_document("r")], [], most=3)) == 4
