"""A tenant's state, kept in an object store: a job that begins in an empty folder continues from it (ADR 26).

    open: read ▶ restore ▶ claim ▶ wait for its former owner     keep: before a batch's tables     confirm: before each table

Spark's checkpoint and our own files are in the job's folder as ever. The needed part of them (``tenant_state``) is one object a
tenant, and each write of it names the former one: a process that finds another's has lost the tenant, and ends by name.

The object is never older than the tenant's visible state elsewhere. A batch's start is in it before its first table is written:
where it ends, how far it reads on, where it is cut. So is every later decision that the same batch, begun again from there,
could take otherwise: which keys are parked, which resync was refused, which tables are to be shown; and that a tenant is handed
over.
"""

import enum
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import structlog

from libs.durable_file import replace_durably
from libs.errors import Fenced, PipelineHalted, TransientError
from libs.telemetry.metrics import SINK_WAITS
from libs.types.sink_place import held_path
from spark.settings import StateStoreSettings
from spark.tenant.state import replace_state, state_files
from spark.tenant.state_store import ObjectChanged, StateStore, Version

_PAUSE_S: Final = 5.0
"""After the store did not answer."""
_POLL_S: Final = 0.2
_CONFIRMED_FOR: Final = 1 / 3
"""Of the time that another process waits before it serves the tenant."""

log = structlog.get_logger()


class KeptState(msgspec.Struct, frozen=True, kw_only=True):
    """The object. No two are the same bytes, so that neither are their ETags."""

    generation: int
    """How often it was written."""
    writer: str
    """The process that wrote it: each start of a job is another."""
    files: Mapping[str, str]
    """Texts, by path below ``state_dir``."""


class KeptNote(msgspec.Struct, frozen=True, kw_only=True):
    """Which object the files of a folder belong to: ``<state_dir>/kept/<tenant>.json``."""

    generation: int
    """Of the object that was written or read last; 0: none was yet."""
    writer: str
    """Empty: the files are not whole, as they were to be replaced by the object's."""
    is_served: bool = False
    """Whether its former owner was given time to end."""


class Beginning(enum.Enum):
    """The state with which a process begins a tenant."""

    ANEW = "anew"
    ADOPT = "adopt"
    """With the folder's state, which was never kept."""
    RESTORE = "restore"
    """With the object's."""
    GO_ON = "go on"
    """With the folder's state, which is the object's or a later one."""


def beginning(found: KeptState | None, note: KeptNote | None, *, has_files: bool) -> Beginning:
    """The state to begin with, where ``found`` is the object, and a folder has ``note`` and perhaps state.

    The object wins, because it covers everything visible elsewhere: further work in the folder can be done again.

    Raises:
        PipelineHalted: they contradict each other. The message says how; its place and remedy are the caller's.
    """
    if found is None:
        if note is not None and note.generation > 0:
            raise PipelineHalted(
                f"it is gone, and this job's folder has the state that was its writing {note.generation}"
            )
        return Beginning.ADOPT if has_files else Beginning.ANEW
    if note is None:
        if has_files:
            raise PipelineHalted("it is there, and this job's folder has another state, which was never kept there")
        return Beginning.RESTORE
    if note.generation > found.generation:
        raise PipelineHalted(
            f"it is older than what this job's folder knows: writing {found.generation}, and there was a writing "
            f"{note.generation}"
        )
    if note.generation == found.generation and note.writer:
        if note.writer != found.writer:
            raise PipelineHalted(f"its writing {found.generation} is another one than this job's folder knows")
        return Beginning.GO_ON
    return Beginning.RESTORE


