"""Tenants that move from one Spark job to another, and those whose tables go: this job's part in each (ADR 26).

    places.json ▶ next_step ▶ stop the query ▶ hand over | take ▶ serve

A tenant's state lies in one job at a time. The old job notes that it hands over before it writes the state to Kafka, and from
then on serves the tenant only if the state is handed back; the new one begins when the state of that very move lies here. The
query of Spark keeps its id and its batches' numbers, so a batch that the move cut off comes again there, and tables know it.
Every step may be cut off anywhere and done again.
"""

import enum
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import structlog
from pyspark.sql import SparkSession

from libs.durable_file import replace_durably
from libs.errors import PipelineHalted, TransientError
from libs.events.names import SINK_HANDOVERS_TOPIC
from libs.failpoints import failpoint
from libs.telemetry.metrics import SINK_WAITS
from libs.types.sink_place import (
    MAX_HANDOVER_BYTES,
    PLACES_FILE,
    Handover,
    HeldState,
    Outcome,
    Phase,
    Place,
    Places,
    decode_held,
    decode_places,
    encode_handover,
    encode_held,
    handover_key,
    held_path,
)
from libs.types.tenant import TenantSpec
from spark.jvm.errors import described
from spark.settings import SinkJobSettings
from spark.sinks.port import KeepsFiles, Sink
from spark.tenant.handovers import Handovers
from spark.tenant.kept_states import KeptStates
from spark.tenant.state import remove_state, replace_state, state_files

_PAUSE_S: Final = 5.0
"""After Kafka did not answer: the job's loop stands while it is asked."""
_DROP_PAUSE_S: Final = 30.0

log = structlog.get_logger()


class Step(enum.Enum):
    """The next step for a tenant."""

    SERVE = "serve"
    BEGIN = "begin"
    """Serve it: it never moved. Its files here are its state, unless it was handed over under that name before."""
    TAKE = "take"
    """Its state is in Kafka, for this job."""
    TELL_TAKEN = "tell taken"
    """Serve it, and say that its state lies here."""
    TELL_REFUSED = "tell refused"
    """Serve it, and say that it is not handed over."""
    WAIT = "wait"
    """Its state is elsewhere yet."""
    LOST = "lost"
    """Its state should be here, and is not: a human has to see to it."""
    HAND_OVER = "hand over"
    HAND_ON = "hand on"
    """Its state is in Kafka, was never taken, and is another's now."""
    CLEAR = "clear"
    """It was handed over; its remains here go."""
    DROP = "drop"
    TELL_DROPPED = "tell dropped"
    NOTHING = "nothing"


_LOST: Final = (
    "this job was to have its state, and lacks it: its volume is another one, or was emptied; put it back, or have the tenant "
    "begin again (docs/kubernetes.md, 'From one Spark job to another')"
)
_HERE: Final = (Phase.HELD, Phase.REFUSED)
_SERVED: Final = frozenset({Step.SERVE, Step.BEGIN, Step.TAKE, Step.TELL_TAKEN, Step.TELL_REFUSED})
_WRITTEN_FOR: Final = frozenset({Step.TAKE, Step.HAND_OVER, Step.HAND_ON, Step.CLEAR, Step.DROP})
"""Only once nothing of the tenant is written any more."""
_LET_GO: Final = (Outcome.HANDED_OVER, Outcome.TAKEN, Outcome.NOT_DROPPED)


