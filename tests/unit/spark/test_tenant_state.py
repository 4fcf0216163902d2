"""A tenant's state as it goes from one Spark job to another: which of its files, where to, and which of them stay."""

import random
from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest

from libs.types.sink_place import (
    MAX_HANDOVER_BYTES,
    PLACES_FILE,
    Handover,
    Outcome,
    Phase,
    Place,
    Places,
    decode_handover,
    decode_held,
    encode_handover,
    encode_places,
    handover_key,
    held_path,
)
from libs.types.tenant import SinkSettings, SourceSelection, TenantSpec
from spark.settings import SessionSettings, SinkJobSettings
from spark.sinks.port import Sink
from spark.tenant import moves
from spark.tenant.moves import Moves
from spark.tenant.state import remove_state, replace_state, state_files


def write_state(state_dir: Path, tenant: str, *, batches: int = 3, parked: str = "{}") -> None:
    checkpoint = state_dir / "checkpoints" / tenant
    texts = {"metadata": '{"id":"q"}', "sources/0/0": "v1", ".metadata.crc": "no text of ours", "offsets/9.tmp": "half"}
    texts |= {f"offsets/{number}": f"v1 {number}" for number in range(batches)}
    texts |= {f"commits/{number}": f"v1 {number}" for number in range(batches - 1)}
    for name, text in texts.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(text)
    for folder, text in (("progress", "{}"), ("parked-keys", parked)):
        (state_dir / folder).mkdir(exist_ok=True)
        (state_dir / folder / f"{tenant}.json").write_text(text)


def test_of_a_checkpoint_its_identity_and_the_last_two_batches_go(tmp_path: Path) -> None:
    write_state(tmp_path, "acme", batches=12)

    found = state_files(tmp_path, "acme")

    assert set(found) == {
        "checkpoints/acme/metadata",
        "checkpoints/acme/sources/0/0",
        "checkpoints/acme/offsets/10",
        "checkpoints/acme/offsets/11",
        "checkpoints/acme/commits/9",
        "checkpoints/acme/commits/10",
        "progress/acme.json",
        "parked-keys/acme.json",
    }


def test_where_no_query_was_begun_there_is_no_state(tmp_path: Path) -> None:
    assert state_files(tmp_path, "acme") == {}


def test_what_is_taken_is_all_that_there_is_and_others_keep_theirs(tmp_path: Path) -> None:
    write_state(tmp_path, "acme", batches=5)
    write_state(tmp_path, "acme-b")
    (tmp_path / "progress" / "acme.unfinished").write_text("of a killed writer")
    files = {"checkpoints/acme/metadata": "{}", "checkpoints/acme/offsets/7": "v1"}

    replace_state(tmp_path, "acme", files)

    assert state_files(tmp_path, "acme") == files
    assert not list((tmp_path / "progress").glob("acme.*"))
    assert len(state_files(tmp_path, "acme-b")) == 8
    remove_state(tmp_path, "acme")
    assert state_files(tmp_path, "acme") == {}


@pytest.mark.parametrize(
    "path", ["checkpoints/globex/metadata", "../etc", "checkpoints/acme/../globex/x", "places/acme.json"]
)
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    write_state(tmp_path, "acme")

    with pytest.raises(ValueError, match="no state of tenant acme"):
        replace_state(tmp_path, "acme", {path: "x"})
    assert state_files(tmp_path, "acme")


def test_a_handover_is_what_it_was_and_anything_else_is_none() -> None:
    handover = Handover(tenant="acme", tenancy="t", move=1, outcome=Outcome.HANDED_OVER, job="a", files={"x": "ä"})

    assert decode_handover(encode_handover(handover)) == handover
    for value in (b"", b"{}", encode_handover(handover)[:-5]):
        with pytest.raises(msgspec.DecodeError):
            decode_handover(value)


class Topic:
    """Kafka, for one job."""

    def __init__(self) -> None:
        self.said: dict[str, Handover] = {}

    def read(self, keys: Collection[str]) -> dict[str, Handover]:
        return {key: said for said in self.said.values() if (key := handover_key(said.tenant, said.tenancy)) in keys}

    def write(self, handover: Handover) -> None:
        self.said[handover.tenant] = handover

    def close(self) -> None: ...


class LocalSink:
    """Whose tables lie in a folder of the job's machine."""

    def __init__(self, folder: Path) -> None:
        self.folders = [folder]


SPEC = TenantSpec(tenant="acme", sources=(SourceSelection(name="shop"),), sink=SinkSettings(warehouse="iceberg"))


