"""A tenant's parked tables and keys, as a command sees them.

The files of a home's sink name them. Of a mesh elsewhere only Kafka is reached, so that its tables are known and their standing
is not.
"""

import enum
from dataclasses import dataclass

import msgspec

from libs.errors import InvalidSettings
from libs.mesh.home import Home
from libs.mesh.mesh import Mesh
from libs.mesh.sink_state import sink_progress
from libs.mesh.tenant_topics import delivered_topics
from libs.sink_state.parked_keys import TenantParkedKeys, decode_parked_keys, parked_keys_path
from libs.sink_state.progress import SinkProgress, TableProgress


class Standing(enum.Enum):
    """Whether the sink writes a table."""

    WRITTEN = "written"
    PARKED = "parked"
    """None of its events are written before it is tried again."""
    CATCHING_UP = "catching up"
    """It was parked, and its waiting events are read without pauses."""
    UNSEEN = "unseen"
    """Not seen from here."""


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A table that a tenant's sink may have parked."""

    topic: str
    source: str
    table: str
    """``database.table``."""
    standing: Standing


def sink_tables(mesh: Mesh, tenant: str) -> list[SinkTable]:
    """Every table of ``tenant``: that its sink has written, or, of a mesh elsewhere, that rows were delivered to.

    Raises:
        BrokerUnavailable, AccessDenied: Kafka, which is asked for those elsewhere.
    """
    if mesh.home is None:
        return [
            SinkTable(each.name, each.source, f"{each.database}.{each.table}", Standing.UNSEEN)
            for each in delivered_topics(mesh.kafka, tenant)
        ]
    return written_tables(sink_progress(mesh.home, tenant))


def written_tables(progress: SinkProgress | None) -> list[SinkTable]:
    """The tables of a sink's progress file; None: there is none yet."""
    tables = () if progress is None else progress.tables.values()
    return [SinkTable(each.topic, each.source, each.table, standing_of(each)) for each in tables]


def standing_of(table: TableProgress) -> Standing:
    if table.parked is None:
        return Standing.WRITTEN
    return Standing.CATCHING_UP if table.parked.is_catching_up else Standing.PARKED


def parked_keys(mesh: Mesh, tenant: str) -> TenantParkedKeys | None:
    """As ``parked_keys_in``; None: they are not seen from here."""
    return None if mesh.home is None else parked_keys_in(mesh.home, tenant)


def parked_keys_in(home: Home, tenant: str) -> TenantParkedKeys:
    """The keys that the sink has parked; empty where there are none, or no sink.

    Raises:
        InvalidSettings: the file is of another release, or broken.
    """
    path = parked_keys_path(home.sink_dir, tenant)
    try:
        return decode_parked_keys(path.read_bytes())
    except FileNotFoundError:
        return TenantParkedKeys(tenant=tenant)
    except msgspec.DecodeError as error:
        raise InvalidSettings(str(path), [f"cannot be read: {error}"]) from error
