"""Conditional writes as a real object store has them (versitygw), through the client of a job's state."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from libs.errors import InvalidSettings, TransientError
from libs.servers.ports import free_port
from spark.settings import StateStoreSettings
from spark.tenant.state_store import ObjectChanged, StateStore, Version
from tests.cluster import programs
from tests.conftest import started
from tests.object_store import REGION, ObjectStore

pytestmark = pytest.mark.rest(because="its object store is built first; see unit/spark/test_kept_states.py")

WRITERS, ROUNDS = 6, 40


@pytest.fixture(scope="module")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    program = programs.build_object_store()
    if program is None:
        pytest.fail("the object store cannot be built: see above; `make cluster-programs` tries again")
    folder = tmp_path_factory.mktemp("objects")
    with ExitStack() as servers:
        store = ObjectStore(program, folder / "store", free_port())
        started(store.spec(), folder / "logs", servers)
        store.make_bucket("state")
        yield store


@pytest.fixture
def environ(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in object_store.environ.items():
        monkeypatch.setenv(name, value)


def opened(store: ObjectStore, uri: str = "s3://state/jobs") -> StateStore:
    return StateStore(StateStoreSettings(uri=uri, job="a", endpoint=store.uri, region=REGION, is_path_style=True))


def test_an_object_is_replaced_only_by_who_has_seen_the_last_one(object_store: ObjectStore, environ: None) -> None:
    store = opened(object_store)
    assert store.read("one.json") is None
    assert store.version("one.json") is None

    first = store.write("one.json", b"1", None)
    with pytest.raises(ObjectChanged, match=r"s3://state/jobs/one\.json"):
        store.write("one.json", b"2", None)
    second = store.write("one.json", b"2", first)
    with pytest.raises(ObjectChanged):
        store.write("one.json", b"3", first)

    assert store.read("one.json") == (b"2", second)
    assert store.version("one.json") == second
    store.remove("one.json")
    store.remove("one.json")
    assert store.read("one.json") is None
    with pytest.raises(ObjectChanged):
        store.write("one.json", b"3", second)


def written_at_once(store: StateStore, key: str, expected: Version | None) -> list[bytes]:
    """The contents of writers that were not refused."""
    written: list[bytes] = []
    together = threading.Barrier(WRITERS)

    def write(content: bytes) -> None:
        together.wait()
        try:
            store.write(key, content, expected)
        except ObjectChanged:
            return
        written.append(content)

    writers = [threading.Thread(target=write, args=(f"of {writer}".encode(),)) for writer in range(WRITERS)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    return written


@pytest.mark.parametrize("is_there", [False, True])
def test_of_those_who_write_at_once_one_has_written(object_store: ObjectStore, environ: None, is_there: bool) -> None:
    store = opened(object_store)
    for number in range(ROUNDS):
        key = f"{is_there}-{number}.json"
        expected = store.write(key, b"first", None) if is_there else None

        written = written_at_once(store, key, expected)

        found = store.read(key)
        assert found is not None
        assert written == [found[0]]


def test_what_is_wrong_is_told_with_the_place_and_the_remedy(
    object_store: ObjectStore, environ: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bucket, a key that may not, a server that is away: each may be mended while the job waits. No error has a secret."""
    with pytest.raises(
        TransientError, match=r"s3://none/jobs/x\.json cannot be .* the bucket of state_store\.uri is there"
    ):
        opened(object_store, "s3://none/jobs").write("x.json", b"1", None)
    away = ObjectStore(object_store.program, object_store.folder, free_port())
    reasons = set()
    for _ in range(3):
        with pytest.raises(TransientError, match="see that the object store answers") as refused:
            opened(away).read("x.json")
        reasons.add(str(refused.value))
    assert len(reasons) == 1  # an equal reason is reported once
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    with pytest.raises(TransientError, match=r"PermissionDenied.* get, put and delete") as refused:
        opened(object_store).read("x.json")
    assert "wrong-secret" not in str(refused.value)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(InvalidSettings, match=r"uri: .*Missing SecretAccessKey; see the keys in the environment"):
        opened(object_store)
