"""A tenant's state in an object store: how a process begins, when it writes which part, and how two of them come apart."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from libs.errors import Fenced, InvalidSettings, PipelineHalted, TransientError
from libs.sink_state.parked_keys import ParkedKeysOfTable
from libs.sink_state.resync import ResyncAnswer
from libs.types.sink_place import (
    PLACES_FILE,
    HeldState,
    Outcome,
    Phase,
    Place,
    Places,
    decode_held,
    encode_held,
    encode_places,
    held_path,
)
from spark.jobs.sink_job import gone_with_the_job
from spark.pending.parked_keys import ParkedKeysFile
from spark.pending.resync_answers import ResyncAnswers
from spark.settings import SessionSettings, SinkJobSettings, StateStoreSettings
from spark.sinks.port import BatchIdentity
from spark.tenant import kept_states, moves
from spark.tenant.kept_states import Beginning, KeptNote, KeptState, KeptStates, beginning, kept_files
from spark.tenant.moves import Moves
from spark.tenant.state import remove_state, state_files
from spark.tenant.state_store import ObjectChanged, Version
from tests.unit.spark.test_tenant_state import Topic, write_state


class Objects:
    """An object store, with the faults that may happen on the way to it."""

    def __init__(self) -> None:
        self.there: dict[str, tuple[bytes, Version]] = {}
        self.is_away = False
        self.loses_answers = False
        """A write is done, and its writer gets no answer."""
        self.writes = 0
        self._versions = itertools.count()

    def read(self, key: str) -> tuple[bytes, Version] | None:
        self._ask()
        return self.there.get(key)

    def version(self, key: str) -> Version | None:
        self._ask()
        return self.there[key][1] if key in self.there else None

    def write(self, key: str, content: bytes, expected: Version | None) -> Version:
        self._ask()
        if self.there.get(key, (b"", None))[1] != expected:
            raise ObjectChanged(key)
        self.writes += 1
        self.there[key] = content, {"e_tag": str(next(self._versions))}
        if self.loses_answers:
            self.loses_answers = False
            raise TransientError("no answer")
        return self.there[key][1]

    def remove(self, key: str) -> None:
        self._ask()
        self.there.pop(key, None)

    def place(self, key: str) -> str:
        return f"s3://lake/{key}"

    def _ask(self) -> None:
        if self.is_away:
            raise TransientError("away")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Seconds; a sleep passes them."""
    now = [1_000.0]

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    # Not the module's own functions: other threads sleep too.
    monkeypatch.setattr(kept_states, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=pass_time))
    yield now


def process(folder: Path, objects: Objects) -> KeptStates:
    return KeptStates(StateStoreSettings(uri="s3://lake/state", job="own-acme"), folder, objects)  # type: ignore[arg-type]


def never() -> bool:
    return False


FIRST = KeptState(generation=3, writer="a", files={})


@pytest.mark.parametrize(
    ("found", "note", "has_files", "expected"),
    [
        (None, None, False, Beginning.ANEW),
        (None, None, True, Beginning.ADOPT),
        (None, KeptNote(generation=0, writer=""), True, Beginning.ADOPT),
        (FIRST, None, False, Beginning.RESTORE),
        (FIRST, KeptNote(generation=3, writer="a"), True, Beginning.GO_ON),
        (FIRST, KeptNote(generation=3, writer=""), True, Beginning.RESTORE),
        (FIRST, KeptNote(generation=2, writer="b"), True, Beginning.RESTORE),
        (FIRST, KeptNote(generation=0, writer=""), True, Beginning.RESTORE),
    ],
)
def test_the_object_is_what_is_gone_on_from(
    found: KeptState | None, note: KeptNote | None, has_files: bool, expected: Beginning
) -> None:
    """But for a folder whose state is the object's own; also where a killed process left files half done."""
    assert beginning(found, note, has_files=has_files) is expected


