"""A Kafka broker of one node (KRaft: broker and controller in one process), from the locked jars.

Started by the embedded stack and by the test fixtures. Its data folder keeps topics and transactions, so
stopping and starting it on the same folder is a broker's restart.
"""

import base64
import re
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from libs.errors import ServiceUnavailable
from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec
from libs.setup.cache import cache_dir
from libs.setup.jars import jars_dir
from libs.setup.java import find_java
from libs.setup.kafka_template import CLASSES, STORAGE, template_dir

FORMAT_TIMEOUT_S = 180.0  # 2 s alone; two cores may start a stack beside
PROBE_TIMEOUT_S = 2.0
# Serial GC and a small heap: 160-220 MB resident in all, enough for some 10,000 events/s.
MEMORY_OPTIONS = ("-Xmx384m", "-Xms64m", "-XX:+UseSerialGC")
SHORT_LIFE_OPTIONS = ("-XX:TieredStopAtLevel=1",)
"""For a JVM that has little to do: it starts with half the CPU, and would be slower at a steady load."""
# slf4j-simple, to stderr: without a logger a dying broker says nothing.
LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)
LOGS = "logs"
"""Folder of the topics, within a broker's data folder."""
_NAMES_FILE = "meta.properties"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Sasl:
    """Listeners for users with a password, beside the open one; each user may come by PLAIN or either SCRAM."""

    users: Mapping[str, str]
    """Passwords by name, both without quotes, commas and brackets. SCRAM's are stored when the storage is formatted: one that
    changes later must be altered in the broker."""
    port: int
    """SASL_PLAINTEXT."""
    tls_port: int
    """SASL_SSL."""
    certificate_file: Path
    """PEM: the key (PKCS 8, not encrypted), then its certificate."""
    super_users: tuple[str, ...] = ()
    """Those of ``users`` who may do everything, as the open listener may."""
    denies_by_default: bool = False
    """Nobody holds anything that no ACL gives him; else only where a resource has any."""
    host: str = LOOPBACK
    """The address of this machine at which users come; the open listener stays on loopback."""


def prepare(
    data_dir: Path,
    *,
    port: int,
    controller_port: int,
    name: str = "kafka",
    sasl: Sasl | None = None,
    java_options: tuple[str, ...] = (),
) -> ProcessSpec:
    """Write the broker's settings for ``data_dir``, whose storage is a copy of set-up's template when it is new.

    ``java_options`` are the broker's besides. Blocks for 2 s where users or a missing template ask for a format.
    With ``sasl``, users hold only the rights that ACLs give them where a resource has any; the open listener may do everything.

    Raises:
        InvalidSettings: the jars or Java are missing; run `make setup`.
        ServiceUnavailable: the storage could not be formatted; the message has the tool's words.
    """
    cache = cache_dir()
    java = find_java(cache)
    template = template_dir(java, cache)
    data_dir = data_dir.absolute()
    data_dir.mkdir(parents=True, exist_ok=True)
    settings_path = data_dir / "server.properties"
    settings_path.write_text(_settings(data_dir, port=port, controller_port=controller_port, sasl=sasl))
    settings_path.chmod(0o600)  # passwords may stand in it
    cluster_id = _cluster_id(data_dir)
    formatted = data_dir / "formatted"
    if not formatted.exists():
        if sasl is None and (template / STORAGE).is_dir():
            _copy_storage(template / STORAGE, data_dir / LOGS, cluster_id)
        else:
            _format(cluster_id, settings_path, sasl)
        formatted.touch()
    classes = template / CLASSES
    return ProcessSpec(
        name=name,
        command=(
            *java_command(),
            *((f"-XX:SharedArchiveFile={classes}",) if classes.is_file() else ()),
            *LOG_OPTIONS,
            *java_options,
            *("-cp", class_path()),
            "kafka.Kafka",
            str(settings_path),
        ),
        environ={},
        working_dir=data_dir,
        ready=lambda: (
            _serves(port, cluster_id)
            and (sasl is None or all(_is_listening(sasl.host, each) for each in (sasl.port, sasl.tls_port)))
        ),
    )


def java_command() -> tuple[str, ...]:
    """Java with the memory that a broker has; raises as ``prepare``."""
    return (str(find_java(cache_dir()).executable), *MEMORY_OPTIONS)


def class_path() -> str:
    """The broker's jars; raises as ``prepare``."""
    return f"{jars_dir('kafka', cache_dir())}/*"


def bootstrap_servers(port: int) -> str:
    """What clients are given."""
    return f"{LOOPBACK}:{port}"


