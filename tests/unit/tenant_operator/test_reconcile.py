"""One look, at a Kubernetes and a Kafka that are made up."""

import importlib
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest
import structlog.testing
import yaml

from libs.config.connections import GrpcClientSettings
from libs.errors import AccessDenied, ServiceUnavailable
from libs.kafka import clients
from libs.kafka.admin import KafkaClient
from libs.kafka.tenant_access import DeleteUser, KafkaAction, KafkaState
from libs.mysql.logical import column
from libs.telemetry.faults import READER_HALTED, SERVICE_DEGRADED, TABLE_PARKED, TABLE_QUARANTINED, fault_of
from libs.tenants.config_map import reported_faults
from libs.types.fault import Fault, FaultScope
from libs.types.refusal import Refusal, RefusedKind
from libs.types.sink_place import faults_key, wait_key
from libs.types.table import TableId, TableSchema
from services.tenant_operator.kubernetes_client import KubernetesClient, Listed
from services.tenant_operator.mirror import Mirror
from services.tenant_operator.moves import Placement
from services.tenant_operator.objects import FINALIZER, Origin, TenantRecord, record_manifest
from services.tenant_operator.reconcile import Reconciler
from services.tenant_operator.settings import (
    CapturedSource,
    JoiningSettings,
    KubernetesSettings,
    SinkJobsSettings,
    TenantOperatorSettings,
)
from services.tenant_operator.sink_waits import NoJobs
from tests.unit.tenant_operator.tenants import document, record
from tests.unit.tenant_operator.test_sink_jobs import TEMPLATE

OWN = "/api/v1/namespaces/headwater/configmaps"
TEAMS = ("teams", "gone")


