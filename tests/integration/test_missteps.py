"""Missteps with a source, played on real servers: the first line of `status`, its exit code, and that the remedy mends it.

The reader is a process on a MySQL and a Kafka that run. `status --mesh` asks it over gRPC, as in Kubernetes. A reader that
needs a person ends, and its supervisor starts it again, which is this test's part here.
Missteps without a server are in `tests/unit/cli/test_missteps.py`.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml
from click.testing import Result
from confluent_kafka.admin import AdminClient

from libs.config.connections import WatchedService
from libs.events.names import changes_topic
from libs.rpc.faults_client import gather_faults
from libs.telemetry.faults import CHANGES_LOST
from libs.types.tenant import SourceSelection, TenantSpec
from services.tenant_operator.mesh_faults import faults_of_tenant
from tests.conftest import KafkaBroker, MysqlServer, start_mysql_in
from tests.headwater_command import run_here
from tests.integration.reader_pipeline import ReaderPipeline, pipeline_of
from tests.integration.service_process import Services
from tests.waiting import wait_until


@dataclass(slots=True)
class Followed:
    """A source, its reader, and the file by which `status` finds the reader."""

    server: MysqlServer
    database: str
    pipeline: ReaderPipeline
    mesh_file: Path

    def status(self) -> Result:
        return run_here("status", "--mesh", str(self.mesh_file))

    def supervise(self) -> None:
        """Start the reader again where it has ended, as its supervisor does."""
        reader = self.pipeline.reader
        if reader.running is None or reader.has_ended(within_s=0.0):
            reader.start(waits=False)

    def wait_for(self, first_line: str, exit_code: int, because: str) -> Result:
        """`status` once its first line matches, after whichever answers come first."""
        found: list[Result] = []

        def is_said() -> bool:
            self.supervise()
            found[:] = [self.status()]
            return bool(re.match(first_line, found[0].output)) and found[0].exit_code == exit_code

        wait_until(is_said, because=because, seen=lambda: found[0].output if found else "nothing", pause_s=0.5)
        return found[0]


@dataclass(frozen=True, slots=True)
class Misstep:
    """A person's change of the server, and the report that it has to cause."""

    done: Callable[[MysqlServer], object]
    says: str
    """The first line of `status`."""
    remedy: str
    """Within its output."""
    mend: Callable[[Followed], object]
    """What the remedy says."""
    is_followed: bool = False
    """The reader followed the log before, and ended."""


def statements(*texts: str) -> Callable[[MysqlServer], object]:
    return lambda server: server.execute(*texts)


def mended_by(*texts: str) -> Callable[[Followed], object]:
    return lambda followed: followed.server.execute(*texts)


def reset(followed: Followed) -> None:
    """Refused until the ended reader's lease is over."""
    arguments = ("reset", followed.database, "--yes", "--mesh", str(followed.mesh_file))
    wait_until(lambda: run_here(*arguments).exit_code == 0, because="the source is reset", pause_s=0.5)


