"""Where a command acts: on the embedded stack of a home, or on a mesh elsewhere, of which Kafka alone is to be reached."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from libs.config.connections import KafkaSettings, WatchedService
from libs.errors import InvalidSettings
from libs.events.names import changes_topic, dead_letter_topic
from libs.mesh.documents import read_documents, read_kafka
from libs.mesh.home import Home
from libs.mesh.mesh_settings import mesh_settings
from libs.mesh.processes import kafka_address
from libs.mesh.state import read_ports, running_state
from libs.mesh.tenant_topics import topic_names
from libs.tenants.place import nearest


@dataclass(frozen=True, slots=True)
class Mesh:
    """A command's view of a mesh."""

    kafka: KafkaSettings
    home: Home | None
    """Of the embedded stack. None: of a mesh elsewhere, whose documents and sinks' state lie where no command sees them."""
    services: tuple[WatchedService, ...] = ()
    """Of a mesh elsewhere: those that its file names."""


def stack_kafka(home: Home) -> KafkaSettings:
    """How the Kafka of a home's stack is reached.

    Raises:
        InvalidSettings: ``kafka.yaml`` has mistakes.
    """
    mistakes: list[str] = []
    owners = read_kafka(home, mistakes)
    if mistakes:
        raise InvalidSettings(str(home.kafka_file), mistakes)
    return owners or KafkaSettings(bootstrap_servers=kafka_address(read_ports(home)))


def stack_mesh(home: Home) -> Mesh:
    """The stack that runs in ``home``. Raises NotUp: none does."""
    running_state(home)
    return Mesh(stack_kafka(home), home)


def cluster_mesh(file: Path, environ: Mapping[str, str]) -> Mesh:
    """The mesh of ``file``. Raises as ``mesh_settings``."""
    settings = mesh_settings(file, environ)
    return Mesh(settings.kafka, None, settings.services)


def require_source(mesh: Mesh, source: str) -> None:
    """Raises InvalidSettings: there is no such source; the message has the nearest name. BrokerUnavailable."""
    if mesh.home is not None:
        known, lacks = sorted(read_documents(mesh.home).sources), "has no document in sources/"
    else:
        prefix, lacks = changes_topic(""), f"has no topic {changes_topic(source)}"
        known = [name.removeprefix(prefix) for name in topic_names(mesh.kafka) if name.startswith(prefix)]
    if source not in known:
        raise InvalidSettings(f"source {source}", [f"{lacks}; {nearest(source, known)}"])


def require_tenant(mesh: Mesh, tenant: str) -> None:
    """Raises InvalidSettings: there is no such tenant; the message has the nearest name. BrokerUnavailable."""
    if mesh.home is not None:
        read_documents(mesh.home).require_tenant(tenant)
        return
    suffix = dead_letter_topic("")
    known = [name.removesuffix(suffix) for name in topic_names(mesh.kafka) if name.endswith(suffix)]
    if tenant not in known:
        raise InvalidSettings(
            f"tenant {tenant}", [f"has no topic {dead_letter_topic(tenant)}; {nearest(tenant, known)}"]
        )
