"""The sinks of a home's stack (``SinkView``), by the files of its Spark job: a sink that is down is seen too."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libs.config.connections import KafkaSettings
from libs.mesh.catch_up import Behind, StackHops, sink_behind
from libs.mesh.home_view import HomeView
from libs.mesh.home_warehouses import job_settings
from libs.mesh.mesh import stack_kafka
from libs.mesh.sink_state import sink_progress
from libs.mesh.sink_view import takes_no_signals
from libs.sink_state.progress import SinkProgress
from libs.sink_state.resync import ResyncAnswer, decode_resyncs, resyncs_path
from libs.types.checkpoint import Checkpoint
from libs.types.tenant import TenantSpec


@dataclass(frozen=True, slots=True)
class HomeSinks:
    """See ``SinkView``."""

    view: HomeView

    @property
    def kafka(self) -> KafkaSettings:
        return stack_kafka(self.view.home)

    @property
    def notes_dir(self) -> Path:
        return self.view.home.data_dir

    @property
    def logs_dir(self) -> Path:
        return self.view.home.logs_dir

    def spec(self, tenant: str) -> TenantSpec:
        return self.view.tenant(tenant).spec

    def job_warehouse(self, tenant: str) -> tuple[str, Mapping[str, Any]]:
        [(name, settings)] = job_settings(self.view.home, self.view.documents, tenant).items()
        return name, settings

    def no_copy_of(self, source: str) -> str | None:
        document = self.view.documents.sources.get(source)
        if document is None:
            return f"source {source} is none of the tenant's any more: there is nothing to copy from"
        return takes_no_signals(source, document)

    def progress(self, tenant: str) -> SinkProgress | None:
        return sink_progress(self.view.home, tenant)

    def by_source(self, sources: Iterable[str]) -> dict[str, list[Checkpoint] | None]:
        return StackHops(self.view.home).by_source(sources)

    def behind(self, tenant: str, topic: str, ends: Mapping[int, int]) -> Behind | None:
        return sink_behind(self.view.home, tenant, topic, ends)

    def resync_answer(self, tenant: str, request_id: str) -> ResyncAnswer | None:
        try:
            content = resyncs_path(self.view.home.sink_dir, tenant).read_bytes()
        except FileNotFoundError:
            return None
        return decode_resyncs(content).answers.get(request_id)