def job(folder: Path, topic: Topic, monkeypatch: pytest.MonkeyPatch, *, own_volume: Path | None = None) -> Moves:
    monkeypatch.setattr(moves, "Handovers", lambda *_: topic)
    (folder / "tenants").mkdir(parents=True, exist_ok=True)
    settings = SinkJobSettings(
        tenants_dir=str(folder / "tenants"),
        state_dir=str(folder / "state"),
        own_volume=None if own_volume is None else str(own_volume),
        session=SessionSettings(jars_dir="unused"),
        warehouses={},
    )
    sink: Sink = LocalSink(folder / "warehouse")  # type: ignore[assignment]  # nothing else of it is asked
    return Moves(None, settings, {"iceberg": sink})  # type: ignore[arg-type]  # no Spark: the topic is a fake


def tell(folder: Path, place: Place) -> None:
    (folder / "tenants").mkdir(parents=True, exist_ok=True)
    (folder / "tenants" / PLACES_FILE).write_bytes(encode_places(Places(job="a", tenants={"acme": place})))


def looks(of: Moves, times: int = 3) -> list[bool]:
    """Whether the tenant may be served, look by look."""
    return ["acme" in of.look({"acme": SPEC}, lambda _: True) for _ in range(times)]


AWAY = Place(job="b", tenancy="t", move=1, came_from="a")


def test_without_places_every_document_is_served_and_nothing_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looks(job(tmp_path, Topic(), monkeypatch)) == [True] * 3
    assert not (tmp_path / "state" / "places").exists()


def test_without_the_places_that_were_there_before_nobody_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(tmp_path, Place(job="a", tenancy="t"))
    assert looks(job(tmp_path, Topic(), monkeypatch), 1) == [True]
    (tmp_path / "tenants" / PLACES_FILE).unlink()  # and the job begins again

    assert looks(job(tmp_path, Topic(), monkeypatch)) == [False] * 3


def test_a_tenant_is_handed_over_once_it_is_at_rest_and_nothing_of_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic()
    old = job(tmp_path, topic, monkeypatch)
    tell(tmp_path, Place(job="a", tenancy="t"))
    assert looks(old, 1) == [True]
    write_state(tmp_path / "state", "acme")
    state = state_files(tmp_path / "state", "acme")
    tell(tmp_path, AWAY)

    assert "acme" not in old.look({"acme": SPEC}, lambda _: False)
    assert (topic.said, old.waiting) == ({}, {"acme": "its query ends"})
    assert looks(old) == [False] * 3

    assert (topic.said["acme"].outcome, topic.said["acme"].files) == (Outcome.HANDED_OVER, state)
    assert decode_held(held_path(tmp_path / "state", "acme").read_bytes()).phase is Phase.GONE
    assert state_files(tmp_path / "state", "acme") == {}
    assert old.waiting == {}


def test_a_state_that_is_too_large_stays_and_the_tenant_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic()
    noise = random.Random(1).randbytes(MAX_HANDOVER_BYTES).hex()
    write_state(tmp_path / "state", "acme", parked=noise)
    tell(tmp_path, AWAY)

    assert looks(job(tmp_path, topic, monkeypatch))[1:] == [True] * 2

    assert topic.said["acme"].outcome is Outcome.REFUSED
    assert f"{MAX_HANDOVER_BYTES} can be handed over" in topic.said["acme"].because
    assert state_files(tmp_path / "state", "acme")


def test_who_has_tables_on_the_jobs_own_volume_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    write_state(tmp_path / "state", "acme")
    tell(tmp_path, AWAY)

    assert looks(job(tmp_path, topic, monkeypatch, own_volume=tmp_path))[1:] == [True] * 2

    assert topic.said["acme"].outcome is Outcome.REFUSED
    assert "on this job's own volume" in topic.said["acme"].because


def test_a_tenant_that_comes_back_under_its_name_does_not_go_on_from_what_was_handed_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job was killed between the hand-over and the removal, and then the tenant was let go."""
    write_state(tmp_path / "state", "acme")
    topic = Topic()
    tell(tmp_path, AWAY)
    looks(job(tmp_path, topic, monkeypatch), 1)
    assert state_files(tmp_path / "state", "acme")
    tell(tmp_path, Place(job="a", tenancy="another"))

    assert looks(job(tmp_path, topic, monkeypatch)) == [True] * 3

    assert state_files(tmp_path / "state", "acme") == {}