def next_step(own: str, place: Place, held: HeldState | None, handed: Handover | None) -> Step:
    """The step of job ``own`` for a tenant that belongs to ``place``. ``held``: its knowledge of its own state; ``handed``:
    what was said last in Kafka, None also where that is not known.
    """
    if held is not None and held.tenancy != place.tenancy:
        held = None
    if handed is not None and handed.tenancy != place.tenancy:
        handed = None
    outcome = handed.outcome if handed is not None and handed.move == place.move else None
    is_here = held is not None and held.phase in _HERE
    is_current = held is not None and is_here and held.move == place.move
    if place.job == own and place.drops_tables:
        if outcome is Outcome.DROPPED:
            return Step.NOTHING
        if held is not None and held.phase is Phase.DROPPED:
            return Step.TELL_DROPPED
        return Step.DROP if place.move == 0 or is_current or outcome in _LET_GO else Step.WAIT
    if place.job == own:
        if is_current:
            return Step.TELL_TAKEN if outcome is Outcome.HANDED_OVER else Step.SERVE
        if held is not None and held.move >= place.move:
            return Step.WAIT  # an older place: Kubernetes hands files to pods some time after they changed
        if place.move == 0:
            return Step.BEGIN
        if outcome is Outcome.HANDED_OVER:
            return Step.TAKE
        return Step.LOST if handed is not None and outcome is Outcome.TAKEN and handed.job == own else Step.WAIT
    if place.came_from == own:
        return _departure(place, held, handed)
    return Step.NOTHING


def _departure(place: Place, held: HeldState | None, handed: Handover | None) -> Step:
    """Of a tenant that this job has to hand over."""
    is_here = held is not None and held.phase in _HERE
    if handed is not None and handed.move >= place.move:
        if handed.move == place.move and handed.outcome is Outcome.REFUSED:
            return Step.SERVE if is_here else Step.LOST
        return Step.NOTHING if held is not None and held.phase is Phase.GONE else Step.CLEAR
    if held is not None and held.move == place.move and held.phase is Phase.REFUSED:
        return Step.TELL_REFUSED
    if is_here or (held is not None and held.move == place.move and held.phase is Phase.HANDING_OVER):
        return Step.HAND_OVER
    if handed is not None and handed.outcome is Outcome.HANDED_OVER:
        return Step.HAND_ON
    # Of a release that noted nothing, or it never began here.
    return Step.HAND_OVER if held is None and handed is None and place.move == 1 else Step.LOST


@dataclass(slots=True)
class _Tenant:
    """This process's knowledge of one place."""

    place: Place
    step: Step = Step.WAIT
    is_settled: bool = False
    """Nothing more is to be done of it until its place changes."""
    because: str = ""
    """Why it waits."""
    not_before_s: float = 0.0
    dropping: "Future[None] | None" = None


