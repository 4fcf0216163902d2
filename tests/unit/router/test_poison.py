"""An error that one tenant's document, or a name at the source, raises is refused to that tenant; nobody else notices."""

from typing import Any

import msgspec
import pytest

from libs.errors import InvalidEvent, ServiceUnavailable
from libs.tenants import document as tenant_documents
from libs.tenants import fit as tenant_fit
from libs.tenants.document import read_tenant
from libs.types.table import TableSchema
from libs.types.tenant import RowFilter
from libs.types.value import LogicalKind, LogicalType
from services.router.routes import book as route_book
from services.router.routes import match, project
from services.router.routes.book import RouteBook, RouteView
from services.router.routes.topic_claims import TopicClaims
from tests.fuzz.poison import poisoned
from tests.marks import rest
from tests.unit.router.test_deliver import add_run, builder, deliver, orders, records_of, taken, tenant

ROUNDS = 100
"""``make fuzz-tenants`` runs 10,000 and more."""
MORE_ROUNDS = 400
"""``make test-all`` goes on to here."""
ROW = ("c", b'{"id":1}', b'{"before":null,"after":{"id":1},"op":"c"}')


@pytest.mark.parametrize(
    "seeds", [range(ROUNDS), *rest(range(ROUNDS, MORE_ROUNDS), because="the gate has the first of them")]
)
def test_random_documents_and_names_harm_nobody(seeds: range) -> None:
    refused = [reason for seed in seeds if (reason := poisoned(seed)) is not None]

    assert len(seeds) / 20 < len(refused) < len(seeds)


def test_a_masked_decimal_that_is_no_base64_is_refused_in_words() -> None:
    with pytest.raises(InvalidEvent, match="not base64"):
        project.mask_text(b'"A"', LogicalType(kind=LogicalKind.DECIMAL, scale=2))


def book_of(*tenants: Any) -> RouteView:
    return RouteBook("s", tenants, lambda _table_id, version: orders(version), TopicClaims()).view()


def fails_for_bad(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, error: Exception) -> None:
    """``name`` raises where it is asked of the tenant that excludes ``never``."""
    called = getattr(module, name)

    def failing(*args: Any, **kwargs: Any) -> Any:
        if "never" in repr(args):
            raise error
        return called(*args, **kwargs)

    monkeypatch.setattr(module, name, failing)


BAD = tenant("bad", selection={"exclude_columns": ("never",)})


@pytest.mark.parametrize(
    ("module", "name"),
    [(match, "is_selected"), (match, "compile_projection"), (project, "tenant_view"), (route_book, "claim_topic")],
)
def test_an_unforeseen_error_of_a_route_is_one_tenants_refusal(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    fails_for_bad(monkeypatch, module, name, OverflowError("of the world's end"))
    batch = builder()
    add_run(batch, [ROW])

    deliveries = deliver(taken(batch), book_of(tenant("good"), BAD))

    assert len(records_of(deliveries, "good.s.shop.orders")) == 1
    (letter,) = records_of(deliveries, "bad.dead-letter")
    reason = msgspec.json.decode(letter[1])["reason"]
    assert "OverflowError" in reason
    assert "world's end" not in reason


@pytest.mark.parametrize("error", [ServiceUnavailable("schema_history is away")])
def test_what_tells_of_the_world_is_everybodys(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    fails_for_bad(monkeypatch, match, "compile_projection", error)
    batch = builder()
    add_run(batch, [ROW])

    with pytest.raises(ServiceUnavailable):
        deliver(taken(batch), book_of(tenant("good"), BAD))


def test_an_unforeseen_error_of_a_row_sets_that_row_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    from services.router.delivery import rows_one_by_one

    project_row = rows_one_by_one.project_row

    def failing(projection: Any, op: int, key: bytes, value: bytes) -> Any:
        if key == b'{"id":2}':
            raise ZeroDivisionError
        return project_row(projection, op, key, value)

    monkeypatch.setattr(rows_one_by_one, "project_row", failing)
    batch = builder()
    add_run(batch, [("c", b'{"id":%d}' % n, b'{"before":null,"after":{"id":%d},"op":"c"}' % n) for n in (1, 2, 3)])
    hidden = tenant("bad", selection={"exclude_columns": (r".*\.c2",)})

    deliveries = deliver(taken(batch), book_of(tenant("good"), hidden))

    assert [len(records_of(deliveries, f"{name}.s.shop.orders")) for name in ("good", "bad")] == [3, 3]


def test_an_unforeseen_error_of_a_document_is_its_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> Any:
        raise RecursionError

    monkeypatch.setattr(tenant_documents, "_tenant_mistakes", failing)
    mistakes: list[str] = []

    assert read_tenant("tenant: acme\nsources: [{name: s}]", mistakes=mistakes) is None
    assert "cannot be judged: Headwater failed on it with RecursionError" in mistakes[0]


def test_an_unforeseen_misfit_is_told_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_where: str, _table: TableSchema) -> Any:
        raise OverflowError

    monkeypatch.setattr(tenant_fit, "compile_filter", failing)
    spec = tenant("acme", selection={"row_filters": [RowFilter(tables=".*", where="id = 1")]})

    (found,) = tenant_fit.misfits(spec, spec.sources[0], orders(1))

    assert found.place == "row_filters[0].where"
    assert "OverflowError" in found.why