MISSTEPS: Final = {
    "the password is wrong": Misstep(
        statements("ALTER USER capture IDENTIFIED BY 'another'"),
        r"halted source \S+: reader_halted since .*Access denied for user 'capture'",
        r"check user, password and grants",
        mended_by("ALTER USER capture IDENTIFIED BY 'right'"),
    ),
    "grants are missing": Misstep(
        statements("REVOKE REPLICATION SLAVE ON *.* FROM capture"),
        r"halted source \S+: reader_halted since .*the user lacks REPLICATION SLAVE",
        r"GRANT REPLICATION SLAVE ON \*\.\* TO ",
        mended_by("GRANT REPLICATION SLAVE ON *.* TO capture"),
    ),
    "the log has statements": Misstep(
        statements("SET PERSIST binlog_format = 'STATEMENT'"),
        r"halted source \S+: reader_halted since .*binlog_format is STATEMENT, must be ROW",
        r"SET PERSIST binlog_format = 'ROW'",
        mended_by("SET PERSIST binlog_format = 'ROW'"),
    ),
    "GTIDs are switched off": Misstep(
        statements(*(f"SET PERSIST gtid_mode = {mode}" for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"))),
        r"halted source \S+: reader_halted since .*gtid_mode is not ON, but the log was followed by GTID so far",
        r"SET PERSIST gtid_mode = ON",
        mended_by(*(f"SET PERSIST gtid_mode = {mode}" for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"))),
        is_followed=True,
    ),
    "the log is purged": Misstep(
        lambda server: purge(server),
        r"halted source \S+: reader_halted since .*purged",
        r"`headwater reset SOURCE`",
        reset,
        is_followed=True,
    ),
    "the server goes": Misstep(
        lambda server: server.kill(),
        r"halted source \S+: source_unreachable since .*",
        r"Bring the server back",
        lambda followed: followed.server.restart(),
    ),
}


def purge(server: MysqlServer) -> None:
    """All of the log but its newest, empty file."""
    server.execute("CREATE DATABASE IF NOT EXISTS unseen", "DROP DATABASE unseen", "FLUSH BINARY LOGS")
    newest = server.execute("SHOW BINARY LOGS")[-1][0]
    server.execute(f"PURGE BINARY LOGS TO '{newest}'")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlServer]:
    """One of this file's own: its settings are played with, and it is killed."""
    with ExitStack() as servers:
        started = start_mysql_in(tmp_path_factory.mktemp("missteps"), servers)
        started.execute(
            "CREATE USER capture IDENTIFIED BY 'right'",
            "GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO capture",
        )
        yield started


@pytest.fixture
def follow(
    server: MysqlServer,
    kafka_broker: KafkaBroker,
    services: Services,
    tmp_path: Path,
    unique_name: Callable[[str], str],
) -> Iterator[Callable[[], Followed]]:
    """Gives a source with one table, whose reader is not started yet."""
    begun: list[Followed] = []

    def one() -> Followed:
        name = unique_name("misstep")
        server.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.orders (id INT PRIMARY KEY)")
        where = {"host": server.host, "port": server.port, "user": "capture", "password": "right"}
        pipeline = pipeline_of(
            tmp_path,
            name,
            kafka_broker,
            services,
            server,
            database=where,
            include_tables=[rf"{name}\..*"],
            telemetry={"halted_s": 600},
        )
        file = tmp_path / "mesh.yaml"
        called = {"reader": pipeline.reader, "checkpoint-committer": services.checkpoint_committer}
        asked = [
            {"name": of, "source": name if of == "reader" else "", "grpc": {"address": each.client_settings.address}}
            for of, each in called.items()
        ]
        kafka = {"bootstrap_servers": kafka_broker.bootstrap_servers}
        file.write_text(yaml.safe_dump({"kafka": kafka, "services": asked}))
        begun.append(Followed(server, name, pipeline, file))
        return begun[-1]

    yield one
    for each in begun:
        each.pipeline.stop()


@pytest.mark.parametrize("name", MISSTEPS)
def test_a_misstep_with_a_server_is_the_first_line_and_its_remedy_mends_it(
    follow: Callable[[], Followed], server: MysqlServer, name: str
) -> None:
    """And rows come then."""
    misstep, followed = MISSTEPS[name], follow()
    if misstep.is_followed:
        followed.pipeline.reader.start()
        followed.pipeline.wait_for_log()
        followed.pipeline.reader.stop()
    misstep.done(server)

    found = followed.wait_for(misstep.says, 1, because="status names the fault first")
    followed.pipeline.reader.stop()  # else it ends, and is started again, within a minute
    misstep.mend(followed)
    well = followed.wait_for("", 0, because="nothing is wrong any more")
    server.execute(f"INSERT INTO {followed.database}.orders VALUES (1)")
    followed.pipeline.wait_for_rows(bool)

    assert re.search(misstep.remedy, found.output), found.output
    assert not well.output.startswith(("halted", "differs", "degraded"))


def test_a_changes_topic_that_was_made_again_is_told_until_the_source_is_reset(
    follow: Callable[[], Followed], server: MysqlServer, kafka_broker: KafkaBroker
) -> None:
    """The same in `status`, metric, log, and in the ConfigMaps of the tenants that read the source; a reset ends it."""
    followed = follow()
    reader, source = followed.pipeline.reader, followed.database
    reader.start()
    followed.pipeline.wait_for_log()
    server.execute(f"INSERT INTO {source}.orders VALUES (1)")
    followed.pipeline.wait_for_rows(bool)
    followed.pipeline.stop()
    delete_topic(kafka_broker, changes_topic(source))

    found = followed.wait_for(
        rf"differs source {source}: {CHANGES_LOST.id} since .*was deleted and made again", 1, because="status says it"
    )

    assert CHANGES_LOST.remedy in found.output
    assert f'headwater_faults{{id="changes_lost",severity="differs",source="{source}"' in reader.get("/metrics")[1]
    logged = [json.loads(line) for line in reader.log_text.splitlines() if '"fault_raised"' in line]
    assert [each["fault"] for each in logged] == ["changes_lost"]
    watched = WatchedService(name="reader", source=source, grpc=reader.client_settings)
    faults = asyncio.run(gather_faults([watched]))
    reads, reads_not = (
        TenantSpec(tenant=tenant, sources=(SourceSelection(name=name),))
        for tenant, name in (("acme", source), ("globex", "another"))
    )
    assert [each.id for each in faults_of_tenant(reads, faults)] == ["changes_lost"]
    assert faults_of_tenant(reads_not, faults) == ()

    reader.stop()
    assert (
        followed.wait_for(r"(?s).*changes_lost", 1, because="the checkpoint has it").exit_code == 1
    )  # also after a restart
    reader.stop()
    reset(followed)
    reader.start()
    followed.wait_for(r"home ", 0, because="all rows are copied again")
    assert "changes_lost" not in reader.get("/metrics")[1]


def delete_topic(kafka: KafkaBroker, topic: str) -> None:
    """Returns once Kafka does not have it any more."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for deleted in admin.delete_topics([topic]).values():
        deleted.result(timeout=120)
    wait_until(lambda: topic not in admin.list_topics(timeout=120).topics, because="the topic is gone", pause_s=0.2)