@pytest.mark.parametrize(
    ("found", "note", "words"),
    [
        (None, KeptNote(generation=3, writer="a"), "is gone"),
        (None, KeptNote(generation=3, writer=""), "is gone"),
        (FIRST, None, "never kept there"),
        (FIRST, KeptNote(generation=4, writer="a"), "older than"),
        (FIRST, KeptNote(generation=3, writer="b"), "another one"),
    ],
)
def test_what_contradicts_is_refused_by_name(found: KeptState | None, note: KeptNote | None, words: str) -> None:
    with pytest.raises(PipelineHalted, match=words):
        beginning(found, note, has_files=True)


def test_who_begins_in_an_empty_folder_goes_on_from_what_was_kept_last(tmp_path: Path, clock: list[float]) -> None:
    """Its place too. A state that another process wrote last it serves a while later, and a folder of its own at once."""
    objects, first = Objects(), process(tmp_path / "a", Objects())
    first = process(tmp_path / "a", objects)
    assert first.open("acme")
    assert objects.writes == 0
    write_state(tmp_path / "a", "acme", batches=7)
    held_path(tmp_path / "a", "acme").parent.mkdir()
    held_path(tmp_path / "a", "acme").write_bytes(encode_held(HeldState(tenancy="t", move=2, phase=Phase.HELD)))
    first.keep("acme", never)
    first.keep("acme", never)
    assert objects.writes == 1
    kept = kept_files(tmp_path / "a", "acme")
    assert "places/acme.json" in kept

    second = process(tmp_path / "b", objects)
    assert not second.open("acme")
    assert "given time" in second.waiting["acme"]
    clock[0] += 29.0
    assert not second.open("acme")
    clock[0] += 1.0
    assert second.open("acme")

    assert second.waiting == {}
    assert kept_files(tmp_path / "b", "acme") == kept
    assert process(tmp_path / "b", objects).open("acme")


def test_who_was_killed_while_it_waited_for_another_leaves_the_waiting_to_the_next(
    tmp_path: Path, clock: list[float]
) -> None:
    objects = Objects()
    first = process(tmp_path / "a", objects)
    first.open("acme")
    write_state(tmp_path / "a", "acme")
    first.keep("acme", never)
    assert not process(tmp_path / "b", objects).open("acme")

    following = process(tmp_path / "b", objects)

    assert not following.open("acme")
    clock[0] += 30.0
    assert following.open("acme")


def test_a_folder_that_is_the_objects_own_goes_on_with_what_came_since(tmp_path: Path, clock: list[float]) -> None:
    objects, first = Objects(), process(tmp_path, Objects())
    first = process(tmp_path, objects)
    first.open("acme")
    write_state(tmp_path, "acme", batches=3)
    first.keep("acme", never)
    write_state(tmp_path, "acme", batches=4)

    assert process(tmp_path, objects).open("acme")

    assert "checkpoints/acme/offsets/3" in kept_files(tmp_path, "acme")


def test_a_state_from_before_there_was_a_store_is_kept_at_once(tmp_path: Path, clock: list[float]) -> None:
    """Also by a process that follows one which was killed between the object and the note of it."""
    write_state(tmp_path / "a", "acme")
    objects = Objects()
    objects.loses_answers = True
    assert not process(tmp_path / "a", objects).open("acme")

    following = process(tmp_path / "a", objects)
    following.open("acme")
    clock[0] += 30.0
    assert following.open("acme")

    process(tmp_path / "b", objects).open("acme")
    assert kept_files(tmp_path / "b", "acme") == kept_files(tmp_path / "a", "acme")


def test_of_two_processes_the_first_ends_by_name_wherever_it_is(tmp_path: Path, clock: list[float]) -> None:
    """With its next batch, and with its next table before the other serves the tenant; its state is not written any more."""
    objects = Objects()
    first = process(tmp_path / "a", objects)
    first.open("acme")
    write_state(tmp_path / "a", "acme", batches=2)
    first.keep("acme", never)
    second = process(tmp_path / "b", objects)
    second.open("acme")
    there = dict(objects.there)

    first.confirm("acme", never)  # nobody serves the tenant for as long as that is not asked again
    clock[0] += 10.0
    with pytest.raises(Fenced, match=r"s3://lake/own-acme/acme\.json: another process .* state_store\.job 'own-acme'"):
        first.confirm("acme", never)
    write_state(tmp_path / "a", "acme", batches=3)
    with pytest.raises(Fenced):
        first.keep("acme", never)

    assert objects.there == there
    clock[0] += 20.0
    assert second.open("acme")
    second.confirm("acme", never)