def _settings(data_dir: Path, *, port: int, controller_port: int, sasl: Sasl | None) -> str:
    """Kafka 4.3 documentation, chapter 3 "Configuration": one node, so each replication factor is 1."""
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data_dir / LOGS,
        "num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,  # nobody else is coming
        # By default the controller writes a record that says nothing twice a second: two fifths of an idle broker's CPU.
        "metadata.max.idle.interval.ms": 0,
        # A killed broker may come back only when its old session is over: 5 s, not 9.
        "broker.session.timeout.ms": 5_000,
        "broker.heartbeat.interval.ms": 1_000,
        "log.cleaner.dedupe.buffer.size": 8_388_608,  # 128 MB by default, a third of our heap
        "num.network.threads": 2,
        "num.io.threads": 2,
        "background.threads": 2,
        "message.max.bytes": 2_097_152,
    }
    if sasl is not None:
        settings |= _sasl_settings(settings, sasl)
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _sasl_settings(settings: Mapping[str, object], sasl: Sasl) -> dict[str, object]:
    """Kafka 4.3 documentation, chapter 7 "Security": two more listeners, and the rights of each user."""
    protocols = {"SASL_PLAINTEXT": sasl.port, "SASL_SSL": sasl.tls_port}
    listeners = ",".join(f"{protocol}://{sasl.host}:{port}" for protocol, port in protocols.items())
    added: dict[str, object] = {name: f"{settings[name]},{listeners}" for name in ("listeners", "advertised.listeners")}
    added["listener.security.protocol.map"] = ",".join(
        (str(settings["listener.security.protocol.map"]), *(f"{protocol}:{protocol}" for protocol in protocols))
    )
    added["sasl.enabled.mechanisms"] = ",".join(("PLAIN", *SCRAM_MECHANISMS))
    module = "org.apache.kafka.common.security"
    plain_users = " ".join(f'user_{name}="{password}"' for name, password in sasl.users.items())
    for protocol in protocols:
        listener = f"listener.name.{protocol.lower()}"
        added[f"{listener}.plain.sasl.jaas.config"] = f"{module}.plain.PlainLoginModule required {plain_users};"
        for mechanism in SCRAM_MECHANISMS:
            added[f"{listener}.{mechanism.lower()}.sasl.jaas.config"] = f"{module}.scram.ScramLoginModule required;"
    return added | {
        "listener.name.sasl_ssl.ssl.keystore.type": "PEM",
        "listener.name.sasl_ssl.ssl.keystore.location": sasl.certificate_file,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{name}" for name in ("ANONYMOUS", *sasl.super_users)),
        "allow.everyone.if.no.acl.found": str(not sasl.denies_by_default).lower(),
    }


def _scram_records(sasl: Sasl | None) -> Iterator[str]:
    """What the storage is formatted with, so that the users are there from the broker's first start (KIP-900)."""
    for name, password in sasl.users.items() if sasl is not None else ():
        for mechanism in SCRAM_MECHANISMS:
            yield f"--add-scram={mechanism}=[name={name},password={password}]"


def _cluster_id(data_dir: Path) -> str:
    """The folder's own, made up when it is new and kept before anything is formatted with it."""
    path = data_dir / "cluster_id"
    if not path.exists():
        staged = path.with_suffix(".new")
        staged.write_text(_new_id())
        staged.rename(path)
    return path.read_text()


def _new_id() -> str:
    """As Kafka writes its identifiers."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _copy_storage(storage: Path, log_dir: Path, cluster_id: str) -> None:
    """As the format leaves a storage, whose names are this folder's own. Both files are written again after a kill."""
    log_dir.mkdir(exist_ok=True)
    for file in storage.iterdir():
        if file.name != _NAMES_FILE:
            shutil.copyfile(file, log_dir / file.name)
    names = (storage / _NAMES_FILE).read_text()
    for key, value in (("cluster.id", cluster_id), ("directory.id", _new_id())):
        names = re.sub(rf"^{re.escape(key)}=.*$", f"{key}={value}", names, flags=re.MULTILINE)
    (log_dir / _NAMES_FILE).write_text(names)


def _format(cluster_id: str, settings_path: Path, sasl: Sasl | None) -> None:
    data_dir = settings_path.parent
    # --ignore-formatted: the format before this one may have been killed half-way, or right at its end
    command = [*java_command(), *SHORT_LIFE_OPTIONS, "-cp", class_path(), "kafka.tools.StorageTool", "format"]
    command += ["--ignore-formatted", f"--cluster-id={cluster_id}", "-c", str(settings_path), *_scram_records(sasl)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ServiceUnavailable(f"Kafka's storage in {data_dir} was not formatted in {FORMAT_TIMEOUT_S} s") from error
    if done.returncode != 0:
        said = f"{done.stdout}\n{done.stderr}"
        faults = [line.strip() for line in said.splitlines() if "Exception" in line or "Error" in line]
        raise ServiceUnavailable(
            f"Kafka's storage in {data_dir} was not formatted: {faults[0] if faults else said.strip()[-500:]}"
        )


def _is_listening(host: str, port: int) -> bool:
    """The broker opens its listeners one by one, and ends when it cannot open one of them."""
    try:
        socket.create_connection((host, port), timeout=PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _serves(port: int, cluster_id: str) -> bool:
    """Whether this very broker answers a metadata call: another one may hold the port."""
    admin = AdminClient(
        {
            "bootstrap.servers": bootstrap_servers(port),
            "socket.connection.setup.timeout.ms": 1_000,
            "log_level": 0,  # refused connections are expected while it starts
        }
    )
    try:
        metadata = admin.list_topics(timeout=PROBE_TIMEOUT_S)
    except KafkaException:
        return False
    return bool(metadata.brokers) and metadata.cluster_id == cluster_id
