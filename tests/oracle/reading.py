"""A model database and the parts of a reader that read its tables, without Kafka and without services."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, cast

import oracledb

from libs.config.connections import GrpcClientSettings
from libs.config.load import Secret
from libs.events.batch import BatchIdentity
from libs.oracle.log_position import LogminerPosition, snapshot_order
from libs.oracle.log_rows import Operation
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.failure_policy import FailureHandling
from libs.source.oracle.client import Connection, connect_to_tables
from libs.source.oracle.settings import LackingValues, MiningSettings, OracleDatabaseSettings, OracleSnapshotSettings
from libs.source.port import ReadBatch, ResumePoint
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.performance_views import DBID
from libs.stand_ins.oracle.server import Listener, listening
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import OracleValueModes
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.mined_rows import MinedDdl
from services.logminer_reader.position import decode_position
from services.logminer_reader.schema_changes import SchemaChanges
from services.logminer_reader.schemas import SourceSchemas
from services.logminer_reader.settings import LogminerReaderSettings

USER: Final = "C##HEADWATER"
PASSWORD: Final = "secret"
_CLOCK: Final = 50


class MemoryHistory:
    """schema_history's answers, without its service."""

    def __init__(self) -> None:
        self.changes: list[tuple[EventOrder, TableId, TableSchema | None, str]] = []

    async def record_schema_change(self, *, table_id: TableId, order: EventOrder, **change: Any) -> int:
        own = [(at, ddl) for at, known_id, _, ddl in self.changes if known_id == table_id]
        if (order, change["ddl"]) in own:
            return own.index((order, change["ddl"])) + 1
        self.changes.append((order, table_id, change["table_schema"], change["ddl"]))
        return len(own) + 1

    async def list_tables(self, source: str, order: EventOrder | None = None) -> list[TableSchema]:
        tables: dict[TableId, TableSchema | None] = {}
        for changed_at, table_id, schema, _ in self.changes:
            if order is None or changed_at <= order:
                tables[table_id] = schema
        return [schema for schema in tables.values() if schema is not None]