def test_who_finds_that_the_object_was_removed_ends_by_name(tmp_path: Path, clock: list[float]) -> None:
    objects = Objects()
    write_state(tmp_path, "acme", batches=2)
    job = process(tmp_path, objects)
    job.open("acme")
    objects.there.clear()
    clock[0] += 10.0

    with pytest.raises(Fenced, match="or removed it"):
        job.confirm("acme", never)


def test_a_writing_of_its_own_that_was_not_answered_is_its_own(tmp_path: Path, clock: list[float]) -> None:
    objects = Objects()
    job = process(tmp_path, objects)
    job.open("acme")
    for batches in (2, 3):
        write_state(tmp_path, "acme", batches=batches)
        objects.loses_answers = True
        job.keep("acme", never)
    objects.loses_answers = True
    write_state(tmp_path, "acme", batches=4)
    with pytest.raises(TransientError):
        job.keep_now("acme")
    write_state(tmp_path, "acme", batches=5)  # of a query that was started again meanwhile
    job.keep("acme", never)

    process(tmp_path / "b", objects).open("acme")
    assert kept_files(tmp_path / "b", "acme") == kept_files(tmp_path, "acme")


def test_while_the_store_is_away_a_batch_waits_and_it_is_told(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects()
    job = process(tmp_path, objects)
    job.open("acme")
    write_state(tmp_path, "acme")
    objects.is_away = True
    told: list[dict[str, str]] = []

    def pass_time(seconds: float) -> None:
        assert job.open("acme")  # as the job's loop asks meanwhile
        told.append(dict(job.waiting))
        clock[0] += seconds
        objects.is_away = clock[0] < 1_060.0

    monkeypatch.setattr(kept_states.time, "sleep", pass_time)
    job.keep("acme", never)

    assert set(map(str, told)) == {"{'acme': 'away'}"}
    assert job.waiting == {}
    assert objects.writes == 1
    objects.is_away = True
    write_state(tmp_path, "acme", batches=4)
    with pytest.raises(TransientError):
        job.keep("acme", lambda: True)  # the query is to stop


def test_a_tenant_whose_state_contradicts_waits_alone(tmp_path: Path, clock: list[float]) -> None:
    """Nothing is changed, the error names the remedy, and it goes on once that is done."""
    objects = Objects()
    for tenant in ("acme", "globex"):
        write_state(tmp_path, tenant)
    process(tmp_path, objects).open("acme")
    objects.there.clear()
    files = kept_files(tmp_path, "acme")
    job = process(tmp_path, objects)

    assert not job.open("acme")
    assert job.open("globex")

    assert "s3://lake/own-acme/acme.json: it is gone" in job.waiting["acme"]
    assert "state_dir/kept" in job.waiting["acme"]
    assert kept_files(tmp_path, "acme") == files
    (tmp_path / "kept" / "acme.json").unlink()
    clock[0] += 5.0
    assert job.open("acme")
    assert job.waiting == {}


def test_what_lasts_and_needs_the_store_or_a_person_is_a_fault(tmp_path: Path, clock: list[float]) -> None:
    """Waiting for another process to end is none. A query that was stopped while it waited waits no more once its state is kept
    all the same."""
    objects = Objects()
    write_state(tmp_path / "a", "acme")
    process(tmp_path / "a", objects).open("acme")
    second = process(tmp_path / "b", objects)
    objects.is_away = True

    assert not second.open("acme")
    clock[0] += 19.0
    assert second.faults(lasting_s=20.0) == {}
    clock[0] += 1.0
    assert not second.open("acme")
    assert second.faults(lasting_s=20.0) == {"acme": "away"}
    objects.is_away = False
    clock[0] += 5.0
    assert not second.open("acme")
    clock[0] += 25.0
    assert not second.open("acme")
    assert "given time" in second.waiting["acme"]
    assert second.faults(lasting_s=20.0) == {}

    clock[0] += 5.0
    assert second.open("acme")
    objects.is_away = True
    write_state(tmp_path / "b", "acme", batches=4)
    with pytest.raises(TransientError):
        second.keep("acme", lambda: True)
    clock[0] += 20.0
    assert second.faults(lasting_s=20.0) == {"acme": "away"}
    objects.is_away = False
    second.keep_now("acme")
    assert (second.waiting, second.faults(lasting_s=0.0)) == ({}, {})


def test_a_store_that_is_away_at_the_begin_is_asked_again_a_while_later(tmp_path: Path, clock: list[float]) -> None:
    objects = Objects()
    objects.is_away = True
    job = process(tmp_path, objects)

    assert not any(job.open(tenant) for tenant in ("acme", "globex"))
    objects.is_away = False
    assert not job.open("acme")
    assert set(job.waiting) == {"acme", "globex"}
    clock[0] += 5.0

    assert all(job.open(tenant) for tenant in ("acme", "globex"))
    assert job.waiting == {}


def test_of_a_tenant_that_is_gone_no_object_stays(tmp_path: Path, clock: list[float]) -> None:
    objects = Objects()
    write_state(tmp_path, "acme")
    job = process(tmp_path, objects)
    job.open("acme")
    remove_state(tmp_path, "acme")

    job.keep_now("acme")
    assert b"offsets" not in objects.there["own-acme/acme.json"][0]
    job.forget("acme")

    assert objects.there == {}
    assert job.open("acme")  # of the next tenant of that name


def moving(folder: Path, objects: Objects, topic: Topic, monkeypatch: pytest.MonkeyPatch, name: str) -> Moves:
    """Job ``name`` of its own folder."""
    monkeypatch.setattr(moves, "Handovers", lambda *_: topic)
    monkeypatch.setattr(moves, "_PAUSE_S", 0.0)
    monkeypatch.setattr(kept_states, "_PAUSE_S", 0.0)
    settings = SinkJobSettings(
        tenants_dir=str(folder / "tenants"),
        state_dir=str(folder / "state"),
        session=SessionSettings(jars_dir="unused"),
        warehouses={},
    )
    store = StateStoreSettings(uri="s3://lake/state", job=name, takeover_wait_s=0.0)
    kept = KeptStates(store, folder / "state", objects)  # type: ignore[arg-type]
    return Moves(None, settings, {}, kept)  # type: ignore[arg-type]  # no Spark: the topic is a fake


def tell(folder: Path, job: str, place: Place) -> None:
    (folder / "tenants").mkdir(parents=True, exist_ok=True)
    (folder / "tenants" / PLACES_FILE).write_bytes(encode_places(Places(job=job, tenants={"acme": place})))


def looks(of: Moves, times: int = 4) -> bool:
    return [bool(of.look({}, lambda _: True)) for _ in range(times)][-1]


def kept_phase(objects: Objects, job: str) -> Phase:
    files = msgspec.json.decode(objects.there[f"{job}/acme.json"][0], type=KeptState).files
    return decode_held(files["places/acme.json"].encode()).phase


def test_a_job_says_nothing_that_the_store_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it hands over, and that it has taken: begun again in an empty folder, it does not serve the tenant besides."""
    topic, old_objects, new_objects = Topic(), Objects(), Objects()
    tell(tmp_path / "a", "a", Place(job="a", tenancy="t"))
    old = moving(tmp_path / "a", old_objects, topic, monkeypatch, "a")
    assert looks(old)
    write_state(tmp_path / "a" / "state", "acme")
    state = state_files(tmp_path / "a" / "state", "acme")
    away = Place(job="b", tenancy="t", move=1, came_from="a")
    tell(tmp_path / "a", "a", away)

    old_objects.is_away = True
    assert not looks(old)
    assert topic.said == {}
    assert "away" in old.waiting["acme"]
    shutil.rmtree(tmp_path / "a" / "state")
    old_objects.is_away = False
    write_state(tmp_path / "a" / "state", "acme")  # begun again: it was never kept
    old = moving(tmp_path / "a", old_objects, topic, monkeypatch, "a")
    assert not looks(old, 1)
    assert (kept_phase(old_objects, "a"), topic.said["acme"].files) == (Phase.HANDING_OVER, state)

    tell(tmp_path / "b", "b", away)
    new = moving(tmp_path / "b", new_objects, topic, monkeypatch, "b")
    assert looks(new, 1)
    assert (topic.said["acme"].outcome, new_objects.there) == (Outcome.HANDED_OVER, {})
    new_objects.is_away = True
    assert looks(new)
    assert topic.said["acme"].outcome is Outcome.HANDED_OVER
    new_objects.is_away = False
    assert looks(new)
    assert (topic.said["acme"].outcome, kept_phase(new_objects, "b")) == (Outcome.TAKEN, Phase.HELD)

    assert not looks(old)
    assert kept_phase(old_objects, "a") is Phase.GONE
    assert b"checkpoints" not in old_objects.there["a/acme.json"][0]
    for job, objects in (("a", old_objects), ("b", new_objects)):
        shutil.rmtree(tmp_path / job / "state")
        anew = moving(tmp_path / job, objects, topic, monkeypatch, job)
        assert looks(anew) == (job == "b")
    assert state_files(tmp_path / "b" / "state", "acme") == state


class LocalSink:
    """Whose tables lie in a folder of the job's machine."""

    def __init__(self, folder: Path) -> None:
        self.folders = [folder]


@pytest.mark.parametrize(
    ("folder", "own_volume", "is_kept", "count"),
    [("v/tables", "v", True, 1), ("tables", "v", True, 0), ("v/tables", "v", False, 0), ("v/tables", None, True, 0)],
)
def test_tables_that_would_go_with_the_jobs_folder_are_refused(
    tmp_path: Path, folder: str, own_volume: str | None, is_kept: bool, count: int
) -> None:
    settings = SinkJobSettings(
        tenants_dir="unused",
        state_dir="unused",
        own_volume=None if own_volume is None else str(tmp_path / own_volume),
        state_store=StateStoreSettings(uri="s3://lake", job="a") if is_kept else None,
        session=SessionSettings(jars_dir="unused"),
        warehouses={},
    )

    mistakes = gone_with_the_job(settings, {"iceberg": LocalSink(tmp_path / folder)})  # type: ignore[dict-item]

    assert len(mistakes) == count
    assert all(each.startswith(f"warehouses.iceberg: lies in {tmp_path / folder}") for each in mistakes)


@pytest.mark.parametrize("kind", [ParkedKeysFile, ResyncAnswers])
def test_what_is_parked_or_answered_is_kept_before_it_counts(
    tmp_path: Path, kind: type[ParkedKeysFile] | type[ResyncAnswers]
) -> None:
    """While a batch is at work: it is in the file by then, and an error of the keeping ends the batch."""
    seen: list[int] = []

    def keep() -> None:
        seen.append(len(list(tmp_path.rglob("acme.json"))))
        raise Fenced("another job has it")

    with pytest.raises(Fenced):
        if kind is ParkedKeysFile:
            ParkedKeysFile(tmp_path, "acme", keep=keep).store("t", BatchIdentity("q", 1), ParkedKeysOfTable())
        else:
            answer = ResyncAnswer(topic="t", query_id="q", batch_id=1, at_us=1)
            ResyncAnswers(tmp_path, "acme", keep=keep).store("r", answer)
    assert seen == [1]


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"uri": "file:///state"}, "uri: "),
        ({"uri": "s3://"}, "uri: "),
        ({"uri": "gs://lake/state", "region": "eu"}, "endpoint, region, is_path_style: "),
        ({"endpoint": "store:9000"}, "endpoint: "),
        ({"job": "a/b"}, "job: "),
        ({"takeover_wait_s": -1.0}, "takeover_wait_s: "),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, object], place: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        StateStoreSettings(**{"uri": "s3://lake/state", "job": "own-acme", **settings})  # type: ignore[arg-type]

    [mistake] = refused.value.mistakes
    assert mistake.startswith(place)
