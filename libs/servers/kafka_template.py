"""Makes a broker's template: ``python -m libs.servers.kafka_template FOLDER``, which set-up runs once.

A start loads some thousand classes out of the jars and checks each, and the format of a storage is a JVM of its own. The
template holds the formatted storage, and the classes as the JVM has them in memory (Java's documentation, "Class Data
Sharing"). ``kafka_broker.prepare`` copies the one and names the other.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer

from libs.errors import ServiceUnavailable
from libs.servers import kafka_broker as kafka
from libs.servers.ports import free_ports
from libs.servers.process import last_log_lines, start, stop, wait_ready
from libs.setup.cache import cache_dir
from libs.setup.java import find_java
from libs.setup.kafka_template import CLASSES, STORAGE

_TIMEOUT_S: Final = 180.0
_TOPIC: Final = "classes"


def main(folder: Path) -> int:
    """Returns the exit code."""
    write_template(folder.absolute())
    return 0


def write_template(folder: Path) -> None:
    """Fill ``folder``, which exists. Takes ten CPU seconds.

    Raises:
        ServiceUnavailable: the broker did not serve, or its JVM ended without an archive; the message has its last words.
    """
    with tempfile.TemporaryDirectory() as within:
        data_dir = Path(within) / "data"
        port, controller_port = free_ports(2)
        java = find_java(cache_dir())
        options = () if java.is_from_package else (f"-XX:ArchiveClassesAtExit={folder / CLASSES}",)
        spec = kafka.prepare(data_dir, port=port, controller_port=controller_port, java_options=options)
        shutil.copytree(data_dir / kafka.LOGS, folder / STORAGE)
        running = start(spec, Path(within) / "logs", dies_with_parent=True)
        try:
            wait_ready(running, _TIMEOUT_S)
            _write_and_read(kafka.bootstrap_servers(port))
        finally:
            stop(running, _TIMEOUT_S)
        if options and not _is_taken(folder / CLASSES):
            raise ServiceUnavailable(f"Kafka's classes were not kept\n{last_log_lines(running)}")


def _write_and_read(bootstrap_servers: str) -> None:
    """A transaction and a consumer's group: what each broker of ours does first."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": _TOPIC})
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(_TOPIC, b"value")
    producer.commit_transaction(_TIMEOUT_S)
    group = {"group.id": _TOPIC, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, **group})
    try:
        consumer.subscribe([_TOPIC])
        message = consumer.poll(_TIMEOUT_S)
        if message is None or message.error() is not None:
            raise ServiceUnavailable(f"Kafka did not give the record back: {message and message.error()}")
        consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


def _is_taken(archive: Path) -> bool:
    """Whether a JVM takes it, its checksums included: one that came upon the gap of a file that was cut off would end there."""
    words = (f"-XX:SharedArchiveFile={archive}", "-Xshare:on", "-XX:+VerifySharedSpaces")
    command = [*kafka.java_command(), *words, "-cp", kafka.class_path(), "-version"]
    with tempfile.TemporaryDirectory() as within:  # for the JVM's files at its end
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, cwd=within)
    return archive.is_file() and done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
