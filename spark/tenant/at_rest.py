"""Work for a tenant whose query is idle: its parked tables, its topics, the copy of its state.

``TenantQuery`` calls ``look_after`` once a second while no batch is at work and none is due. The work waits for Kafka or for an
object store, so it runs in threads beside the job's loop, which would stand for every tenant else.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog
from pyspark.sql import SparkSession

from libs.errors import Fenced
from libs.types.tenant import TenantSpec
from spark.batch.continuity import made_again
from spark.jvm.errors import described
from spark.kafka.topic_ids import topic_ids
from spark.pending.progress import load_progress
from spark.settings import SinkJobSettings
from spark.tenant.kept_states import KeptStates
from spark.tenant.run import QueryRun
from spark.tenant.wake import wake

_PAUSE_S: Final = 60.0

log = structlog.get_logger()


@dataclass(slots=True)
class Chore:
    """One kind of such work: in one thread at a time."""

    done_after: int
    """How many batches were applied when it was done last."""
    not_before_s: float = 0.0
    is_at_work: bool = False

    @property
    def may_begin(self) -> bool:
        """Whether no thread is at it, and it has no reason to wait."""
        return not self.is_at_work and time.monotonic() >= self.not_before_s

    def begin(self, work: Callable[[], None]) -> None:
        """Do ``work`` in a thread."""
        self.is_at_work = True
        threading.Thread(target=self._do, args=(work,), daemon=True).start()

    def wait(self) -> None:
        """Not again for a while."""
        self.not_before_s = time.monotonic() + _PAUSE_S

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self.is_at_work = False


@dataclass(slots=True)
class AtRest:
    """The chores of one start of a query."""

    spark: SparkSession
    settings: SinkJobSettings
    tenant: TenantSpec
    run: QueryRun
    kept: KeptStates | None
    """None: the state has no copy."""
    on_fenced: Callable[[Fenced], None]
    """Called where another job has the tenant."""
    _waking: Chore = field(default_factory=lambda: Chore(done_after=-1))
    _looking: Chore = field(default_factory=lambda: Chore(done_after=0))
    _keeping: Chore = field(default_factory=lambda: Chore(done_after=0))

    def look_after(self) -> None:
        """Begin what is due."""
        applied_batches = self.run.applied_batches
        # A wake is sent once: then the batch is waited for.
        if self._waking.may_begin and self._waking.done_after != applied_batches and self.run.has_due_retries:
            self._waking.begin(lambda: self._wake(applied_batches))
        # Once a minute: a topic that was made again, and ends where the old one did, brings no batch.
        if self._looking.may_begin and not self._waking.is_at_work:
            self._looking.begin(self._look_at_topics)
        if self.kept is not None and self._keeping.may_begin and self._keeping.done_after != applied_batches:
            self._keeping.begin(lambda: self._keep(applied_batches))

    def _wake(self, applied_batches: int) -> None:
        try:
            wake(self.spark, self.settings.kafka, self.tenant)
            self._waking.done_after = applied_batches
        except Exception as error:
            self._waking.wait()
            log.warning("sink_not_woken", tenant=self.tenant.tenant, reason=described(error), retry_in_s=_PAUSE_S)

    def _look_at_topics(self) -> None:
        name = self.tenant.tenant
        try:
            tables = load_progress(Path(self.settings.state_dir), name).tables
            known = {topic: table for topic, table in tables.items() if table.topic_id and table.parked is None}
            ids = topic_ids(self.spark, self.settings.kafka, known)
            if any(made_again(name, known[topic], found) for topic, found in ids.items()):
                wake(self.spark, self.settings.kafka, self.tenant)
        except Exception as error:
            log.warning("sink_topics_not_looked_at", tenant=name, reason=described(error), retry_in_s=_PAUSE_S)
        finally:
            self._looking.wait()

    def _keep(self, applied_batches: int) -> None:
        """Once Spark has noted the last batch: else a job that begins from the copy would take it once more, perhaps when Kafka
        has lost its events."""
        assert self.kept is not None
        try:
            self.kept.keep_now(self.tenant.tenant)
            self._keeping.done_after = applied_batches
        except Fenced as error:
            self.on_fenced(error)
        except Exception as error:
            self._keeping.wait()
            log.warning("sink_state_not_kept", tenant=self.tenant.tenant, reason=described(error), retry_in_s=_PAUSE_S)