class Moves:
    """The places of a job's tenants, and this job's pending steps for them. For the job's loop alone."""

    def __init__(
        self,
        spark: SparkSession,
        settings: SinkJobSettings,
        sinks: Mapping[str, Sink],
        kept: KeptStates | None = None,
    ) -> None:
        """``kept``: the states in an object store; None: they are in the job's folder alone."""
        self._kept = kept
        self._spark = spark
        self._settings = settings
        self._sinks = sinks
        self._state_dir = Path(settings.state_dir)
        self._file = Path(settings.tenants_dir) / PLACES_FILE
        self._stamp: tuple[int, int, int] | None = None
        self._places: Places | None = None
        self._is_away = False
        self._tenants: dict[str, _Tenant] = {}
        self._handovers = Handovers(spark, settings.kafka)
        self._asked_not_before_s = 0.0
        self._dropper = ThreadPoolExecutor(1, thread_name_prefix="sink-drop")

    @property
    def waiting(self) -> dict[str, str]:
        """The reasons of waiting tenants, by tenant. For any thread."""
        return {name: each.because for name, each in list(self._tenants.items()) if each.because}

    @property
    def places(self) -> Places | None:
        """As the file had them at the last look; None: there was none, so that the job serves every document."""
        return self._places

    def look(self, documents: Mapping[str, TenantSpec], is_at_rest: Callable[[str], bool]) -> frozenset[str]:
        """Take the possible steps; returns the tenants that may be served. Call it repeatedly: long work goes on beside.

        ``documents``: those that the job was given. ``is_at_rest``: whether nothing of a tenant runs in this job.

        Raises:
            Fenced: another process of this job's name writes states in the object store; end.
        """
        self._refresh()
        opened = self._opened({*documents, *self._tenants})
        if self._places is None:
            if not held_path(self._state_dir, "any").parent.exists():
                return opened.intersection(documents)
            if not self._is_away:
                self._is_away = True
                log.error(
                    "sink_places_missing",
                    file=str(self._file),
                    reason="it was there before: no tenant is served without",
                )
            return frozenset()
        open_ones = {name: each for name, each in self._tenants.items() if not each.is_settled and name in opened}
        handed, reason = self._asked_handovers(
            [name for name, each in open_ones.items() if self._is_asked_for(name, each)]
        )
        for name, each in open_ones.items():
            held = self._held(name)
            step = next_step(self._places.job, each.place, held, handed.get(name))
            if reason and step not in (Step.SERVE, Step.BEGIN):
                step = Step.WAIT
            if step is not each.step:
                log.info("sink_tenant_placed", tenant=name, step=step.value, move=each.place.move, job=each.place.job)
            each.step = step
            if each.step in _WRITTEN_FOR and not is_at_rest(name):
                self._report_waits(name, each, "its query ends")
            elif time.monotonic() >= each.not_before_s:
                self._carry_out(name, each, held, handed.get(name), documents.get(name), reason)
        if not any(not each.is_settled for each in self._tenants.values()):
            self._handovers.close()
        return frozenset(name for name, each in self._tenants.items() if each.step in _SERVED and name in opened)

    def _opened(self, names: Collection[str]) -> frozenset[str]:
        """Those whose state lies here, as far as an object store has to do with it."""
        if self._kept is None:
            return frozenset(names)
        return frozenset(name for name in sorted(names) if self._kept.open(name))

    def close(self) -> None:
        """End of the job; a drop that is cut off is done again."""
        self._dropper.shutdown(wait=False, cancel_futures=True)

    def _refresh(self) -> None:
        """Read the file if it changed. One that goes away changes nothing: a mount that fails for a while must not have every
        tenant served twice."""
        try:
            stat = self._file.stat()
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if stamp == self._stamp:
                return
            places = decode_places(self._file.read_bytes())
        except FileNotFoundError:
            return
        except msgspec.DecodeError as error:
            raise PipelineHalted(f"{self._file} is none of tenant_operator's: {error}") from error
        self._stamp, self._places = stamp, places
        for name in self._tenants.keys() - places.tenants.keys():
            self._report_served(name, self._tenants.pop(name))
            held = self._held(name)
            if held is not None and held.phase is Phase.DROPPED:
                held_path(self._state_dir, name).unlink()
                if self._kept is not None:
                    self._kept.forget(name)
        for name, place in places.tenants.items():
            if name not in self._tenants or self._tenants[name].place != place:
                before = self._tenants.get(name)
                self._tenants[name] = _Tenant(place, dropping=before.dropping if before else None)
                if before is not None and before.because:
                    self._report_served(name, before)

    def _is_asked_for(self, name: str, tenant: _Tenant) -> bool:
        """Whether Kafka has anything to say of it: of a tenant that never moved, nothing."""
        assert self._places is not None
        place = tenant.place
        return place.move > 0 or place.job != self._places.job or place.drops_tables

    def _asked_handovers(self, names: list[str]) -> tuple[dict[str, Handover], str]:
        """The last records of these; or why they are not known."""
        keys = {name: handover_key(name, self._tenants[name].place.tenancy) for name in names}
        if not keys:
            return {}, ""
        if time.monotonic() < self._asked_not_before_s:
            return {}, "Kafka did not answer a moment ago"
        try:
            found = self._handovers.read(keys.values())
            return {name: found[key] for name, key in keys.items() if key in found}, ""
        except TransientError as error:
            self._asked_not_before_s = time.monotonic() + _PAUSE_S
            return {}, str(error)

    def _carry_out(
        self,
        name: str,
        tenant: _Tenant,
        held: HeldState | None,
        handed: Handover | None,
        spec: TenantSpec | None,
        reason: str,
    ) -> None:
        """One step. Where it cannot be done, the tenant waits, and it is tried again."""
        place = tenant.place
        try:
            match tenant.step:
                case Step.SERVE:
                    # Where Kafka was not asked, the record may still have to be written.
                    tenant.is_settled = not reason
                case Step.BEGIN:
                    self._begin(name, place)
                    tenant.is_settled = True
                case Step.TAKE:
                    assert handed is not None
                    self._take(name, place, handed)
                case Step.TELL_TAKEN:
                    failpoint("sink_move_after_taking")
                    self._answer(name, place, Outcome.TAKEN)
                case Step.TELL_REFUSED:
                    self._answer(name, place, Outcome.REFUSED, self._refusal(name, spec) or "it was refused before")
                case Step.HAND_OVER:
                    self._hand_over(name, place, spec)
                case Step.HAND_ON:
                    assert handed is not None
                    self._answer(name, place, Outcome.HANDED_OVER, files=handed.files)
                case Step.CLEAR:
                    self._store(name, HeldState(tenancy=place.tenancy, move=place.move, phase=Phase.GONE))
                    remove_state(self._state_dir, name)
                    log.info("sink_tenant_handed_over", tenant=name, move=place.move, job=place.job)
                    self._keep(name)
                    tenant.is_settled = True
                case Step.DROP:
                    self._drop(name, tenant, handed)
                    return
                case Step.TELL_DROPPED:
                    self._answer(name, place, Outcome.DROPPED)
                case Step.LOST:
                    self._report_waits(name, tenant, _LOST)
                    return
                case Step.WAIT:
                    awaited = f"its state of move {place.move} is not in topic {SINK_HANDOVERS_TOPIC} yet"
                    by = f": Spark job {place.came_from} has to hand it over" if place.came_from else ""
                    self._report_waits(name, tenant, reason or f"{awaited}{by}")
                    return
                case Step.NOTHING:
                    self._keep(name)  # that it is gone, where that could not be before
                    tenant.is_settled = True
        except TransientError as error:
            tenant.not_before_s = time.monotonic() + _PAUSE_S
            if tenant.step not in (Step.TELL_TAKEN, Step.TELL_REFUSED):
                self._report_waits(name, tenant, str(error))
            return
        self._report_served(name, tenant)

    def _begin(self, name: str, place: Place) -> None:
        before = self._held(name)
        if before is not None and before.phase not in _HERE:
            remove_state(self._state_dir, name)
        self._store(name, HeldState(tenancy=place.tenancy, move=0, phase=Phase.HELD))

    def _take(self, name: str, place: Place, handed: Handover) -> None:
        replace_state(self._state_dir, name, dict(handed.files))
        failpoint("sink_move_after_taking_files")
        self._store(name, HeldState(tenancy=place.tenancy, move=place.move, phase=Phase.HELD))
        log.info("sink_tenant_taken", tenant=name, move=place.move, files=len(handed.files), came_from=handed.job)

    def _hand_over(self, name: str, place: Place, spec: TenantSpec | None) -> None:
        handing_over = HeldState(tenancy=place.tenancy, move=place.move, phase=Phase.HANDING_OVER)
        before = self._held(name)
        if before is not None and before.tenancy != place.tenancy and before.phase not in _HERE:
            remove_state(self._state_dir, name)
        # Once begun it is not refused any more: Kafka may have the state already.
        refusal = None if before == handing_over else self._refusal(name, spec)
        if refusal is None:
            self._store(name, handing_over)
        else:
            self._store(name, msgspec.structs.replace(handing_over, phase=Phase.REFUSED))
            self._answer(name, place, Outcome.REFUSED, refusal)
            log.error("sink_tenant_not_handed_over", tenant=name, move=place.move, job=place.job, reason=refusal)
            return
        failpoint("sink_move_before_handover")
        self._answer(name, place, Outcome.HANDED_OVER, files=state_files(self._state_dir, name))
        failpoint("sink_move_after_handover")

    def _refusal(self, name: str, spec: TenantSpec | None) -> str | None:
        """Why a tenant has to stay; None: it may go."""
        files = state_files(self._state_dir, name)
        if not files:
            return None
        handed = Handover(tenant=name, tenancy="", move=0, outcome=Outcome.HANDED_OVER, job="", files=files)
        size = len(encode_handover(handed))
        if size > MAX_HANDOVER_BYTES:
            return (
                f"its state has {size} bytes, compressed, and {MAX_HANDOVER_BYTES} can be handed over: take up or give up its "
                f"dead letters (`headwater dead-letter`), and try again"
            )
        if self._settings.own_volume is None:
            return None
        volume = Path(self._settings.own_volume).resolve()
        used = [spec.sink.warehouse] if spec is not None and spec.sink is not None else list(self._sinks)
        for warehouse in used:
            for folder in _folders(self._sinks.get(warehouse)):
                if folder.resolve().is_relative_to(volume):
                    return (
                        f"its warehouse {warehouse!r} lies in {folder}, on this job's own volume, where no other job finds its "
                        "tables; have a warehouse that jobs share (docs/kubernetes.md, 'From one Spark job to another')"
                    )
        return None

    def _drop(self, name: str, tenant: _Tenant, handed: Handover | None) -> None:
        """In a thread of its own: of large tables it takes minutes."""
        if tenant.dropping is None:
            log.info("sink_tables_dropping", tenant=name)
            self._report_waits(name, tenant, "its tables are being dropped")
            tenant.dropping = self._dropper.submit(self._drop_tables, name)
            return
        if not tenant.dropping.done():
            return
        failed, tenant.dropping = tenant.dropping.exception(), None
        if failed is None:
            remove_state(self._state_dir, name)
            dropped = HeldState(tenancy=tenant.place.tenancy, move=tenant.place.move, phase=Phase.DROPPED)
            self._store(name, dropped)
            log.info("sink_tenant_dropped", tenant=name)
            failpoint("sink_drop_before_answer")
            return
        if not isinstance(failed, Exception):
            raise failed
        because = f"its tables are not dropped: {described(failed)}"
        tenant.not_before_s = time.monotonic() + _DROP_PAUSE_S
        log.error("sink_tables_not_dropped", tenant=name, reason=because, retry_in_s=_DROP_PAUSE_S)
        self._report_waits(name, tenant, because)
        if handed is None or handed.because != because:
            self._answer(name, tenant.place, Outcome.NOT_DROPPED, because)

    def _drop_tables(self, name: str) -> None:
        """Wherever its document sends them now: in every warehouse of the job."""
        for warehouse, sink in self._sinks.items():
            tables = sink.drop_tables(self._spark, name)
            log.info("sink_tables_dropped", tenant=name, warehouse=warehouse, tables=tables)
        failpoint("sink_drop_between_tables_and_state")

    def _answer(
        self,
        name: str,
        place: Place,
        outcome: Outcome,
        because: str = "",
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Write the record; it is kept before that."""
        assert self._places is not None
        self._keep(name)
        self._handovers.write(
            Handover(
                tenant=name,
                tenancy=place.tenancy,
                move=place.move,
                outcome=outcome,
                job=self._places.job,
                because=because,
                files=files or {},
            )
        )

    def _keep(self, name: str) -> None:
        if self._kept is not None:
            self._kept.keep_now(name)

    def _held(self, name: str) -> HeldState | None:
        path = held_path(self._state_dir, name)
        try:
            return decode_held(path.read_bytes())
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise PipelineHalted(
                f"{path} cannot be read: without it a tenant could be served by two jobs; put it back from a backup"
            ) from error

    def _store(self, name: str, held: HeldState) -> None:
        replace_durably(held_path(self._state_dir, name), encode_held(held))

    def _report_waits(self, name: str, tenant: _Tenant, because: str) -> None:
        if because != tenant.because:
            tenant.because = because
            SINK_WAITS.labels(name).set(1)
            log.warning("sink_tenant_waits", tenant=name, move=tenant.place.move, reason=because)

    def _report_served(self, name: str, tenant: _Tenant) -> None:
        if tenant.because:
            tenant.because = ""
            SINK_WAITS.remove(name)


def _folders(sink: Sink | None) -> Sequence[Path]:
    return sink.folders if isinstance(sink, KeepsFiles) else ()
