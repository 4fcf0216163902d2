"""Which Spark job serves a tenant, and the hand-over from one job to the next; plain values and their bytes.

tenant_operator decides, and writes each job's tenants' places into the file ``places.json`` beside their documents. Jobs
answer in the compacted topic ``headwater.sink-handovers``, under the tenant's name and tenancy: its state itself, that it was
taken, or why not. ``spark.tenant.moves`` is a job's part, ADR 26 has the reasons. Beside these, under keys of their
own, jobs say there which tenants stand still (ADR 26), which faults a tenant's tables have, and how its resyncs ended.
"""

import enum
import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from libs.types.fault import Fault

PLACES_FILE: Final = "places.json"
"""Beside a job's documents; no name of a document. Where there is none, a job serves every document."""
EXECUTOR_LABEL: Final = "headwater.dev/executor-of"
"""On executors' pods: their job, under any creator. The job's own pod has another label, by which its StatefulSet knows
it."""
_WAITS: Final = "/waits/"
_FAULTS: Final = "/faults/"
_RESYNCS: Final = "/resyncs/"
MAX_HANDOVER_BYTES: Final = 900_000
"""Compressed. Brokers take records of 1 MB by default (message.max.bytes)."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a tenant belongs."""

    job: str
    tenancy: str
    """Which of several that had this name one after another: the uid of its ConfigMap."""
    move: int = 0
    """How often it has moved. It only grows, and names the state that the job is to begin with."""
    came_from: str = ""
    """The job that has to hand it over; empty: it has done so, or none has to."""
    drops_tables: bool = False
    """The tenant goes, with its tables in the warehouses."""


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """One job's file."""

    job: str
    """Whose."""
    tenants: Mapping[str, Place] = {}
    """Those that it has or is to have, and those that it is to hand over."""


class Outcome(enum.Enum):
    """A job's report about a tenant."""

    HANDED_OVER = "handed over"
    """Here is its state; the writing job will not serve it again before it is handed back."""
    TAKEN = "taken"
    """Its state lies in this job now."""
    REFUSED = "refused"
    """It is not handed over, and served on."""
    DROPPED = "dropped"
    """Its tables and its state are gone."""
    NOT_DROPPED = "not dropped"
    """Not yet: it is tried again."""


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """A job's last report about a tenant."""

    tenant: str
    tenancy: str
    move: int
    outcome: Outcome
    job: str
    """Which says so."""
    because: str = ""
    """Why not, with the remedy."""
    files: Mapping[str, str] = {}
    """Of HANDED_OVER: the tenant's state, by path below ``state_dir``; none: there was nothing yet."""


class SinkWait(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant stands still in a job, and has for longer than a moment. A record without a value: it does not."""

    because: str
    """Why, with the remedy."""


class SinkFaults(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of a tenant in a job, for example its parked tables. A record without a value: there is none."""

    faults: tuple[Fault, ...]
    """The worst first."""


class Phase(enum.Enum):
    """A job's part of a tenant's state."""

    HELD = "held"
    REFUSED = "refused"
    """Held, because the move of this number was refused; that is not taken back."""
    HANDING_OVER = "handing over"
    """Being written to Kafka, perhaps there already. The tenant is not served here any more."""
    GONE = "gone"
    DROPPED = "dropped"
    """With the tables; kept while the place says so, lest a job that begins again drops the tables of the name's next owner."""


class HeldState(msgspec.Struct, frozen=True, kw_only=True):
    """A job's note about its own state of a tenant: the file ``<state_dir>/places/<tenant>.json``."""

    tenancy: str
    move: int
    """HELD: which state it is; else the move that ended that."""
    phase: Phase


def held_path(state_dir: Path, tenant: str) -> Path:
    """The file of one tenant."""
    return state_dir / "places" / f"{tenant}.json"


def handover_key(tenant: str, tenancy: str) -> str:
    """The record's key: a report about one tenancy never replaces one about another."""
    return f"{tenant}/{tenancy}"


def wait_key(tenant: str, tenancy: str, job: str) -> str:
    """The key of ``job``'s report about a waiting tenant: each job writes its own alone."""
    return f"{handover_key(tenant, tenancy)}{_WAITS}{job}"


def is_wait_key(key: str) -> bool:
    """Whether it is one of ``wait_key``."""
    return _WAITS in key


def faults_key(tenant: str, tenancy: str, job: str) -> str:
    """The key of ``job``'s report about a tenant's faults: each job writes its own alone."""
    return f"{handover_key(tenant, tenancy)}{_FAULTS}{job}"


def is_faults_key(key: str) -> bool:
    """Whether it is one of ``faults_key``."""
    return _FAULTS in key


def resyncs_key(tenant: str, tenancy: str, job: str) -> str:
    """The key of ``job``'s report about a tenant's resyncs (``libs.sink_state.resync.TenantResyncs``)."""
    return f"{handover_key(tenant, tenancy)}{_RESYNCS}{job}"


def is_resyncs_key(key: str) -> bool:
    """Whether it is one of ``resyncs_key``."""
    return _RESYNCS in key


def tenant_of_key(key: str) -> str:
    """The tenant of any of these keys."""
    return key.partition("/")[0]


def is_handover_key(key: str) -> bool:
    """Whether it is one of ``handover_key``."""
    return not (is_wait_key(key) or is_faults_key(key) or is_resyncs_key(key))


def encode_places(places: Places) -> bytes:
    """The file's content; the same for the same places."""
    return msgspec.json.encode(places, order="sorted")


def decode_places(content: bytes) -> Places:
    """Decode the bytes of ``encode_places``. Raises msgspec.DecodeError for others."""
    return _places_decoder.decode(content)


def encode_held(held: HeldState) -> bytes:
    """The file's content."""
    return msgspec.json.encode(held)


def decode_held(content: bytes) -> HeldState:
    """Decode the bytes of ``encode_held``. Raises msgspec.DecodeError for others."""
    return _held_decoder.decode(content)


def encode_handover(handover: Handover) -> bytes:
    """The record's value: JSON, by gzip, so that ``zcat`` shows it. The same for the same hand-over."""
    return gzip.compress(msgspec.json.encode(handover), mtime=0)


def decode_handover(value: bytes) -> Handover:
    """Decode the bytes of ``encode_handover``. Raises msgspec.DecodeError for others."""
    try:
        return _handover_decoder.decode(gzip.decompress(value))
    except (OSError, EOFError, zlib.error) as error:
        raise msgspec.DecodeError("no hand-over: not compressed by gzip") from error


def encode_wait(wait: SinkWait) -> bytes:
    """The record's value: JSON."""
    return msgspec.json.encode(wait)


def decode_wait(value: bytes) -> SinkWait:
    """Decode the bytes of ``encode_wait``. Raises msgspec.DecodeError for others."""
    return _wait_decoder.decode(value)


def encode_faults(faults: SinkFaults) -> bytes:
    """The record's value: JSON."""
    return msgspec.json.encode(faults)


def decode_faults(value: bytes) -> SinkFaults:
    """Decode the bytes of ``encode_faults``. Raises msgspec.DecodeError for others."""
    return _faults_decoder.decode(value)


_faults_decoder = msgspec.json.Decoder(SinkFaults)
_wait_decoder = msgspec.json.Decoder(SinkWait)
_places_decoder = msgspec.json.Decoder(Places)
_held_decoder = msgspec.json.Decoder(HeldState)
_handover_decoder = msgspec.json.Decoder(Handover)
