"""A tenant whose query cannot be made, or fails in a way that nobody foresaw, leaves the job's other tenants alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog.testing

from libs.config.connections import KafkaSettings
from libs.errors import TransientError
from libs.telemetry.faults import lasting_faults
from libs.types.tenant import SinkSettings, SourceSelection, TenantSpec
from spark.jobs import sink_job
from spark.settings import SessionSettings, SinkJobSettings
from spark.tenant.query import TenantQuery


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

    monkeypatch.setattr(sink_job, "TenantQuery", made)
    fleet: Any = sink_job._Fleet(settings(tmp_path), {"iceberg": SimpleNamespace()})  # type: ignore[dict-item]
    fleet._spark = object()
    fleet._moves = SimpleNamespace(look=lambda documents, _: set(documents), waiting=(), places=None)
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

    assert made._failures == 1
    assert not made.is_running
    made._start_at_s = 0.0
    with pytest.raises(TransientError):
        made.supervise()


def test_a_batch_that_fails_again_is_a_fault_until_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One failure passes by itself. The tenth halts the tenant, which is a fault of its own."""
    made = query("acme", tmp_path)

    def fail() -> list[str]:
        made._start_at_s = 0.0
        made._note_failure(TransientError("PostgreSQL pg:5432/shop: does not answer"))
        return [f"{each.id}: {each.happened}" for each in lasting_faults()]

    with structlog.testing.capture_logs():
        first, second = fail(), fail()
        made._run = SimpleNamespace(applied_batches=1, failure=None, is_idle=lambda: False)  # type: ignore[assignment]
        made.supervise()
        well = lasting_faults()
        made._run = None
        last = [fail() for _ in range(10)][-1]

    says = "PostgreSQL pg:5432/shop: does not answer"
    assert (first, well) == ([], [])
    assert second == [f"batch_fails: {says}"]
    assert last == [f"sink_halted: the same batch failed 10 times, at last with: {says}; mend that and restart the job"]
