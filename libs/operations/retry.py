"""Parked tables of a tenant that its sink tries again now, and not when they are due: ``headwater retry``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from libs.config.connections import KafkaSettings
from libs.errors import InvalidSettings
from libs.events.names import wakes_topic
from libs.mesh.parked import SinkTable, Standing
from libs.mesh.sink_requests import send_to_sink
from libs.mesh.table_names import table_named
from libs.sink_state.wake import Wake, encode_wake


@dataclass(frozen=True, slots=True)
class Chosen:
    """A tenant's tables that were meant; by name, each once."""

    parked: tuple[SinkTable, ...]
    """Those that can be tried; also tables whose standing is not seen."""
    catching_up: tuple[SinkTable, ...]
    not_parked: tuple[SinkTable, ...]

    @property
    def is_seen(self) -> bool:
        """Whether all of ``parked`` are known to be parked."""
        return all(each.standing is Standing.PARKED for each in self.parked)


def choose_parked(tables: Sequence[SinkTable], tenant: str, names: Sequence[str]) -> Chosen:
    """The tables that ``names`` mean; none named: all that are parked, or may be.

    Raises:
        InvalidSettings: some names are no table's, or not of one alone; every one is listed.
    """
    chosen: dict[tuple[str, str], SinkTable] = {}
    mistakes: list[str] = []
    lack = f"the sink of tenant {tenant} has no such table"
    for name in names:
        try:
            found = table_named(name, tables, lambda each: (each.source, each.table), tenant=tenant, lack=lack)
        except InvalidSettings as error:
            mistakes += [f"{error.subject}: {mistake}" for mistake in error.mistakes]
        else:
            chosen[found.source, found.table] = found
    if mistakes:
        raise InvalidSettings(f"retry {tenant}", mistakes)
    meant = chosen.values() if names else [each for each in tables if each.standing is not Standing.WRITTEN]
    found_tables = sorted(meant, key=lambda each: (each.table, each.source))
    return Chosen(
        parked=tuple(each for each in found_tables if each.standing in (Standing.PARKED, Standing.UNSEEN)),
        catching_up=tuple(each for each in found_tables if each.standing is Standing.CATCHING_UP),
        not_parked=tuple(each for each in found_tables if each.standing is Standing.WRITTEN),
    )


def ask_for_retry(kafka: KafkaSettings, tenant: str, topics: Iterable[str]) -> None:
    """Have the sink try the tables of ``topics`` with its next batch, which begins for that; durable when this returns.

    A table that is not parked any more by then is left alone, so that asking twice does no harm.

    Raises:
        BrokerUnavailable: Kafka does not take the request.
    """
    wake = Wake(retried_topics=tuple(topics))
    send_to_sink(kafka, wakes_topic(tenant), {encode_wake(wake): tenant})
