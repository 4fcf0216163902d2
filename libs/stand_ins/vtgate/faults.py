"""Failures on demand, which Vitess is not asked for: a test arms them, the streams meet them.

Each is met once, by the next stream event that fits, unless it says otherwise.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from libs.stand_ins.vtgate.topology import Refused
from protos.vitess.binlogdata_pb2 import VEvent, VEventType
from protos.vitess.query_pb2 import Field, Row, Type

UNAVAILABLE: Final = "UNAVAILABLE"
OK: Final = "OK"
"""Of a stream that ends in peace."""


@dataclass(slots=True)
class Drop:
    """The stream breaks with an error status before the ``behind_events + 1``-th event from now is sent."""

    behind_events: int
    code: str = UNAVAILABLE
    message: str = "vttablet: rpc error: code = Unavailable desc = error reading from server: EOF"


@dataclass(slots=True)
class End:
    """The stream ends without an error before its next event, or before the one after the response that has an event of this
    kind."""

    behind: "VEventType | None" = None


@dataclass(slots=True)
class Delay:
    """Nothing is sent for so long, heartbeats neither."""

    seconds: float
    behind_events: int = 0


@dataclass(slots=True)
class AnonymousColumns:
    """The table's next FIELD has the columns "@1", "@2" and so on, as after an ALTER that Vitess did not follow."""

    table: str


@dataclass(slots=True)
class WrongFields:
    """The table's next FIELD has a column too many: the rows after it have another count."""

    table: str


@dataclass(slots=True)
class MissingField:
    """The table's next FIELD is lost: its rows come without."""

    table: str


@dataclass(slots=True)
class OversizedRow:
    """The table's next row has so many bytes more in its last column."""

    table: str
    extra_bytes: int


Fault = Drop | End | Delay | AnonymousColumns | WrongFields | MissingField | OversizedRow


@dataclass(slots=True)
class Faults:
    """The armed faults; shared by a server's streams."""

    _armed: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arm(self, *faults: Fault) -> None:
        """Let them happen."""
        with self._lock:
            self._armed.extend(faults)

    @property
    def armed(self) -> tuple[Fault, ...]:
        """The faults that have not happened yet."""
        with self._lock:
            return tuple(self._armed)

    def meet(self, events: Sequence[VEvent]) -> tuple[list[VEvent], Refused | None]:
        """The part of ``events`` that is still sent, and the error that the stream then ends with."""
        with self._lock:
            if not self._armed:
                return list(events), None
        sent: list[VEvent] = []
        for event in events:
            with self._lock:
                for fault in tuple(self._armed):
                    match fault:
                        case Drop() | Delay():
                            if fault.behind_events > 0:
                                fault.behind_events -= 1
                                continue
                            self._armed.remove(fault)
                            if isinstance(fault, Drop):
                                return sent, Refused(fault.code, fault.message)
                            time.sleep(fault.seconds)
                        case End():
                            if fault.behind is None:
                                self._armed.remove(fault)
                                return sent, Refused(OK, "")
                        case _ if self._falsified(fault, event):
                            self._armed.remove(fault)
                            if isinstance(fault, MissingField):
                                event = VEvent(type=VEventType.UNKNOWN)
            if event.type != VEventType.UNKNOWN:
                sent.append(event)
        kinds = {event.type for event in events}
        for fault in self.armed:
            if isinstance(fault, End) and fault.behind in kinds:
                fault.behind = None
        return sent, None

    def _falsified(self, fault: Fault, event: VEvent) -> bool:
        """The fault fits the event, which has been changed by it."""
        described = event.field_event
        match fault:
            case MissingField():
                return _is_of(described.table_name, fault.table)
            case AnonymousColumns() if _is_of(described.table_name, fault.table):
                for number, column in enumerate(described.fields, start=1):
                    column.CopyFrom(Field(name=f"@{number}", type=column.type, charset=column.charset))
                return True
            case WrongFields() if _is_of(described.table_name, fault.table):
                described.fields.append(Field(name="gone", type=Type.INT32, charset=63, column_type="int"))
                return True
            case OversizedRow() if _is_of(event.row_event.table_name, fault.table):
                _lengthen(event.row_event.row_changes[0].after, fault.extra_bytes)
                return True
        return False


def _is_of(name: str, table: str) -> bool:
    return name.rpartition(".")[2] == table


def _lengthen(row: Row, extra_bytes: int) -> None:
    row.lengths[-1] = max(row.lengths[-1], 0) + extra_bytes
    row.values += b"x" * extra_bytes
