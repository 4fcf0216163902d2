"""The places of a mesh in Kubernetes (``Places``): the tenant's ConfigMap, Kafka, and its tables.

The command deletes the ConfigMap, marked so that topics and tables go with it. The operator and the tenant's Spark job do the
work; the command waits for them, and looks everywhere again.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.errors import HeadwaterError, InvalidSettings
from libs.mesh.cluster_view import ClusterView
from libs.mesh.cluster_warehouses import table_store
from libs.mesh.mesh_settings import KubectlSettings, notes_dir
from libs.mesh.tenant_objects import delete_object, objects_in_cluster, tenant_of
from libs.operations.erase.held import Held
from libs.operations.erase.kafka import held_in_kafka, retention_of_changes
from libs.operations.erase.places import Erasure, NotLetGo, OnProgress
from libs.tenants.config_map import REFUSED, TenantObject
from libs.tenants.document import read_tenant
from libs.tenants.view import is_selected
from libs.types.tenant import TenantSpec
from libs.types.warehouse import WarehouseTable, warehouse_table

CONFIG_MAP: Final = "ConfigMap"
_TABLE: Final = " table"
_POLL_S: Final = 2.0
_BY_HAND: Final = "or ask an administrator"


@dataclass(frozen=True, slots=True)
class ClusterPlaces:
    """See ``Places``."""

    view: ClusterView

    @property
    def notes_dir(self) -> Path:
        return notes_dir(self.view.settings)

    @property
    def tenants(self) -> Sequence[str]:
        return sorted({tenant_of(each) for each in objects_in_cluster(self._kubectl, _BY_HAND)})

    def known(self, tenant: str) -> Erasure:
        spec = self._spec(tenant)
        sources = () if spec is None else spec.sources
        keys = {
            f"key of a mask: {mask.key_from.file or mask.key_from.env}"
            for selection in sources
            for mask in selection.masks
            if mask.key_from is not None
        }
        return Erasure(
            tenant=tenant,
            begun_at_us=0,
            held=(),
            sources=tuple(sorted({selection.name for selection in sources})),
            keys=tuple(sorted(keys)),
        )

    def held(self, erasure: Erasure) -> list[Held]:
        tenant, found = erasure.tenant, self._object(erasure.tenant)
        config_map = [] if found is None else [Held(kind=CONFIG_MAP, name=found.place)]
        return [*config_map, *held_in_kafka(self.view.kafka, tenant, None), *self._tables(erasure)]

    def take_out(self, tenant: str) -> None:
        if (found := self._object(tenant)) is not None:
            delete_object(self._kubectl, found.place)

    def wait_until_let_go(self, tenant: str, *, timeout_s: float, on_progress: OnProgress) -> None:
        deadline_s = time.monotonic() + timeout_s
        while (found := self._object(tenant)) is not None:
            if time.monotonic() > deadline_s:
                said = found.message or "nothing is reported"
                raise NotLetGo(
                    f"ConfigMap {found.place} is still there after {timeout_s:.0f} s ({said}): look whether a tenant-operator "
                    "runs; then erase again"
                )
            on_progress(f"tenant-operator: {found.message or 'removes topics and tables'}")
            time.sleep(_POLL_S)

    def empty(self, erasure: Erasure, on_progress: OnProgress) -> None:
        on_progress("looking whether all of it is gone")

    def forget_again(self, tenant: str) -> None:
        return

    def stays(self, erasure: Erasure) -> list[str]:
        shared = [
            f"rows of source {source}: in Kafka's topic of its changes, which all tenants share, {self._retention(source)}"
            for source in erasure.sources
        ]
        return [
            *shared,
            *(f"{key}; its deletion is the owner's" for key in erasure.keys),
            "old versions of objects, where the storage keeps them, and the logs of pods",
            "the rows at the source, in backups and snapshots of disks, and with the consumers of topics and tables: "
            "their keepers remove those",
        ]

    @property
    def _kubectl(self) -> KubectlSettings:
        if self.view.settings.kubernetes is None:
            remedy = "a tenant is removed by its ConfigMap: have kubectl reach it, by 'kubernetes: {}' there"
            raise InvalidSettings(self.view.file, [remedy])
        return self.view.settings.kubernetes

    def _object(self, tenant: str) -> TenantObject | None:
        """That of several claimants which is not refused."""
        found = [each for each in objects_in_cluster(self._kubectl, _BY_HAND) if tenant_of(each) == tenant]
        return min(found, key=lambda each: each.state == REFUSED, default=None)

    def _spec(self, tenant: str) -> TenantSpec | None:
        found = self._object(tenant)
        parsed = None if found is None or found.text is None else read_tenant(found.text, mistakes=[])
        return None if parsed is None else parsed.spec

    def _tables(self, erasure: Erasure) -> Iterator[Held]:
        """Of those that the document selects, or that an earlier look has found: the ones that are there now."""
        wanted = {(each.kind, each.name) for each in erasure.held if each.kind.endswith(_TABLE)}
        spec = self._spec(erasure.tenant)
        if spec is not None and spec.sink is not None:
            for selection in spec.sources:
                for table_id in self.view.source(selection.name).schemas:
                    if is_selected(selection, table_id):
                        place = warehouse_table(spec.tenant, selection.name, table_id)
                        wanted.add((f"{spec.sink.warehouse}{_TABLE}", str(place)))
        for kind, name in sorted(wanted):
            warehouse = kind.removesuffix(_TABLE)
            store = table_store(self.view.settings.warehouses, warehouse)
            if store is None:
                lack = f"warehouses: does not name {warehouse}, in which the tenant's tables are"
                raise InvalidSettings(self.view.file, [lack])
            *namespace, table = name.split(".")
            if store.load(WarehouseTable(namespace=tuple(namespace), name=table)) is not None:
                yield Held(kind=kind, name=name)

    def _retention(self, source: str) -> str:
        try:
            return retention_of_changes(self.view.kafka, source)
        except HeadwaterError:
            return "for its retention"
