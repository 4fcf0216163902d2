"""Work for a query between its batches, and one start of a query, without Spark and Kafka."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from libs.errors import Fenced, TransientError
from libs.types.tenant import SinkSettings, TenantSpec
from spark.sinks.port import BatchIdentity
from spark.tenant import at_rest
from spark.tenant import run as query_run
from spark.tenant.at_rest import AtRest
from spark.tenant.run import QueryRun
from tests.unit.spark.contexts import tenant_sink
from tests.waiting import wait_until


class Resting:
    """A query at rest: its wakes beside the loop are noted, and fail as a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, state_dir: Path, *, kept: Any = None) -> None:
        self.woken: list[str] = []
        self.fails: Exception | None = None
        self.fenced: list[Fenced] = []
        self.run: Any = SimpleNamespace(applied_batches=0, has_due_retries=True)
        settings: Any = SimpleNamespace(kafka=None, state_dir=str(state_dir))
        tenant = TenantSpec(tenant="acme", sources=())
        monkeypatch.setattr(at_rest, "wake", self._wake)
        monkeypatch.setattr(at_rest, "topic_ids", lambda *_: {})
        spark: Any = None
        self.chores = AtRest(spark, settings, tenant, self.run, kept, self.fenced.append)

    def _wake(self, _spark: object, _kafka: object, tenant: TenantSpec) -> None:
        self.woken.append(tenant.tenant)
        if self.fails is not None:
            raise self.fails

    def look(self) -> None:
        """Once, and until all that it began is done."""
        with structlog.testing.capture_logs():
            self.chores.look_after()
            wait_until(lambda: not any(chore.is_at_work for chore in self._all()), because="the chores do not end")

    def _all(self) -> tuple[at_rest.Chore, ...]:
        return self.chores._waking, self.chores._looking, self.chores._keeping


def test_a_wake_is_sent_once_for_each_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Until the batch that it asks for has come, the loop calls every second."""
    resting = Resting(monkeypatch, tmp_path)

    resting.look()
    resting.look()
    assert resting.woken == ["acme"]
    resting.run.applied_batches = 1
    resting.look()

    assert resting.woken == ["acme", "acme"]


def test_a_wake_that_kafka_did_not_take_is_sent_again_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    resting = Resting(monkeypatch, tmp_path)
    resting.fails = TransientError("Kafka is away")

    resting.look()
    resting.look()
    assert resting.woken == ["acme"]
    resting.chores._waking.not_before_s = 0.0
    resting.look()

    assert resting.woken == ["acme", "acme"]


def test_the_state_is_kept_once_for_each_batch_and_a_fence_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept: list[str] = []
    fence = Fenced("another job has the tenant")

    def keep_now(tenant: str) -> None:
        kept.append(tenant)
        if len(kept) == 2:
            raise fence

    resting = Resting(monkeypatch, tmp_path, kept=SimpleNamespace(keep_now=keep_now))
    resting.look()
    assert kept == []
    resting.run.applied_batches = 1
    resting.look()
    resting.look()
    assert (kept, resting.fenced) == (["acme"], [])
    resting.run.applied_batches = 2
    resting.look()

    assert (kept, resting.fenced) == (["acme", "acme"], [fence])


class Turns:
    """Those of a job: one tenant has joined, and no batch waits."""

    def __init__(self) -> None:
        self.members: list[QueryRun] = []

    def join(self, member: QueryRun) -> None:
        self.members.append(member)

    def leave(self, member: QueryRun) -> None:
        self.members.remove(member)

    def begins_of(self, _topics: object) -> dict[str, dict[int, int]]:
        return {}


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., QueryRun]:
    """Starts a query whose batches are ``apply``."""

    def start_query(apply: Callable[..., int]) -> QueryRun:
        monkeypatch.setattr(query_run, "apply_batch", apply)
        monkeypatch.setattr(query_run, "activate", lambda _: None)
        stream: Any = SimpleNamespace(
            query_id="q", next_batch=lambda *_: 7, done=lambda: None, is_full=False, has_new=lambda _: True
        )
        sink = tenant_sink(tmp_path, settings=SinkSettings(trigger_s=5.0))
        turns: Any = Turns()
        run = QueryRun(sink, stream, turns, None, threading.Event(), 0.0)
        run.join()
        return run

    return start_query


SPARK: Any = SimpleNamespace(
    sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None, setJobGroup=lambda *_: None)
)


def test_a_run_applies_batches_until_it_is_interrupted(start: Callable[..., QueryRun]) -> None:
    applied: list[BatchIdentity] = []

    def apply(_sink: object, batch: BatchIdentity, _spark: object) -> int:
        applied.append(batch)
        return 3

    run = start(apply)
    assert run.has_new({})
    assert run.run(SPARK, {})
    assert (applied, run.applied_batches, run.failure) == ([BatchIdentity("q", 7)], 1, None)
    assert run.due_at_s > run.last_took_s >= 0

    run.interrupt()

    assert not run.run(SPARK, {})
    assert not run.has_new({})
    assert len(applied) == 1


def test_a_run_ends_with_the_error_of_its_batch(start: Callable[..., QueryRun]) -> None:
    def fail(*_: object) -> int:
        raise TransientError("the warehouse is away")

    run = start(fail)

    assert not run.run(SPARK, {})
    assert isinstance(run.failure, TransientError)
    assert not run.is_applying
