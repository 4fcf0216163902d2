"""``headwater erase --mesh`` on a real Kafka: the ConfigMap goes, and the command waits for the operator and looks again.

Kubernetes is a folder, which a ``kubectl`` of this test's reads and writes. The operator is this test too.
"""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from libs.config.connections import KafkaSettings
from libs.kafka.clients import TopicSpec, ensure_topics
from libs.mesh.cluster_view import ClusterView
from libs.mesh.view import SeenSource
from libs.operations.erase.kafka import held_in_kafka, remove_from_kafka
from libs.types.table import TableId
from tests.headwater_command import run_here
from tests.waiting import wait_until

KUBECTL = """#!/usr/bin/env python3
import json, pathlib, sys
words, file = sys.argv[1:], pathlib.Path({file!r})
with pathlib.Path({calls!r}).open("a") as calls:
    calls.write(" ".join(words) + "\\n")
if words[0] == "get":
    print(json.dumps({{"items": [json.loads(file.read_text())] if file.exists() else []}}))
elif words[0] == "annotate":
    found = json.loads(file.read_text())
    name, _, value = words[3].partition("=")
    found["metadata"]["annotations"][name] = value
    file.write_text(json.dumps(found))
elif words[0] == "delete":
    pathlib.Path({deleted!r}).touch()
"""
ORDERS = TableId(database="db", table="orders")


class Store:
    """A warehouse that has these tables, by their places."""

    def __init__(self, *places: str) -> None:
        self.places = set(places)

    def load(self, place: object) -> object:
        return str(place) if str(place) in self.places else None


class Cluster:
    """A tenant with one topic and one table."""

    def __init__(self, folder: Path, kafka: KafkaSettings, tenant: str) -> None:
        self.kafka, self.tenant = kafka, tenant
        self.object, self.calls, self.deleted = folder / "acme.json", folder / "calls", folder / "deleted"
        self.store = Store(f"{tenant}.shop.db.orders")
        document = f"tenant: {tenant}\nsources: [{{name: shop}}]\nsink: {{}}\n"
        metadata = {"name": "a", "namespace": "teams", "annotations": {}}
        self.object.write_text(json.dumps({"metadata": metadata, "data": {"tenant.yaml": document}}))
        kubectl = folder / "bin" / "kubectl"
        kubectl.parent.mkdir()
        kubectl.write_text(KUBECTL.format(file=str(self.object), calls=str(self.calls), deleted=str(self.deleted)))
        kubectl.chmod(0o755)
        self.file = folder / "mesh.yaml"
        settings = {"kafka": {"bootstrap_servers": kafka.bootstrap_servers}, "kubernetes": {}}
        self.file.write_text(yaml.safe_dump({**settings, "notes_dir": str(folder / "notes")}))

    def operate(self, *, leaves_table: bool = False) -> None:
        """As the operator and the Spark job do, once the ConfigMap is to go."""
        wait_until(self.deleted.exists, because="the ConfigMap is deleted")
        assert json.loads(self.object.read_text())["metadata"]["annotations"] == {"headwater.dev/on-delete": "delete"}
        remove_from_kafka(self.kafka, self.tenant)
        if not leaves_table:
            self.store.places.clear()
        self.object.unlink()


@pytest.fixture
def cluster(
    tmp_path: Path, bootstrap_servers: str, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> Cluster:
    made = Cluster(tmp_path, KafkaSettings(bootstrap_servers=bootstrap_servers), unique_name("acme").replace("_", "-"))
    ensure_topics(made.kafka, [TopicSpec(name=f"{made.tenant}.shop.db.orders")])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr("libs.operations.erase.cluster_places.table_store", lambda *_: made.store)
    monkeypatch.setattr(ClusterView, "source", lambda *_: SeenSource({ORDERS: None}))  # type: ignore[dict-item]
    return made


def test_a_tenant_elsewhere_goes_with_topics_and_tables(cluster: Cluster) -> None:
    """A dry run changes nothing."""
    command = ("erase", cluster.tenant, "--mesh", str(cluster.file))
    planned = run_here(*command, "--dry-run", "--json")
    calls = cluster.calls.read_text()
    operator = threading.Thread(target=cluster.operate, daemon=True)
    operator.start()
    done = run_here(*command, "--yes", cluster.tenant)
    again = run_here(*command, "--dry-run")

    name = f"{cluster.tenant}.shop.db.orders"
    held = [(each["kind"], each["name"]) for each in json.loads(planned.stdout)["held"]]
    assert held == [("ConfigMap", "teams/a"), ("topic", name), ("iceberg table", name)]
    assert all(line.startswith("get ") for line in calls.splitlines())
    assert f"tenant {cluster.tenant}: 3 thing(s) removed" in done.output, done.output
    assert done.exit_code == 0
    assert held_in_kafka(cluster.kafka, cluster.tenant, None) == []
    assert "Headwater holds nothing of it" in again.output
    assert again.exit_code == 2


def test_a_table_that_is_left_is_named_by_each_later_call(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the document is gone, which names the tables."""
    monkeypatch.setattr("libs.operations.erase.carry_out._SETTLED_S", 0.0)
    command = ("erase", cluster.tenant, "--mesh", str(cluster.file), "--yes", cluster.tenant)
    operator = threading.Thread(target=lambda: cluster.operate(leaves_table=True), daemon=True)
    operator.start()
    first, second = run_here(*command), run_here(*command)

    for each in (first, second):
        assert "this is still there; erase again" in each.output, each.output
        assert f"iceberg table  {cluster.tenant}.shop.db.orders" in each.output
        assert each.exit_code == 1


def test_a_mesh_without_kubectl_is_told_the_remedy(cluster: Cluster) -> None:
    cluster.file.write_text(f"kafka: {{bootstrap_servers: '{cluster.kafka.bootstrap_servers}'}}\n")

    found = run_here("erase", cluster.tenant, "--mesh", str(cluster.file), "--dry-run")

    assert "have kubectl reach it, by 'kubernetes: {}' there" in found.output
    assert found.exit_code == 2
