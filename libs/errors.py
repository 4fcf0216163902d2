"""Errors, by the caller's next step.

    HeadwaterError
    ├─ TransientError     try again with back-off, same input
    │  ├─ SourceUnavailable
    │  ├─ BrokerUnavailable
    │  ├─ ServiceUnavailable
    │  └─ ClusterUnavailable
    ├─ InvalidEvent       set this event aside, go on
    │  ├─ UndecodableValue
    │  └─ UndecodableMessage
    ├─ PipelineHalted     stop this pipeline, call a human
    │  ├─ PositionPurged
    │  ├─ SchemaUnknown
    │  ├─ SchemaContradiction
    │  ├─ SourceMisconfigured
    │  ├─ AccessDenied
    │  ├─ DefinitionTooLarge
    │  └─ DiskFull
    ├─ InvalidSettings    refuse to start; every mistake is listed
    └─ Fenced             stop now: another owner holds it

Vendor exceptions become ours where the vendor is called (``raise … from error``). Messages name the
thing and the remedy, never a row's values or a secret.
"""

from collections.abc import Sequence


class HeadwaterError(Exception):
    """Any error that Headwater raises on purpose."""


class TransientError(HeadwaterError):
    """The world failed, not the data: try again with back-off, with the same input."""


class SourceUnavailable(TransientError):
    """The source database does not answer or dropped the connection."""


class BrokerUnavailable(TransientError):
    """Kafka does not answer, or a transaction could not be completed in time."""


class ServiceUnavailable(TransientError):
    """One of Headwater's own services does not answer."""


class ClusterUnavailable(TransientError):
    """No Kubernetes API server is reached."""


class InvalidEvent(HeadwaterError):
    """One event is wrong: set it aside (dead letter) and go on."""


class UndecodableValue(InvalidEvent):
    """A column's bytes do not fit its declared type."""


class UndecodableMessage(InvalidEvent):
    """A message of the source's log breaks its protocol; nothing of it can be trusted."""


class PipelineHalted(HeadwaterError):
    """No retry helps: stop this pipeline and call a human; the message ends with the remedy."""


class PositionPurged(PipelineHalted):
    """The source no longer holds the log from the position to resume at: re-snapshot."""


class SchemaUnknown(PipelineHalted):
    """A row of a table came whose schema is not in schema_history."""


class SchemaContradiction(PipelineHalted):
    """A row in the log does not fit the schema that the history holds for its place."""


class SourceMisconfigured(PipelineHalted):
    """The source is not set up for change data capture; the message lists each fault and its mend."""


class AccessDenied(PipelineHalted):
    """Credentials or grants do not suffice."""


class DefinitionTooLarge(PipelineHalted):
    """A table's definition does not fit into the schema history; a source that can pass the table over goes on."""


class DiskFull(PipelineHalted):
    """No disk space for data that does not fit into memory."""


class Fenced(HeadwaterError):
    """Another owner holds the source partition: stop now, publish nothing more."""


class InvalidSettings(HeadwaterError):
    """Settings or a tenant document are wrong. ``mistakes`` holds every one, place first."""

    def __init__(self, subject: str, mistakes: Sequence[str]) -> None:
        self.subject = subject
        self.mistakes = tuple(mistakes)
        listed = "\n".join(f"  - {mistake}" for mistake in self.mistakes)
        super().__init__(f"{subject}: {len(self.mistakes)} mistake(s)\n{listed}")


def is_of_all(error: BaseException) -> bool:
    """Whether an error is about the world, and so concerns everybody, rather than about one tenant's document, name or value.

    The one rule above all: an error that a tenant's document, or a name or value at the source, causes is refused to that
    tenant, or of that table. Every place that does one tenant's work beside others' asks here what may pass on.

    >>> is_of_all(TransientError("Kafka is away")), is_of_all(OverflowError("too large"))
    (True, False)
    """
    return not isinstance(error, Exception) or isinstance(error, TransientError | Fenced | SchemaUnknown)


def refusal_of(error: Exception) -> str:
    """Why it is refused, for a person. Of another library's error only the kind: its text may hold a row's values."""
    if isinstance(error, HeadwaterError):
        return str(error)
    return (
        f"Headwater failed on it with {type(error).__name__}, which it should have refused in words of its own; change what "
        "was changed last, and report the log line refused_unforeseen"
    )
