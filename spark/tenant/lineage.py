"""OpenLineage: which topics go into which tables, column by column, reported to a data catalogue.

A tenant's query is a job, each start of it a run: START, RUNNING with each micro-batch (topics in, tables out, how many rows),
COMPLETE when it is stopped, FAIL with the reason when it ends by itself. A report never costs a batch: events wait in a
bounded queue for a thread of their own; events that find it full, or that the receiver refuses, are counted, logged and
dropped.
"""

import datetime
import queue
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from libs.clickhouse.names import DATABASE_TEMPLATE, database_name
from libs.config.connections import LineageSettings
from libs.postgresql.names import SCHEMA_TEMPLATE, identifier, schema_name
from libs.telemetry.metrics import SINK_LINEAGE_DROPPED
from libs.types.patterns import matches_column
from libs.types.tenant import SourceSelection, TenantSpec
from libs.types.warehouse import WarehouseTable
from spark.pending.progress import TableOutcome
from spark.settings import SinkJobSettings
from spark.transforms.warehouse_columns import TableColumn

_PRODUCER: Final = "https://headwater.dev/sink"
_ENGINE: Final = "spark"
_CLOSE_S: Final = 2.0
_CLICKHOUSE: Final = "clickhouse"
_POSTGRESQL: Final = "postgresql"
_REST: Final = "rest"
_FULL: Final = "queue_full"
_REFUSED: Final = "refused"

log = structlog.get_logger()

Send = Callable[[Any], object]


class Lineage:
    """Reports the whole job; for any thread. ``close`` it at the end."""

    def __init__(self, settings: LineageSettings, send: Send | None = None) -> None:
        """``send``: for tests; else as the settings say."""
        self.settings = settings
        self._send = send if send is not None else _transport(settings)
        self._waiting: queue.Queue[Any] = queue.Queue(settings.queued_events)
        self._is_refused = False
        self._is_full = False
        self._thread = threading.Thread(target=self._send_events, name="openlineage", daemon=True)
        self._thread.start()

    def offer(self, event: Any) -> None:
        """Returns at once; where too many wait, the event is dropped, counted, and the first of them logged."""
        try:
            self._waiting.put_nowait(event)
            self._is_full = False
        except queue.Full:
            SINK_LINEAGE_DROPPED.labels(_FULL).inc()
            if not self._is_full:
                log.warning("lineage_dropped", reason=f"{self.settings.queued_events} events wait already")
            self._is_full = True

    def close(self) -> None:
        """Send waiting events, if that takes no longer than ``_CLOSE_S``."""
        try:
            self._waiting.put(None, timeout=_CLOSE_S)
        except queue.Full:
            return
        self._thread.join(_CLOSE_S)

    def _send_events(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._send(event)
                self._is_refused = False
            except Exception as error:  # the transport's own, of any library below it: none of them is the batch's
                SINK_LINEAGE_DROPPED.labels(_REFUSED).inc()
                if not self._is_refused:
                    log.warning("lineage_dropped", reason=f"{type(error).__name__}: {error}")
                self._is_refused = True


def open_lineage(settings: SinkJobSettings) -> Lineage | None:
    """None where the settings want none."""
    return None if settings.openlineage is None else Lineage(settings.openlineage)


class TenantLineage:
    """One run of one tenant's query. No method raises."""

    def __init__(self, lineage: Lineage, settings: SinkJobSettings, tenant: TenantSpec) -> None:
        self._lineage = lineage
        self._settings = settings
        self._tenant = tenant
        self._run_id = str(uuid.uuid4())

    def started(self) -> None:
        """The query stands."""
        self._offer("START")

    def applied(self, outcomes: Sequence[TableOutcome]) -> None:
        """A batch is in the tables that took it in."""
        written = [each for each in outcomes if each.commit is not None and not each.commit.is_left_out]
        if written:
            self._offer("RUNNING", outcomes=written)

    def stopped(self) -> None:
        """Somebody ended the query."""
        self._offer("COMPLETE")

    def failed(self, reason: str) -> None:
        """It ended by itself."""
        self._offer("FAIL", reason=reason)

    def _offer(self, state: str, *, outcomes: Sequence[TableOutcome] = (), reason: str | None = None) -> None:
        try:
            event = run_event(
                state,
                self._run_id,
                self._tenant,
                self._settings,
                outcomes=outcomes,
                reason=reason,
                at=datetime.datetime.now(datetime.UTC),
            )
        except Exception as error:  # a fault here must not be the batch's
            SINK_LINEAGE_DROPPED.labels(_REFUSED).inc()
            log.warning("lineage_dropped", reason=f"{type(error).__name__}: {error}")
            return
        self._lineage.offer(event)


def run_event(
    state: str,
    run_id: str,
    tenant: TenantSpec,
    settings: SinkJobSettings,
    *,
    outcomes: Sequence[TableOutcome],
    reason: str | None,
    at: datetime.datetime,
) -> Any:
    """The event, as OpenLineage's client has it."""
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run, job_type_job, processing_engine_run

    assert settings.openlineage is not None
    assert tenant.sink is not None
    run_facets: dict[str, Any] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=metadata.version("pyspark"), name=_ENGINE, producer=_PRODUCER
        )
    }
    if reason is not None:
        run_facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=reason, programmingLanguage="PYTHON", producer=_PRODUCER
        )
    streaming = job_type_job.JobTypeJobFacet(
        processingType="STREAMING", integration="HEADWATER", jobType="QUERY", producer=_PRODUCER
    )
    topics_at = f"kafka://{settings.kafka.bootstrap_servers.partition(',')[0]}"
    outputs = []
    for outcome in outcomes:
        assert outcome.commit is not None
        namespace, name = dataset_of(tenant.sink.warehouse, settings.warehouses[tenant.sink.warehouse], outcome.place)
        outputs.append(
            OutputDataset(
                namespace=namespace,
                name=name,
                facets=_table_facets(tenant, outcome, topics_at),
                outputFacets=_statistics(outcome),
            )
        )
    return RunEvent(
        eventTime=at.isoformat(),
        eventType=RunState[state],
        run=Run(runId=run_id, facets=run_facets),
        job=Job(namespace=settings.openlineage.namespace, name=f"sink.{tenant.tenant}", facets={"jobType": streaming}),
        inputs=[InputDataset(namespace=topics_at, name=outcome.topic) for outcome in outcomes],
        outputs=outputs,
        producer=_PRODUCER,
    )