@dataclass(slots=True)
class _Own:
    """An object that this process wrote last, or is to make."""

    state: KeptState
    version: Version | None
    """None: it is not there yet."""
    confirmed_s: float
    served_from_s: float = 0.0
    is_served: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class KeptStates:
    """The objects of one job's tenants. For any thread."""

    def __init__(self, settings: StateStoreSettings, state_dir: Path, store: StateStore) -> None:
        self._settings = settings
        self._state_dir = state_dir
        self._store = store
        self._writer = secrets.token_hex(8)
        self._own: dict[str, _Own] = {}
        self._ask_not_before_s = 0.0
        """Whether the store answers is the same for all tenants."""
        self._mend_until_s: dict[str, float] = {}
        self.waiting: dict[str, str] = {}
        """The reasons of waiting tenants here, by tenant."""
        self._fault_since_s: dict[str, float] = {}
        """Of those that wait for the store, or for a person."""

    def open(self, tenant: str) -> bool:
        """Whether the tenant may be served: its state lies in the folder, and nobody else writes it. Call it again and again,
        in one thread; otherwise the reason is reported.

        Raises:
            Fenced: another process began with the same state in this moment.
        """
        own = self._own.get(tenant)
        if own is None and time.monotonic() >= max(self._ask_not_before_s, self._mend_until_s.get(tenant, 0.0)):
            try:
                own = self._own[tenant] = self._begun(tenant)
            except TransientError as error:
                self._ask_not_before_s = time.monotonic() + _PAUSE_S
                self._report_waits(tenant, str(error))
            except PipelineHalted as error:
                self._mend_until_s[tenant] = time.monotonic() + _PAUSE_S
                self._report_waits(tenant, f"{self._store.place(self._key(tenant))}: {error}; {_CONTRADICTED}")
        if own is None:
            if tenant not in self.waiting:
                self._report_waits(tenant, "the object store with its state did not answer a moment ago")
            return False
        if own.is_served:
            return True
        if time.monotonic() < own.served_from_s:
            because = "another process wrote its state last, and is given time to end"
            self._report_waits(tenant, because, is_fault=False)
            return False
        own.is_served = True
        self._note_own(tenant, own)
        self._report_served(tenant)
        return True

    def keep(self, tenant: str, is_stopping: Callable[[], bool]) -> None:
        """Write the folder's state to the object. Waits, and reports it, while the store is away.

        Raises:
            Fenced: another process has the tenant; end.
            TransientError: the store is away, and the query is to stop.
        """
        self._until_done(tenant, self._keep, is_stopping)

    def confirm(self, tenant: str, is_stopping: Callable[[], bool]) -> None:
        """Check that nobody else had the tenant a moment ago: within a third of a newcomer's waiting time. Waits and raises as
        ``keep``."""
        self._until_done(tenant, self._confirm, is_stopping)

    def faults(self, *, lasting_s: float) -> dict[str, str]:
        """The part of ``waiting`` that does not pass by itself, and has lasted this long: the store is away or refuses, or a
        state contradicts."""
        now_s = time.monotonic()
        lasting = [name for name, since_s in list(self._fault_since_s.items()) if now_s - since_s >= lasting_s]
        return {name: because for name in lasting if (because := self.waiting.get(name)) is not None}

    def keep_now(self, tenant: str) -> None:
        """As ``keep``, but it does not wait: raises TransientError where the store is away."""
        if time.monotonic() < self._ask_not_before_s:
            raise TransientError(
                f"{self._store.place(self._key(tenant))}: the object store did not answer a moment ago"
            )
        try:
            self._keep(tenant)
        except TransientError:
            self._ask_not_before_s = time.monotonic() + _PAUSE_S
            raise
        self._report_served(tenant)  # its query may have been stopped while it waited

    def forget(self, tenant: str) -> None:
        """Remove the object of a tenant of which nothing is left. An object that cannot be removed says only that."""
        if self._own.pop(tenant, None) is None:
            return
        self._report_served(tenant)
        self._note_path(tenant).unlink(missing_ok=True)
        try:
            self._store.remove(self._key(tenant))
        except TransientError as error:
            log.warning("sink_state_not_removed", tenant=tenant, reason=str(error))

    def _begun(self, tenant: str) -> _Own:
        read = self._store.read(self._key(tenant))
        try:
            found, version = (None, None) if read is None else (_decode_state(read[0]), read[1])
        except msgspec.DecodeError as error:
            raise PipelineHalted("it is no state that a job of this release has written") from error
        note = self._note(tenant)
        files = kept_files(self._state_dir, tenant)
        begun = beginning(found, note, has_files=bool(files))
        if found is None:
            # Before the object is there: a folder with a state and without a note is another's.
            self._store_note(tenant, KeptNote(generation=0, writer=""))
            before = KeptState(generation=0, writer=self._writer, files={})
        else:
            before = found
            if begun is Beginning.RESTORE:
                self._store_note(tenant, KeptNote(generation=found.generation, writer=""))
                _restore(self._state_dir, tenant, found.files)
                files = dict(found.files)
        own = _Own(before, version, confirmed_s=0.0)
        if begun is not Beginning.ANEW:
            self._write(tenant, own, files)
        # Its writer in this very folder has ended, as the session's lock is ours; but it may not have outwaited another.
        has_ended = found is None or (note is not None and note.writer == found.writer and note.is_served)
        own.served_from_s = time.monotonic() + (0.0 if has_ended else self._settings.takeover_wait_s)
        log.info(
            "sink_state_opened", tenant=tenant, begun=begun.value, generation=own.state.generation, files=len(files)
        )
        return own

    def _keep(self, tenant: str) -> None:
        own = self._own[tenant]
        with own.lock:  # a later read is a later write
            files = kept_files(self._state_dir, tenant)
            if files != own.state.files:
                self._write(tenant, own, files)

    def _confirm(self, tenant: str) -> None:
        own = self._own[tenant]
        with own.lock:
            asked_s = time.monotonic()
            if asked_s - own.confirmed_s < self._settings.takeover_wait_s * _CONFIRMED_FOR:
                return
            if self._store.version(self._key(tenant)) != own.version:
                self._read_again(tenant, own)
            own.confirmed_s = asked_s

    def _write(self, tenant: str, own: _Own, files: Mapping[str, str]) -> None:
        while own.state.files != files or own.state.writer != self._writer:
            state = KeptState(generation=own.state.generation + 1, writer=self._writer, files=files)
            asked_s = time.monotonic()
            try:
                own.version = self._store.write(self._key(tenant), msgspec.json.encode(state), own.version)
                own.state = state
            except ObjectChanged:
                self._read_again(tenant, own)
            own.confirmed_s = asked_s
        self._note_own(tenant, own)

    def _read_again(self, tenant: str, own: _Own) -> None:
        """A writing of our own that was not answered may be there; any other one is another's."""
        read = self._store.read(self._key(tenant))
        try:
            found = None if read is None else _decode_state(read[0])
        except msgspec.DecodeError:
            found = None
        if read is None or found is None or found.writer != self._writer:
            raise Fenced(
                f"{self._store.place(self._key(tenant))}: another process has written the state of tenant {tenant}, or removed "
                "it, so that this job writes nothing more; see that one job alone has state_store.job "
                f"{self._settings.job!r}, then start it again"
            )
        own.state, own.version = found, read[1]

    def _until_done(self, tenant: str, work: Callable[[str], None], is_stopping: Callable[[], bool]) -> None:
        while True:
            try:
                work(tenant)
            except TransientError as error:
                self._report_waits(tenant, str(error))
                again_s = time.monotonic() + _PAUSE_S
                while time.monotonic() < again_s:
                    if is_stopping():
                        raise
                    time.sleep(_POLL_S)
            else:
                self._report_served(tenant)
                return

    def _key(self, tenant: str) -> str:
        return f"{self._settings.job}/{tenant}.json"

    def _note_path(self, tenant: str) -> Path:
        return self._state_dir / "kept" / f"{tenant}.json"

    def _note(self, tenant: str) -> KeptNote | None:
        try:
            return _decode_note(self._note_path(tenant).read_bytes())
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise PipelineHalted(f"the note of it, {self._note_path(tenant)}, cannot be read") from error

    def _note_own(self, tenant: str, own: _Own) -> None:
        note = KeptNote(generation=own.state.generation, writer=self._writer, is_served=own.is_served)
        self._store_note(tenant, note)

    def _store_note(self, tenant: str, note: KeptNote) -> None:
        replace_durably(self._note_path(tenant), msgspec.json.encode(note))

    def _report_waits(self, tenant: str, because: str, *, is_fault: bool = True) -> None:
        if is_fault:
            self._fault_since_s.setdefault(tenant, time.monotonic())
        else:
            self._fault_since_s.pop(tenant, None)
        if self.waiting.get(tenant) != because:
            self.waiting[tenant] = because
            SINK_WAITS.labels(tenant).set(1)
            log.warning("sink_tenant_waits", tenant=tenant, reason=because)

    def _report_served(self, tenant: str) -> None:
        self._fault_since_s.pop(tenant, None)
        if self.waiting.pop(tenant, ""):
            SINK_WAITS.remove(tenant)
            log.info("sink_tenant_waits_no_more", tenant=tenant)


_CONTRADICTED: Final = (
    "put back what is missing; or remove the one that is wrong: the object, or the tenant's files in state_dir and its note in "
    "state_dir/kept (docs/sinks/settings.md, 'The state in an object store')"
)
_decode_state: Final = msgspec.json.Decoder(KeptState).decode
_decode_note: Final = msgspec.json.Decoder(KeptNote).decode


def kept_files(state_dir: Path, tenant: str) -> dict[str, str]:
    """The kept data of a tenant: its state, and the job's knowledge of its place."""
    files, held = state_files(state_dir, tenant), held_path(state_dir, tenant)
    if held.is_file():
        files[str(held.relative_to(state_dir))] = held.read_text(encoding="utf-8")
    return files


def _restore(state_dir: Path, tenant: str, files: Mapping[str, str]) -> None:
    held = held_path(state_dir, tenant)
    name = str(held.relative_to(state_dir))
    replace_state(state_dir, tenant, {path: text for path, text in files.items() if path != name})
    if name in files:
        replace_durably(held, files[name].encode())
    else:
        held.unlink(missing_ok=True)
