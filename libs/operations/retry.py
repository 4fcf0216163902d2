"""Parked tables of a tenant that its sink tries again now, and not when they are due: ``headwater retry``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from libs.config.connections import KafkaSettings
from libs.errors import InvalidSettings
from libs.events.names import wakes_topic
from libs.mesh.sink_requests import send_to_sink
from libs.operations.resync import choose_table
from libs.sink_state.progress import SinkProgress, TableProgress
from libs.sink_state.wake import Wake, encode_wake


@dataclass(frozen=True, slots=True)
class Chosen:
    """A tenant's tables that were meant; by name, each once."""

    parked: tuple[TableProgress, ...]
    """Those that can be tried."""
    catching_up: tuple[TableProgress, ...]
    """They were parked, and are read piece by piece without pauses."""
    not_parked: tuple[TableProgress, ...]


def choose_parked(progress: SinkProgress | None, tenant: str, tables: Sequence[str]) -> Chosen:
    """The tables that ``tables`` name, as ``choose_table`` has it; none named: all that are parked.

    Raises:
        InvalidSettings: some are no tables of the sink's, or not one alone; every one is listed.
    """
    chosen: dict[str, TableProgress] = {}
    mistakes: list[str] = []
    for name in tables:
        try:
            found = choose_table(progress, tenant, name)
        except InvalidSettings as error:
            mistakes += [f"{error.subject}: {mistake}" for mistake in error.mistakes]
        else:
            chosen[found.topic] = found
    if mistakes:
        raise InvalidSettings(f"retry {tenant}", mistakes)
    if not tables and progress is not None:
        chosen = {topic: each for topic, each in progress.tables.items() if each.parked is not None}
    found_tables = sorted(chosen.values(), key=lambda each: (each.table, each.source))
    return Chosen(
        parked=tuple(each for each in found_tables if each.needs_a_human),
        catching_up=tuple(each for each in found_tables if each.parked is not None and not each.needs_a_human),
        not_parked=tuple(each for each in found_tables if each.parked is None),
    )


def ask_for_retry(kafka: KafkaSettings, tenant: str, topics: Iterable[str]) -> None:
    """Have the sink try the tables of ``topics`` with its next batch, which begins for that; durable when this returns.

    A table that is not parked any more by then is left alone, so that asking twice does no harm.

    Raises:
        BrokerUnavailable: Kafka does not take the request.
    """
    wake = Wake(retried_topics=tuple(topics))
    send_to_sink(kafka, wakes_topic(tenant), {encode_wake(wake): tenant})
