"""A file for ``--mesh``: the addresses that commands need of a mesh elsewhere."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from libs.clickhouse.settings import ClickhouseWarehouse
from libs.config.connections import GrpcClientSettings, KafkaSettings, WatchedService
from libs.config.iceberg_catalog import CatalogSettings
from libs.config.load import load_settings
from libs.errors import InvalidSettings
from libs.events.names import SCHEMA_HISTORY_TOPIC
from libs.mesh.documents import SourceDocument, convert_source
from libs.postgresql.settings import PostgresqlWarehouse


class KubectlSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where kubectl finds the tenants' ConfigMaps: its own configuration names the user."""

    namespace: str | None = None
    """None: every namespace, which takes the right to list ConfigMaps in all of them."""
    context: str | None = None
    """Of kubectl's configuration. None: its current one."""


class IcebergPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Iceberg tables, as the sink job's ``warehouses.iceberg`` has it."""

    warehouse_dir: str
    catalog: CatalogSettings


class DeltaPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Delta tables, as the sink job's ``warehouses.delta`` has it."""

    warehouse_dir: str


class WarehousePlaces(msgspec.Struct, frozen=True, kw_only=True):
    """Where tenants' tables are, for ``check``, which reads them. Tenants of a warehouse that is not named are not compared."""

    iceberg: IcebergPlace | None = None
    delta: DeltaPlace | None = None
    postgresql: PostgresqlWarehouse | None = None
    clickhouse: ClickhouseWarehouse | None = None


class MeshSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A file for ``--mesh``."""

    kafka: KafkaSettings
    schema_history_topic: str = SCHEMA_HISTORY_TOPIC
    """As the settings of schema_history name it."""
    kubernetes: KubectlSettings | None = None
    """None: no command asks Kubernetes of itself."""
    sources: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """How ``check`` reads the sources, by name: documents as in ``sources/`` of a home. ``status`` asks them for their newest
    transactions."""
    warehouses: WarehousePlaces = WarehousePlaces()
    tenants_dir: str | None = None
    """Folder of the tenants' documents, for ``check``. None: they come from ``tenant_operator``, or else from their
    ConfigMaps."""
    tenant_operator: GrpcClientSettings | None = None
    """Of whom ``check`` hears which documents are in force. Pods of the mesh alone reach it."""
    services: tuple[WatchedService, ...] = ()
    """Whom ``status``, ``pause`` and ``resume`` ask. Only pods of the mesh reach them."""
    temporary_dir: str | None = None
    """Where ``check`` sorts rows that do not fit into memory. None: the machine's folder for temporary files."""
    notes_dir: str | None = None
    """Where ``resync`` and ``erase`` note their progress, to continue after a kill. None: ``$XDG_STATE_HOME/headwater``,
    by the Kafka's address."""
    keys_folder: str | None = None
    """Folder with one of each tenant whose masks have keys, as the router's. None: ``HEADWATER_KEY__…`` of the environment."""


def mesh_settings(file: Path, environ: Mapping[str, str]) -> MeshSettings:
    """The settings of a mesh in ``file``. Raises InvalidSettings with every mistake."""
    return load_settings(MeshSettings, path=file, environ=environ, subject=str(file))


def notes_dir(settings: MeshSettings) -> Path:
    """As ``notes_dir_of``, in this process's environment."""
    return notes_dir_of(settings.notes_dir, settings.kafka, os.environ)


def notes_dir_of(given: str | None, kafka: KafkaSettings, environ: Mapping[str, str]) -> Path:
    """The folder for the notes of this person's commands about the mesh of ``kafka``.

    By the file's ``notes_dir``, else by the XDG Base Directory Specification ("XDG_STATE_HOME").
    """
    if given is not None:
        return Path(given)
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    name = "".join(sign if sign.isalnum() or sign in ".-" else "_" for sign in kafka.bootstrap_servers)
    return Path(state) / "headwater" / name


def mesh_sources(settings: MeshSettings) -> Mapping[str, SourceDocument]:
    """How the sources are read. Raises InvalidSettings with every mistake; none is named."""
    if not settings.sources:
        raise InvalidSettings(
            "the file for --mesh", ["sources: is missing: name each source and its database, as in docs/kubernetes.md"]
        )
    found, mistakes = {}, []
    for name, value in _joined(settings.sources).items():
        of_source: list[str] = []
        document = convert_source(value, of_source)
        mistakes += [f"sources.{name}.{mistake}" for mistake in of_source]
        if document is not None:
            found[name] = document
    if mistakes:
        raise InvalidSettings("the file for --mesh", mistakes)
    return found


def _joined(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The environment's settings of a source, whose names are lower case there, over those of the file."""
    found: dict[str, Any] = {}
    for name in sorted(given, key=lambda name: name == name.lower()):
        owner = next((other for other in found if other.lower() == name), name)
        found[owner] = _merged(found.get(owner), given[name])
    return found


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{name: _merged(below.get(name), value) for name, value in above.items()}}