def found_map(
    name: str, namespace: str = "teams", text: str | None = None, *, is_leaving: bool = False
) -> dict[str, Any]:
    """A tenant's ConfigMap as the API server has it."""
    metadata: dict[str, Any] = {
        "namespace": namespace,
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": [FINALIZER],
    }
    if is_leaving:
        metadata["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    return {"metadata": metadata, "data": {"tenant.yaml": document(name) if text is None else text}}


def found_secret(name: str) -> dict[str, Any]:
    metadata = {"namespace": "teams", "name": f"{name}-kafka", "uid": f"secret-{name}", "resourceVersion": "1"}
    return {"metadata": metadata, "data": {"password": "cGFzc3dvcmQ="}}


class World:
    """Kubernetes' and Kafka's objects, and the calls that changed them. ``refused``: paths that begin so are none of ours."""

    def __init__(self, *, refused: str = "/api/v1/namespaces/gone/") -> None:
        self.refused = refused
        self.merged: dict[str, dict[str, Any]] = {}
        self.deleted: list[str] = []
        self.applied: dict[str, Mapping[str, Any]] = {}
        self.actions: list[KafkaAction] = []
        self.state = KafkaState()
        self.events: list[Mapping[str, Any]] = []
        self.config_maps: list[Mirror] = []
        """Of the newest look."""
        self.sinks = NoJobs()
        """The reports of Spark jobs; None: the operator has not read them yet."""
        self.mesh_faults: Sequence[Fault] | None = ()
        """The faults that last in the mesh; None: the operator has not asked for long enough."""

    # Kubernetes

    async def owner(self) -> None:
        return None

    async def get(self, path: str) -> dict[str, Any] | None:
        self._may(path)
        if path == f"{OWN}/template":
            return {
                "metadata": {"name": "template", "uid": "u"},
                "data": {"statefulset.yaml": yaml.safe_dump(TEMPLATE)},
            }
        return None

    async def list_if_known(self, path: str, *, labels: str) -> Listed:
        return Listed((), "1")

    async def create(self, path: str, body: Mapping[str, Any]) -> None:
        self._may(path)
        if body["kind"] == "Event":
            self.events.append(body)

    async def replace(self, path: str, body: Mapping[str, Any]) -> None:
        self._may(path)

    async def merge(self, path: str, body: dict[str, Any]) -> bool:
        self._may(path)
        self.merged.setdefault(path, {}).update(body["metadata"])
        return True

    async def apply(self, path: str, body: Mapping[str, Any]) -> None:
        self.applied[path] = body

    async def delete(self, path: str) -> None:
        self._may(path)
        self.deleted.append(path)

    def _may(self, path: str) -> None:
        if path.startswith(self.refused):
            raise AccessDenied(f"{path} is forbidden")

    # Kafka

    async def observe(self, configured: Sequence[str] = ()) -> KafkaState:
        return self.state

    async def apply_in_kafka(self, actions: Sequence[KafkaAction]) -> list[Any]:
        self.actions.extend(actions)
        return []

    # A look

    async def look(
        self,
        config_maps: Sequence[dict[str, Any]],
        records: Sequence[TenantRecord] = (),
        *,
        unlisted: Sequence[str] = (),
        namespaces: Sequence[str] = TEAMS,
        joining: JoiningSettings | None = None,
        tables: Callable[[], Sequence[TableSchema]] = tuple,
    ) -> bool:
        """With a Secret for each in ``teams``; ``tables``: schema_history's answer for each source."""

        async def schemas_of(_: str) -> Sequence[TableSchema]:
            return tables()

        settings = TenantOperatorSettings(
            kubernetes=KubernetesSettings(own_namespace="headwater", tenant_namespaces=tuple(namespaces)),
            sink_jobs=SinkJobsSettings(template_config_map="template"),
            joining=joining,
        )
        self.config_maps = [mirror(config_maps, each, is_listed=each not in unlisted) for each in namespaces]
        secrets = [found_secret(each["metadata"]["name"]) for each in config_maps]
        manifests = [record_manifest(each, "headwater") for each in records]
        reconciler = Reconciler(
            settings,
            cast(KubernetesClient, self),
            cast(KafkaClient, _Kafka(self)),
            config_maps=self.config_maps,
            secrets=[mirror(secrets, each, is_listed=each not in unlisted) for each in namespaces],
            mask_keys=(),
            schemas_of=schemas_of,
            sinks=self.sinks,
            mesh_faults=lambda: self.mesh_faults,
            records=mirror(manifests, None),
            identity="test",
        )
        return await reconciler.look(with_drift=True)

    def documents(self, job: str) -> set[str]:
        """Whose documents a Spark job was given."""
        data = self.applied.get(f"{OWN}/headwater-sink-{job}", {"data": {}})["data"]
        return {name.removesuffix(".yaml") for name in data if name.endswith(".yaml")}

    def state_of(self, name: str) -> tuple[str, str]:
        told = self.merged.get(f"/api/v1/namespaces/teams/configmaps/{name}", {}).get("annotations", {})
        return told.get("headwater.dev/state", ""), told.get("headwater.dev/message", "")

    def told_events(self) -> list[tuple[str, str]]:
        """Reason and type of each Event."""
        return [(each["reason"], each["type"]) for each in self.events]


class _Kafka:
    def __init__(self, world: World) -> None:
        self.observe, self.apply = world.observe, world.apply_in_kafka


def mirror(objects: Sequence[Mapping[str, Any]], namespace: str | None, *, is_listed: bool = True) -> Mirror:
    """As one is after a list of ``namespace``; None: of ours."""
    made = Mirror(cast(KubernetesClient, None), "any", namespace=namespace, on_change=lambda: None)
    here = [each for each in objects if namespace in (None, each["metadata"]["namespace"])]
    made._objects = {f"{number}": dict(each) for number, each in enumerate(here)}
    if is_listed:
        made.is_listed.set()
    return made


async def test_a_release_that_is_refused_stops_nobody_else() -> None:
    """A namespace that is deleted takes our rights there first: its ConfigMaps wait for us, and we may not let them go."""
    world = World()
    gone = found_map("old", "gone", is_leaving=True)

    assert await world.look([found_map("acme"), gone])

    assert world.state_of("acme")[0] == "ready"
    assert not any("/gone/" in path for path in world.merged)


async def test_a_release_that_was_refused_is_done_by_the_next_look_that_may() -> None:
    world = World()
    gone = found_map("old", "gone", is_leaving=True)
    await world.look([gone])
    world.refused = "/nothing/"

    await world.look([gone])

    assert world.merged["/api/v1/namespaces/gone/configmaps/old"]["finalizers"] == []


async def test_a_tenant_of_a_deleted_namespace_loses_what_it_has_in_kafka_though_its_finalizer_stays() -> None:
    world = World()
    world.state = KafkaState(users=frozenset({"tenant.old"}))
    old = record("old", origin=Origin("gone", "old", "uid-old"))

    await world.look([found_map("acme"), found_map("old", "gone", is_leaving=True)], [old])

    assert DeleteUser("old", "tenant.old") in world.actions
    assert f"{OWN}/headwater-tenant-old" in world.deleted
    assert world.state_of("acme")[0] == "ready"


async def test_a_namespace_that_was_never_seen_loses_nothing() -> None:
    """An operator that starts without rights there knows of its tenants by their records alone: an absence means nothing."""
    world = World()
    world.state = KafkaState(users=frozenset({"tenant.old"}))
    old = record("old", origin=Origin("gone", "old", "uid-old"), sink_job="packed-0")

    assert await world.look([found_map("acme")], [old], unlisted=["gone"])

    assert [action for action in world.actions if action.tenant == "old"] == []
    assert world.deleted == []
    assert world.documents("packed-0") == {"acme", "old"}
    assert world.state_of("acme")[0] == "ready"


async def test_a_namespace_that_is_gone_and_named_no_more_leaves_no_record() -> None:
    """The remedy for one that refuses for good: without the record nothing is tried in it any more."""
    world = World()
    old = record("old", origin=Origin("gone", "old", "uid-old"))

    assert await world.look([], [old], namespaces=["teams"])

    assert world.deleted == [f"{OWN}/headwater-tenant-old"]


async def test_a_document_that_a_stricter_release_takes_no_more_keeps_its_job_and_kafka_and_is_told_so() -> None:
    """Its last good version too is none any more. Others in the same job are given to it as ever."""
    world = World()
    text = document("acme", "field_of_an_earlier_release: true\n")
    acme, other = record("acme", text=text, sink_job="packed-0"), record("globex", sink_job="packed-0")
    changed = found_map("globex", text=document("globex", "snapshot: {on_joining: false}\n"))

    await world.look([found_map("acme", text=text), changed, found_map("late")], [acme, other])

    job = world.applied[f"{OWN}/headwater-sink-packed-0"]["data"]
    assert job["acme.yaml"] == text
    assert job["globex.yaml"] == changed["data"]["tenant.yaml"]
    assert world.documents("packed-0") == {"acme", "globex", "late"}
    assert [action for action in world.actions if action.tenant == "acme"] == []
    assert world.deleted == []
    state, message = world.state_of("acme")
    assert state == "refused"
    assert "its last good version is no longer good by this release" in message
    assert "field_of_an_earlier_release: unknown name" in message


async def test_it_has_its_place_again_once_it_is_mended() -> None:
    world = World()
    acme = record("acme", text=document("acme", "field_of_an_earlier_release: true\n"), sink_job="packed-3")

    assert await world.look([found_map("acme")], [acme])

    assert world.documents("packed-3") == {"acme"}
    assert "by Spark job packed-3" in world.state_of("acme")[1]


async def test_it_goes_when_it_is_deleted() -> None:
    world = World()
    world.state = KafkaState(users=frozenset({"tenant.acme"}))
    text = document("acme", "field_of_an_earlier_release: true\n")

    await world.look([found_map("acme", text=text, is_leaving=True)], [record("acme", text=text, sink_job="packed-0")])

    assert DeleteUser("acme", "tenant.acme") in world.actions
    assert world.applied == {}
    assert world.merged["/api/v1/namespaces/teams/configmaps/acme"]["finalizers"] == []


UNFIT = "sources: [{name: shop, row_filters: [{tables: '.*orders', where: note > 5}]}]\n"
ORDERS = TableSchema(
    table_id=TableId(database="shop", table="orders"),
    columns=(column("id", "int", is_optional=False), column("note", "varchar(20)", charset="utf8mb4")),
    key=("id",),
)


def joining_of(**source: Any) -> JoiningSettings:
    return JoiningSettings(
        schema_history=GrpcClientSettings(address="127.0.0.1:1"),
        sources=(CapturedSource(name="shop", kind="mysql", **source),),
    )


@pytest.mark.parametrize(("captured", "state"), [({}, "refused"), ({"exclude_tables": (r"shop\.orders",)}, "ready")])
async def test_of_a_source_the_tables_count_that_its_reader_reads(captured: dict[str, Any], state: str) -> None:
    """schema_history knows others beside them, of which no row comes to anybody."""
    world = World()

    await world.look(
        [found_map("acme", text=f"tenant: acme\n{UNFIT}")], joining=joining_of(**captured), tables=lambda: [ORDERS]
    )

    assert world.state_of("acme")[0] == state


async def test_while_schema_history_does_not_answer_nobody_waits() -> None:
    def away() -> Sequence[TableSchema]:
        raise ServiceUnavailable("schema_history does not answer")

    world = World()

    await world.look([found_map("acme", text=f"tenant: acme\n{UNFIT}")], joining=joining_of(), tables=away)

    assert world.state_of("acme")[0] == "ready"


async def test_a_document_that_comes_while_tables_are_asked_for_is_the_next_looks() -> None:
    """Nobody was asked of its tables: it would be in force unseen."""
    world = World()

    def asked() -> Sequence[TableSchema]:
        world.config_maps[0]._objects["late"] = found_map("globex", text=f"tenant: globex\n{UNFIT}")
        return [ORDERS]

    await world.look([found_map("acme")], joining=joining_of(), tables=asked)

    assert world.state_of("acme")[0] == "ready"
    assert world.state_of("globex") == ("", "")


def refused_table(table: str = "orders", reason: str = "cannot compare") -> Refusal:
    return Refusal(
        tenant="acme",
        source="shop",
        table_id=TableId(database="shop", table=table),
        schema_version=1,
        reason=reason,
        found_at_us=1,
        is_of_document=True,
    )


async def looked(
    world: World,
    told: dict[str, Any],
    *refusals: Refusal,
    text: str | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """The tenant's ConfigMap after a look of an operator that has these refusals and just started; ``fields`` of its
    record."""
    found = found_map("acme", text=text)
    found["metadata"]["annotations"] = told["metadata"].get("annotations", {})
    found["metadata"]["resourceVersion"] = f"{len(world.events)}"
    world.merged.clear()
    await world.look([found], [record("acme", text=document("acme"), refusals=refusals, **fields)])
    patch = world.merged.get("/api/v1/namespaces/teams/configmaps/acme", {}).get("annotations", {})
    kept = found["metadata"]["annotations"] | patch
    found["metadata"]["annotations"] = {name: value for name, value in kept.items() if value is not None}
    return found


async def test_a_table_that_routers_refuse_is_told_with_an_event_and_so_is_its_end() -> None:
    world = World()
    told = await looked(world, {"metadata": {}})
    world.events.clear()

    told = await looked(world, told, refused_table())
    state, message = world.state_of("acme")
    assert state == "degraded"
    assert message.splitlines()[0].startswith("in force: user tenant.acme")
    assert message.splitlines()[1:] == [
        "1 table is not delivered; routers set the rows aside as dead letters",
        "- shop.orders of shop: cannot compare",
    ]
    assert world.told_events() == [("TableRefused", "Warning")]
    assert "table shop.orders of shop is not delivered: cannot compare" in world.events[0]["message"]

    told = await looked(world, told, refused_table())
    assert not any("/teams/" in path for path in world.merged)
    assert len(world.events) == 1

    told = await looked(world, told, refused_table("items"), refused_table())
    told = await looked(world, told, refused_table("items", "no such column"))
    told = await looked(world, told)
    assert world.told_events()[1:] == [
        ("TableRefused", "Warning"),
        ("TableRefused", "Warning"),
        ("TableAccepted", "Normal"),
        ("TableAccepted", "Normal"),
    ]
    assert world.state_of("acme")[0] == "ready"
    assert "headwater.dev/refused-tables" not in told["metadata"]["annotations"]


async def test_a_document_that_a_router_does_not_take_is_told_with_an_event_and_so_is_its_end() -> None:
    """Of a router that is long silent no refused document is reported: it is gone, and its refusal goes out of the record."""
    world, now_us = World(), int(time.time() * 1e6)

    def refused(router: str, found_at_us: int = now_us) -> Refusal:
        given = refused_table("", "tenant.yaml:3: no key; put it there")
        changes = {"table_id": TableId(database="", table=""), "what": RefusedKind.DOCUMENT, "router": router}
        return msgspec.structs.replace(given, source="", found_at_us=found_at_us, **changes)

    told = await looked(world, {"metadata": {}})
    world.events.clear()

    told = await looked(world, told, refused("a"), refused_table())
    assert world.state_of("acme")[0] == "degraded"
    lines = world.state_of("acme")[1].splitlines()
    assert lines[1].startswith("1 router does not take the document; a mask's key is in routers' pods within a minute")
    assert lines[2:] == [
        "- tenant.yaml:3: no key; put it there",
        "1 table is not delivered; routers set the rows aside as dead letters",
        "- shop.orders of shop: cannot compare",
    ]
    assert world.told_events() == [("DocumentRefused", "Warning"), ("TableRefused", "Warning")]
    assert "a router does not take the document: tenant.yaml:3: no key; put it there" in world.events[0]["message"]

    told = await looked(world, told, refused("a"), refused("b"), refused_table())
    assert "2 routers do not take the document" in world.state_of("acme")[1]
    assert len(world.events) == 2

    told = await looked(world, told, refused("a", 1))
    assert world.told_events()[2:] == [("DocumentAccepted", "Normal"), ("TableAccepted", "Normal")]
    assert world.state_of("acme")[0] == "ready"
    assert "headwater.dev/refused-document" not in told["metadata"]["annotations"]


async def test_a_topic_without_rows_that_is_refused_is_told_with_an_event_and_so_is_its_end() -> None:
    world = World()
    told = await looked(world, {"metadata": {}})
    world.events.clear()
    nothing = TableId(database="", table="")
    marks = msgspec.structs.replace(
        refused_table("", "may not create"), table_id=nothing, what=RefusedKind.TRANSACTIONS
    )

    told = await looked(world, told, marks)
    assert world.state_of("acme")[0] == "degraded"
    assert world.state_of("acme")[1].splitlines()[1:] == [
        "1 topic is not written; its records are left out",
        "- transactions of shop: may not create",
    ]
    assert "the topic of transactions of shop is not written: may not create" in world.events[0]["message"]

    told = await looked(world, told)
    assert world.told_events() == [("TopicRefused", "Warning"), ("TopicAccepted", "Normal")]
    assert world.state_of("acme")[0] == "ready"
    assert "headwater.dev/refused-topics" not in told["metadata"]["annotations"]


async def test_a_parked_table_of_its_job_is_a_fault_of_the_config_map_until_it_is_over() -> None:
    """Said by another job, of before, it is none. By an operator that has not read jobs' reports nothing is taken back."""
    world = World()
    parked = fault_of(
        TABLE_PARKED,
        FaultScope(source="shop", tenant="acme", table="shop.orders"),
        happened="total: 65 digits do not fit",
        since_us=1,
    )
    told = await looked(world, {"metadata": {}})
    world.sinks.faults = {faults_key("acme", "uid-acme", "packed-1"): (parked,)}
    told = await looked(world, told)
    assert not any("/teams/" in path for path in world.merged)

    world.sinks.faults = {faults_key("acme", "uid-acme", "packed-0"): (parked,)}
    told = await looked(world, told)
    state, message = world.state_of("acme")
    assert state == "degraded"
    assert "total: 65 digits do not fit" in message
    assert reported_faults(told["metadata"]["annotations"]["headwater.dev/faults"]) == (parked,)

    world.sinks.faults = None
    told = await looked(world, told)
    assert not any("/teams/" in path for path in world.merged)
    world.sinks.faults = {}
    told = await looked(world, told)
    assert world.state_of("acme")[0] == "ready"
    assert "headwater.dev/faults" not in told["metadata"]["annotations"]


async def test_tables_that_stand_still_in_their_job_are_told_with_an_event_and_so_is_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once, though the reason changes meanwhile. By an operator that has not read jobs' reports nothing is taken back."""
    monkeypatch.setattr(clients, "CREATE_TOPICS_TIMEOUT_S", 0.5)  # there is no Kafka to hand the tenant over by
    world, key = World(), wait_key("acme", "uid-acme", "packed-0")
    told = await looked(world, {"metadata": {}})
    world.events.clear()

    world.sinks.reasons = {key: "no answer; see to the store", wait_key("acme", "uid-acme", "packed-1"): "of old"}
    told = await looked(world, told)
    state, message = world.state_of("acme")
    assert state == "degraded"
    assert message.splitlines()[1:] == [
        "its tables stand still in its Spark job; nothing is lost, and it goes on by itself once that is mended",
        "- no answer; see to the store",
    ]
    assert "in its Spark job: no answer; see to the store. Nothing is lost" in world.events[0]["message"]

    world.sinks.reasons = {key: "may not; grant it"}
    told = await looked(world, told)
    assert world.state_of("acme")[1].endswith("\n- may not; grant it")
    world.sinks.reasons = None
    told = await looked(world, told)
    assert not any("/teams/" in path for path in world.merged)
    world.sinks.reasons = {wait_key("acme", "uid-acme", "own-acme"): "may not; grant it"}
    told = await looked(world, told, sink_job="packed-0", placement=Placement(move=1, came_from="own-acme"))
    assert world.state_of("acme")[0] == "waiting"
    assert world.told_events()[1:] == [("TenantWaiting", "Warning")]

    world.sinks.reasons = {}
    told = await looked(world, told)
    assert world.told_events() == [
        ("SinkWaits", "Warning"),
        ("TenantWaiting", "Warning"),
        ("TenantReady", "Normal"),
        ("SinkGoesOn", "Normal"),
    ]
    assert world.state_of("acme")[0] == "ready"
    assert "headwater.dev/sink-wait" not in told["metadata"]["annotations"]


async def test_faults_of_the_mesh_that_concern_a_tenant_are_told_with_an_event_and_so_is_the_end() -> None:
    """The worst first, by their kind and table alone. Of another tenant's, and by an operator that just started, nothing."""
    world = World()
    told = await looked(world, {"metadata": {}})
    world.events.clear()
    halted = fault_of(READER_HALTED, FaultScope(source="shop"), happened="user 'hw'@'10.0.0.5'", since_us=1)
    passed_over = FaultScope(source="shop", table="shop.orders")
    differs = fault_of(TABLE_QUARANTINED, passed_over, happened="DROP TABLE secret.t", since_us=2)
    of_globex = fault_of(TABLE_PARKED, FaultScope(tenant="globex", source="shop"), happened="full", since_us=3)

    world.mesh_faults = [halted, of_globex, differs]
    told = await looked(world, told)
    state, message = world.state_of("acme")
    assert state == "degraded"
    assert message.splitlines()[1] == "2 faults concern its rows, the worst first"
    assert message.splitlines()[2].startswith(
        "- halted, source shop: reader_halted: A reader cannot go on without a person"
    )
    assert message.splitlines()[3].startswith(
        "- differs, source shop, table shop.orders: table_quarantined: The reader"
    )
    annotation = told["metadata"]["annotations"]["headwater.dev/faults"]
    assert [fault.id for fault in reported_faults(annotation)] == ["reader_halted", "table_quarantined"]
    assert not [word for word in ("10.0.0.5", "secret", "globex", "full") if word in annotation + message]
    assert world.told_events() == [("FaultRaised", "Warning"), ("FaultRaised", "Warning")]

    world.mesh_faults = None
    told = await looked(world, told)
    assert not any("/teams/" in path for path in world.merged)
    world.mesh_faults = [of_globex]
    told = await looked(world, told)
    assert world.told_events()[2:] == [("FaultLifted", "Normal"), ("FaultLifted", "Normal")]
    assert world.state_of("acme")[0] == "ready"
    assert "headwater.dev/faults" not in told["metadata"]["annotations"]


async def test_a_fault_that_only_slows_the_mesh_leaves_a_tenant_ready() -> None:
    """It is reported all the same."""
    world = World()
    slow = fault_of(SERVICE_DEGRADED, FaultScope(source="shop"), happened="away", since_us=1)

    world.mesh_faults = [slow]
    await looked(world, {"metadata": {}})

    assert world.state_of("acme")[0] == "ready"
    assert "1 fault concerns its rows" in world.state_of("acme")[1]


async def test_a_tenant_without_a_sink_does_not_stand_still_for_ever() -> None:
    """A job that lost its last tenant is gone, and says no more that it goes on."""
    world, text = World(), document("acme") + "sink: null\n"
    world.sinks.reasons = {wait_key("acme", "uid-acme", "packed-0"): "no answer"}

    await looked(world, {"metadata": {}}, text=text, sink_job="packed-0")

    assert world.state_of("acme")[0] == "ready"


async def test_a_source_that_waits_is_told_with_an_event_and_so_is_its_end() -> None:
    """Partitions of it together."""
    world = World()
    told = await looked(world, {"metadata": {}})
    world.events.clear()
    waiting = msgspec.structs.replace(
        refused_table("", "grant WRITE"), table_id=TableId(database="", table=""), what=RefusedKind.RECORDS
    )

    told = await looked(world, told, waiting, msgspec.structs.replace(waiting, kafka_partition=1))
    assert world.state_of("acme")[0] == "degraded"
    assert world.state_of("acme")[1].splitlines()[1:] == [
        "1 source waits at the routers; nothing is set aside or lost, and all of it comes in order once that is mended",
        "- shop: grant WRITE",
    ]
    assert "all of source shop waits at the routers: grant WRITE. Nothing is lost" in world.events[0]["message"]

    told = await looked(world, told, msgspec.structs.replace(waiting, kafka_partition=1))
    assert len(world.events) == 1
    told = await looked(world, told)
    assert world.told_events() == [("RecordsRefused", "Warning"), ("RecordsAccepted", "Normal")]
    assert world.state_of("acme")[0] == "ready"
    assert "headwater.dev/refused-records" not in told["metadata"]["annotations"]


async def test_a_bad_document_stays_refused_and_what_routers_refuse_of_the_one_in_force_is_told_beside_it() -> None:
    world = World()

    await looked(world, {"metadata": {}}, refused_table(), text=document("acme", "nonsense: 1\n"))

    assert world.state_of("acme")[0] == "refused"
    assert world.told_events() == [("TenantRefused", "Warning"), ("TableRefused", "Warning")]


async def test_of_many_tables_a_person_is_told_some_and_where_all_stand() -> None:
    """A hundred names and reasons, as long as they may be, stay below the bound of all annotations together."""
    world = World()
    tables = [refused_table(f"{number:02}{'ü' * 62}", "ü" * 400) for number in range(100)]

    told = await looked(world, {"metadata": {}}, *tables)

    assert len(world.told_events()) == 1 + 11
    assert world.events[-1]["message"] == "and 90 more: see the annotation headwater.dev/message"
    assert sum(len(text.encode()) for text in told["metadata"]["annotations"].values()) < 256 * 1024


@pytest.mark.parametrize(
    "place",
    [
        "judge.key_mistakes",
        "kafka_plan.topics_of",
        "spark_jobs.manifests",
        "reconcile.as_wanted",
        "records.record_manifest",
        "report._end",
    ],
)
async def test_an_unforeseen_error_of_one_tenant_is_told_to_it_alone(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own job's, where it is met there; a job that is run stays as it is."""
    module, name = place.split(".")
    path = f"services.tenant_operator.{module}.{name}"
    works = operator.attrgetter(name)(importlib.import_module(f"services.tenant_operator.{module}"))

    def failing(*values: Any, **named: Any) -> Any:
        if "bad" in repr(values):
            raise ZeroDivisionError
        return works(*values, **named)

    monkeypatch.setattr(path, failing)
    world = World()
    bad = found_map("bad")
    bad["metadata"]["annotations"] = {"headwater.dev/sink-job": "own"}

    with structlog.testing.capture_logs():  # drawing each trace takes seconds
        await world.look([found_map("acme"), bad])

    assert world.state_of("acme")[0] == "ready"
    assert world.documents("packed-0") == {"acme"}
    assert {action.tenant for action in world.actions} >= {"acme"}
    state, message = world.state_of("bad")
    assert state in ("waiting", "refused")
    assert "ZeroDivisionError" in message
