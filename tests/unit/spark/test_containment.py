"""A fault that nobody foresaw is one tenant's, or one table's: the job's other tenants and the tenant's other tables go on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog.testing
from py4j.protocol import Py4JError, Py4JNetworkError

from libs.config.connections import KafkaSettings
from libs.errors import Fenced, PipelineHalted, TransientError
from libs.telemetry.faults import lasting_faults
from libs.types.tenant import SinkSettings, SourceSelection, TenantSpec
from spark.batch import commit
from spark.batch.plan import Part
from spark.jobs import fleet as fleet_module
from spark.jvm.containment import is_of_input, is_of_tenant
from spark.pending.table_failures import TRIES, TableFailures
from spark.settings import SessionSettings, SinkJobSettings
from spark.tenant.moves import Moves, Step, _Tenant
from spark.tenant.query import TenantQuery
from spark.tenant.stream import TenantStream
from spark.tenant.stream_log import StreamLog
from spark.tenant.turns import has_turn
from tests.unit.spark.contexts import context_of, tenant_sink
from tests.unit.spark.test_moves import place


def spec(name: str) -> TenantSpec:
    return TenantSpec(tenant=name, sources=(SourceSelection(name="s"),), sink=SinkSettings())


def settings(folder: Path) -> SinkJobSettings:
    return SinkJobSettings(
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
        tenants_dir=str(folder),
        state_dir=str(folder),
        warehouses={},
        session=SessionSettings(jars_dir="unused"),
    )


def query(name: str, folder: Path) -> TenantQuery:
    spark: Any = object()
    sink: Any = object()
    return TenantQuery(spark, settings(folder), spec(name), sink)


def test_a_query_that_cannot_be_made_is_one_tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = {"bad"}

    def made(_spark: object, _settings: object, tenant: TenantSpec, *_: object, **__: object) -> TenantQuery:
        if tenant.tenant in fails:
            raise ZeroDivisionError
        return query(tenant.tenant, tmp_path)

    monkeypatch.setattr(fleet_module, "TenantQuery", made)
    fleet: Any = fleet_module.Fleet(settings(tmp_path), {"iceberg": SimpleNamespace()})  # type: ignore[dict-item]
    fleet._spark = object()
    moves = SimpleNamespace(look=lambda documents, _: set(documents), waiting=(), places=None)
    fleet._parts = SimpleNamespace(moves=moves, reports=None, kept=None, cpu=None, turns=None, decoders=None)
    fleet._documents = {name: spec(name) for name in ("bad", "good")}

    with structlog.testing.capture_logs():  # drawing a trace takes a second
        fleet.serve_tenants()
    served, faults = set(fleet._queries), lasting_faults()
    fails.clear()
    fleet.serve_tenants()

    assert served == {"good"}
    assert [each.scope.tenant for each in faults] == ["bad"]
    assert "ZeroDivisionError" in faults[0].happened
    assert set(fleet._queries) == {"good", "bad"}
    assert lasting_faults() == []


def test_an_unforeseen_error_of_a_query_is_a_failure_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, errors = query("bad", tmp_path), iter([ZeroDivisionError(), TransientError("the session is gone")])

    def failing() -> None:
        raise next(errors)

    monkeypatch.setattr(made, "_start", failing)
    with structlog.testing.capture_logs():
        made.supervise()

    assert made._back_off.failures == 1
    assert not made.is_running
    made._back_off = replace(made._back_off, start_at_s=0.0)
    with pytest.raises(TransientError):
        made.supervise()


def test_a_batch_that_fails_again_is_a_fault_until_it_is_done(tmp_path: Path) -> None:
    """One failure passes by itself. A server's silence halts nobody, however long it lasts; the tenth other failure does."""
    made = query("acme", tmp_path)

    def fail(error: Exception) -> list[str]:
        made._note_failure(error)
        return [f"{each.id}: {each.happened}" for each in lasting_faults()]

    silent, poison = TransientError("PostgreSQL pg:5432/shop: does not answer"), RuntimeError("poison")
    with structlog.testing.capture_logs():
        first, *_, twentieth = [fail(silent) for _ in range(20)]
        made._run = SimpleNamespace(applied_batches=1, failure=None, is_idle=lambda: False)  # type: ignore[assignment]
        made.supervise()
        well = lasting_faults()
        made._run = None
        *_, ninth, tenth = [fail(error) for error in (silent, *[poison] * 10)]

    assert (first, well) == ([], [])
    assert twentieth == ["batch_fails: PostgreSQL pg:5432/shop: does not answer"]
    assert ninth == ["batch_fails: RuntimeError"]
    assert tenth == [
        "sink_halted: the same batch failed 10 times, at last with: RuntimeError; mend that and restart the job"
    ]