@dataclass
class Reading:
    """A reader's parts at one place of the log; ``again`` is the reader after a restart."""

    listener: Listener
    database: ModelDatabase
    snapshot: OracleSnapshotSettings = field(default_factory=OracleSnapshotSettings)
    include_tables: tuple[str, ...] = (r"SHOP\..*",)
    handling: FailureHandling = FailureHandling.FAIL
    placeholder: str | None = None
    lacking_values: LackingValues = LackingValues.READ_AGAIN
    history: MemoryHistory = field(default_factory=MemoryHistory)
    batches: list[ReadBatch] = field(default_factory=list)
    """Everything that was delivered."""

    def __post_init__(self) -> None:
        host, _, rest = self.listener.dsn.partition(":")
        port, _, service = rest.partition("/")
        unused = GrpcClientSettings(address="127.0.0.1:1")
        self.settings = LogminerReaderSettings(
            source="src",
            schema_history=unused,
            checkpoint_committer=unused,
            mining=MiningSettings(min_pause_s=0.0),
            lacking_values=self.lacking_values,
            values=OracleValueModes(unavailable_placeholder=self.placeholder),
            database=OracleDatabaseSettings(
                host=host, port=int(port), service_name=service, user=USER, password=Secret(PASSWORD)
            ),
            include_tables=self.include_tables,
            snapshot=self.snapshot,
        )
        identity = BatchIdentity(source="src", source_partition="0", connector="oracle", run_id="r", fencing_token=1)
        self.gatherer = Gatherer("src", self.handling, identity)
        history = cast(SchemaHistoryClient, self.history)
        self.schemas = SourceSchemas("src", self.settings, history, self.gatherer.entries)
        self.changes = SchemaChanges("src", self.settings, self.schemas)

    @property
    def model(self) -> Model:
        """The database."""
        return self.database.model

    def connect(self) -> Connection:
        """As the reader does."""
        return connect_to_tables(self.settings.database)

    def again(self) -> "Reading":
        """A reader that starts after this one, from its newest durable place."""
        return Reading(
            self.listener,
            self.database,
            self.snapshot,
            self.include_tables,
            self.handling,
            self.placeholder,
            self.lacking_values,
            self.history,
            [*self.batches[: self._durable]],
        )

    @property
    def _durable(self) -> int:
        resumable = [nth for nth, batch in enumerate(self.batches) if batch.resume is not None]
        return resumable[-1] + 1 if resumable else 0

    @property
    def resume(self) -> ResumePoint:
        """The newest one."""
        found = [batch.resume for batch in self.batches if batch.resume is not None]
        return found[-1]

    def position(self, scn: int) -> LogminerPosition:
        """At an SCN."""
        last = self.model.incarnations[-1]
        return LogminerPosition(
            dbid=DBID, resetlogs_change=last.resetlogs_scn, resetlogs_id=last.resetlogs_id, done_scn=scn
        )

    async def begin(self) -> LogminerPosition:
        """Learn the tables."""
        with contextlib.closing(self.connect()) as connection:
            found = await self.schemas.begin(connection, self.position)
        return self.position(found.scn)

    async def take_up(self) -> LogminerPosition:
        """Stand at the newest resume point."""
        resume = self.resume
        position = decode_position(resume.position)
        self.gatherer.progress, self.gatherer.incremental = resume.snapshot, resume.incremental
        await self.schemas.resume(resume.order, position, resume.committed_at_us)
        return position

    def durable(self, position: LogminerPosition) -> None:
        """Everything gathered is delivered, and a reader goes on at ``position``."""
        order = snapshot_order(position.epoch, position.done_scn)
        self.batches.append(self.gatherer.take(self.gatherer.resume_point(position, order, 1_000_000)))

    async def ddl(self, statement: str) -> None:
        """Carry a statement out at the database, and apply it as the log has it."""
        before = self.model.scn
        run(self.listener, statement)
        await self.apply(before)

    async def apply(self, after_scn: int, *, until_scn: int = 1 << 62) -> None:
        """Statements of the log after an SCN."""
        for row in self.model.redo:
            if not after_scn < row.scn <= until_scn or row.piece.operation is not Operation.DDL:
                continue
            named = row.named
            ddl = MinedDdl(
                scn=row.scn,
                thread=row.thread,
                rs_id=row.rs_id,
                committed_at_us=round(row.timestamp.replace(tzinfo=UTC).timestamp() * 1_000_000),
                user=row.session.user,
                owner=named.owner if named is not None else "",
                table=named.name if named is not None else "",
                object_id=0,
                object_version=0,
                sql=row.piece.text or "",
                info=row.info or "",
            )
            await self.changes.apply(ddl, self.position(row.scn))

    def rows(self) -> list[dict[str, Any]]:
        """The events delivered, and gathered, as JSON values."""
        self.batches.append(self.gatherer.take(None))
        found: list[dict[str, Any]] = []
        for batch in self.batches:
            for entry in ChangeBatch.FromString(batch.payload).entries:
                found += [json.loads(value) for value in entry.run.values]
        return found


def run(listener: Listener, statement: str, binds: Sequence[Any] = ()) -> None:
    """A statement of an application, committed."""
    with oracledb.connect(user=USER, password=PASSWORD, dsn=listener.dsn) as connection:
        connection.cursor().execute(statement, list(binds))
        connection.commit()


@contextlib.contextmanager
def reading(**settings: Any) -> Iterator[Reading]:
    """A reader's parts over an empty database, whose clock goes fast: a definition settles within two of its seconds."""
    begun = datetime.now(UTC).replace(tzinfo=None)
    model = Model(clock=lambda: begun + _CLOCK * (datetime.now(UTC).replace(tzinfo=None) - begun))
    database = ModelDatabase(model, {USER: PASSWORD})
    with listening(database) as listener:
        yield Reading(listener, database, **settings)