def dataset_of(warehouse: str, settings: Mapping[str, Any], place: WarehouseTable) -> tuple[str, str]:
    """Namespace and name of a table, as OpenLineage's "Naming" has them: of a folder its path, of a server the levels
    that it has. Where a REST catalog keeps it, only that knows: it is called as there.

    >>> dataset_of("iceberg", {"warehouse_dir": "s3://bucket/w"}, WarehouseTable(namespace=("acme", "shop", "s"), name="t"))
    ('s3://bucket', 'w/acme/shop/s/t')
    """
    if warehouse == _POSTGRESQL:
        template = settings.get("schema") or SCHEMA_TEMPLATE
        host, port = settings.get("host", "127.0.0.1"), settings.get("port", 5432)
        schema = schema_name(template, place)
        return f"postgres://{host}:{port}", f"{settings['database']}.{schema}.{identifier(place.name)}"
    if warehouse == _CLICKHOUSE:
        host, port = settings.get("host", "127.0.0.1"), settings.get("port", 8123)
        database = database_name(settings.get("database") or DATABASE_TEMPLATE, place)
        return f"clickhouse://{host}:{port}", f"{database}.{place.name}"
    catalog = settings.get("catalog") or {}
    if catalog.get("kind") == _REST:
        return str(catalog["uri"]), ".".join(place.identifier)
    folder = str(settings["warehouse_dir"])
    levels = "/".join(place.identifier)
    if "://" in folder and not folder.startswith("file:"):
        url = urlsplit(folder)
        return f"{url.scheme}://{url.netloc}", f"{url.path.strip('/')}/{levels}".lstrip("/")
    return "file", f"{Path(urlsplit(folder).path).absolute()}/{levels}"


def _table_facets(tenant: TenantSpec, outcome: TableOutcome, topics_at: str) -> dict[str, Any]:
    """Its columns, and the origin of each; empty for a batch that the table held already."""
    from openlineage.client.facet_v2 import column_lineage_dataset, schema_dataset, symlinks_dataset

    assert outcome.commit is not None
    facets: dict[str, Any] = {
        "symlinks": symlinks_dataset.SymlinksDatasetFacet(
            identifiers=[
                symlinks_dataset.Identifier(namespace="headwater", name=outcome.warehouse_table, type="TABLE")
            ],
            producer=_PRODUCER,
        )
    }
    columns = outcome.commit.columns
    if not columns:
        return facets
    facets["schema"] = schema_dataset.SchemaDatasetFacet(
        fields=[
            schema_dataset.SchemaDatasetFacetFields(name=name, type=column.sql_type) for name, column in columns.items()
        ],
        producer=_PRODUCER,
    )
    selection = next((each for each in tenant.sources if each.name == outcome.source), None)
    fields = {}
    for name, column in columns.items():
        fed_by, done, is_masking = _origin(selection, outcome.table, name, column)
        transformation = column_lineage_dataset.Transformation(
            type="DIRECT", subtype="TRANSFORMATION" if done else "IDENTITY", description=done, masking=is_masking
        )
        origin = column_lineage_dataset.InputField(
            namespace=topics_at, name=outcome.topic, field=fed_by, transformations=[transformation]
        )
        fields[name] = column_lineage_dataset.Fields(inputFields=[origin])
    facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields, producer=_PRODUCER)
    return facets


def _origin(selection: SourceSelection | None, table: str, name: str, column: TableColumn) -> tuple[str, str, bool]:
    """The field of the events that feeds a column; the router's change of it, in words; whether that masked it."""
    fed_by = name if column.stored is None else column.stored.variant_of or name
    if selection is None:
        return fed_by, "", False
    source_name, done = fed_by, []
    rename = next((each for each in selection.rename_columns if each.to == fed_by), None)
    if rename is not None:
        # A pattern's last part, where it is a plain name: otherwise only the source's schema knows the column.
        last = re.split(r"\\?\.", rename.columns)[-1]
        if re.fullmatch(r"[\w$]+", last):
            source_name = last
            done.append(f"renamed from {last}")
    mask = next((each for each in selection.masks if matches_column(each.columns, f"{table}.{source_name}")), None)
    if mask is not None:
        done.append("masked")
    return fed_by, ", ".join(done), mask is not None


def _statistics(outcome: TableOutcome) -> dict[str, Any]:
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    return {
        "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=outcome.written_rows, producer=_PRODUCER
        )
    }


def _transport(settings: LineageSettings) -> Send:
    """How events leave; the client is imported here and for an event: it takes 35 MB that most jobs can do without."""
    if settings.file is not None:
        from openlineage.client.transport.file import FileConfig, FileTransport

        return FileTransport(FileConfig(log_file_path=settings.file, append=True)).emit
    from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport

    assert settings.url is not None
    config = HttpConfig(url=settings.url, timeout=settings.timeout_s, retry={"total": 1, "connect": 1})
    if settings.api_key is not None:
        config.auth = ApiKeyTokenProvider({"apiKey": settings.api_key.reveal()})
    return HttpTransport(config).emit