@pytest.mark.parametrize("error", [Py4JError("a method that is not there"), ConnectionError("a warehouse is away")])
def test_a_query_that_fails_as_if_the_session_were_gone_is_one_tenants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Whether it is gone, the job's loop asks the session itself."""
    made = query("bad", tmp_path)

    def failing() -> None:
        raise error

    monkeypatch.setattr(made, "_start", failing)
    with structlog.testing.capture_logs():
        made.supervise()

    assert made._back_off.failures == 1


def test_a_look_at_a_tenants_topics_that_fails_is_raised_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is asked, it would end the dealing of turns, and with it the job."""
    stream: Any = TenantStream(StreamLog(tmp_path, "bad"), spec("bad"), limit=10, fails_on_loss=True)
    stream.tenant = "bad"

    def failing(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(stream, "_only_ours", failing)

    assert has_turn(stream, {"bad.s.d.t": {0: 1}})
    with pytest.raises(ZeroDivisionError):
        stream.next_batch({}, lambda _: {})


def test_tables_that_cannot_be_dropped_have_their_tenant_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark: Any = object()
    moves = Moves(spark, settings(tmp_path), {})

    def failing(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(moves, "_drop_tables", failing)
    monkeypatch.setattr(moves, "_answer", lambda *_: None)
    bad = _Tenant(place("a"), Step.DROP)
    try:
        moves._carry_out("bad", bad, None, None, None, "")
        assert bad.dropping is not None
        assert isinstance(bad.dropping.exception(timeout=60), ZeroDivisionError)
        moves._carry_out("bad", bad, None, None, None, "")
    finally:
        moves.close()

    assert "its tables are not dropped: ZeroDivisionError" in bad.because
    assert not bad.is_settled


TABLES = tuple(f"t{number}" for number in range(7))


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Applies a batch of ``TABLES``, of which those with an error raise it; returns the tables that were parked."""
    failures = TableFailures()

    def apply_tables(errors: dict[str, Exception], tables: Sequence[str] = TABLES) -> list[str]:
        def part(_context: object, each: Any) -> Any:
            if each.own.topic in errors:
                raise errors[each.own.topic]
            return SimpleNamespace(topic=each.own.topic, commit=object())

        def parked(_context: object, failed: Any) -> Any:
            return SimpleNamespace(topic=failed.table.topic, commit=None)

        def one_by_one(_spark: object, work: Any, parts: Sequence[Any], _at_most: int) -> list[Any]:
            return [work(each) for each in parts]

        monkeypatch.setattr(commit, "_apply_part", part)
        monkeypatch.setattr(commit, "_parked_for_failing", parked)
        monkeypatch.setattr(commit, "side_by_side", one_by_one)
        sink = tenant_sink(tmp_path)
        sink = replace(sink, pending=replace(sink.pending, failures=failures))
        parts: Any = [Part(SimpleNamespace(topic=name, parked=None, fresh=[1])) for name in tables]  # type: ignore[arg-type]
        with structlog.testing.capture_logs():
            outcomes = commit._apply_tables(context_of(sink), parts)
        return [each.topic for each in outcomes if each.commit is None]

    return apply_tables


def raised_times(applied: Any, errors: dict[str, Exception], tables: Sequence[str]) -> tuple[int, list[str]]:
    """How often the batch failed until it was applied, and which tables it parked then."""
    for times in range(20):
        try:
            return times, applied(errors, tables)
        except ZeroDivisionError:
            continue
    raise AssertionError("it never was")


def test_tables_that_fail_in_a_way_that_nobody_foresaw_are_parked_and_the_others_written(applied: Any) -> None:
    """All at once: one after another, they would be more failures of the tenant than halt it."""
    errors: dict[str, Exception] = dict.fromkeys(TABLES[1:], ZeroDivisionError())

    assert raised_times(applied, errors, TABLES) == (TRIES - 1, list(TABLES[1:]))


def test_a_table_alone_in_its_batch_is_parked_for_what_it_was_given(applied: Any) -> None:
    """Else the batch would come again until the tenant halts, and other tables have to wait for it."""
    assert raised_times(applied, {"t0": ZeroDivisionError()}, ["t0"]) == (TRIES - 1, ["t0"])


@pytest.mark.parametrize("error", [OSError("the warehouse is away"), TransientError("Kafka is away")])
def test_a_table_alone_in_its_batch_waits_for_a_server_that_is_away(applied: Any, error: Exception) -> None:
    for _ in range(2 * TRIES):
        with pytest.raises(type(error)):
            applied({"t0": error}, ["t0"])


@pytest.mark.parametrize(
    ("error", "of_tenant", "of_input"),
    [
        (ValueError(), False, True),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), False, True),
        (RecursionError(), False, True),
        (OSError(), False, False),
        (TransientError(), True, False),
        (PipelineHalted(), True, False),
        (Fenced(), True, False),
        (Py4JNetworkError("the JVM is gone"), True, False),
        (KeyboardInterrupt(), True, False),
    ],
)
def test_whose_an_error_is(error: BaseException, of_tenant: bool, of_input: bool) -> None:
    assert (is_of_tenant(error), is_of_input(error)) == (of_tenant, of_input)
