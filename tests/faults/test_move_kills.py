"""A tenant that moves between two sink jobs, which are killed at each point of it; and one whose tables go.

The jobs' lives are the shared session's (``tests.session_job``); ``test_sink_kills`` kills a process on each warehouse.
"""

import random
import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from libs.config.connections import KafkaSettings
from libs.durable_file import replace_durably
from libs.kafka.clients import ensure_topics
from libs.kafka.sink_handovers import read_handovers, sink_handovers_topic
from libs.sink_state.stream_offsets import offsets_path
from libs.types.sink_place import PLACES_FILE, Outcome, Place, Places, encode_places, handover_key
from libs.types.tenant import SinkMode
from tests.session_job import SessionJob, session_job
from tests.sink_job import LIFE_TIMEOUT_S, Tenant, write_tenant
from tests.sink_topics import without_own_columns

pytestmark = [
    pytest.mark.spark,
    pytest.mark.rest(because="the gate shows moves in tests/unit/spark/test_moves.py"),
]


@pytest.fixture
def jobs(
    bootstrap_servers: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[SessionJob, SessionJob]]:
    """Over one warehouse, each with a state of its own; one of them runs at a time."""
    ensure_topics(KafkaSettings(bootstrap_servers=bootstrap_servers), [sink_handovers_topic(1)])
    with (
        session_job("iceberg", tmp_path / "a", bootstrap_servers, request) as old,
        session_job("iceberg", tmp_path / "b", bootstrap_servers, request) as new,
    ):
        yield old, new


def tell(job: SessionJob, place: Place, *tenants: Tenant) -> None:
    """Give a job the places of its tenants, as tenant_operator does."""
    places = Places(job=job.folder.name, tenants={tenant.name: place for tenant in tenants})
    replace_durably(job.folder / "tenants" / PLACES_FILE, encode_places(places))


@pytest.mark.timeout(7 * LIFE_TIMEOUT_S)
def test_killed_at_every_point_of_a_move_the_tables_are_exact(jobs: tuple[SessionJob, SessionJob]) -> None:
    """A mirror of two tables and a log move together, with a batch that was cut off between two tables, while more is written.
    The old job dies before and after the hand-over, the new one before and after the taking. Every row is there once, by the
    same queries. Then the tenants go with their tables, and the job dies between these and its state.
    """
    old, new = jobs
    chance = random.Random(47)
    mirror = write_tenant(old, f"m{secrets.token_hex(3)}", SinkMode.MIRROR, "orders", "items")
    append = write_tenant(old, f"a{secrets.token_hex(3)}", SinkMode.APPEND, "visits")
    both = (mirror, append)

    def write(transactions: int) -> None:
        for tenant in both:
            tenant.write(chance, transactions=transactions)

    tell(old, Place(job="a", tenancy="t"), *both)
    write(10)
    old.start(failpoints="sink_after_merge_before_next_table=end@4")
    old.wait_until_killed()
    queries = [_query_id(old, tenant) for tenant in both]
    for job in jobs:
        tell(job, Place(job="b", tenancy="t", move=1, came_from="a"), *both)
    for tenant in both:
        document = f"{tenant.name}.yaml"
        (new.folder / "tenants" / document).write_bytes((old.folder / "tenants" / document).read_bytes())
    old.start(failpoints="sink_move_before_handover=end@1")
    old.wait_until_killed()
    assert outcomes(old, *both) == [None, None]
    write(5)
    old.start(failpoints="sink_move_after_handover=end@2")
    old.wait_until_killed()
    assert outcomes(old, *both) == [Outcome.HANDED_OVER] * 2
    for failpoint in ("sink_move_after_taking_files", "sink_move_after_taking"):
        write(2)
        new.start(failpoints=f"{failpoint}=end@2")
        new.wait_until_killed()
    new.start(failpoints="sink_drop_between_tables_and_state=end@2")
    new.wait_until(lambda: all(new.progress(tenant).rows >= tenant.changes for tenant in both))
    new.wait_until(lambda: outcomes(new, *both) == [Outcome.TAKEN] * 2)

    for model in mirror.models:
        assert without_own_columns(new.rows(mirror, model)) == model.sorted_rows(), model.schema.table_id
    stored = [str(row["_headwater_order"]) for row in new.rows(append, append.models[0])]
    assert sorted(stored) == sorted(append.models[0].orders)
    assert [new.progress(tenant).rows for tenant in both] == [tenant.changes for tenant in both]
    assert [_query_id(new, tenant) for tenant in both] == queries

    tell(new, Place(job="b", tenancy="t", move=1, drops_tables=True), *both)
    new.wait_until_killed()
    new.start()
    new.wait_until(lambda: outcomes(new, *both) == [Outcome.DROPPED] * 2)

    assert not [
        tenant.name for tenant in both if (Path(new.warehouse_settings["warehouse_dir"]) / tenant.name).exists()
    ]
    tell(new, Place(job="b", tenancy="t"))
    new.wait_until(lambda: not [path for tenant in both for path in (new.folder / "state").rglob(f"{tenant.name}.*")])
    assert not [tenant.name for tenant in both if (new.folder / "state" / "checkpoints" / tenant.name).exists()]


def outcomes(job: SessionJob, *tenants: Tenant) -> list[Outcome | None]:
    """The last outcome reported of each, as the operator reads it."""
    found = read_handovers(KafkaSettings(bootstrap_servers=job.bootstrap_servers))
    keys = [handover_key(tenant.name, "t") for tenant in tenants]
    return [found[key].outcome if key in found else None for key in keys]


def _query_id(job: SessionJob, tenant: Tenant) -> str:
    metadata = offsets_path(job.folder / "state", tenant.name, 0).parents[1] / "metadata"
    return str(msgspec.json.decode(metadata.read_bytes())["id"])
