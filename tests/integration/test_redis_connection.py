"""Views over a real Valkey: a task that uses one ends when it is cancelled, and a value that is not ours harms nobody."""

import asyncio
import random
import socketserver
import threading
import zlib
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
import redis

from libs.config.connections import RedisSettings
from libs.redis import bounded
from libs.servers import valkey_server
from libs.types.table import TableId
from services.checkpoint_committer.log import decode
from services.checkpoint_committer.view import CheckpointView
from services.schema_history.view import HistoryView
from tests.conftest import StartValkey

BOMB = zlib.compress(bytes(20_000_000))

CANCELLATIONS = 2_000
LONGEST_RUN_S = 0.004
ENDS_WITHIN_S = 5.0
MOST_BYTES = 1 << 20
IN_BUFFERS_BYTES = 16 << 20
"""Of both ends' sockets, at most."""


async def test_a_task_that_is_cancelled_during_a_command_ends(start_valkey: StartValkey) -> None:
    """Two thousand times; without the note's look, several of them went on for ever (one in some hundred)."""
    view = CheckpointView(RedisSettings(url=start_valkey().url), "topic")
    await view.replace({0: 0}, [])

    async def use_for_ever() -> None:
        while True:
            await view.extend({0: 0}, {0: 0}, [])

    for _ in range(CANCELLATIONS):
        using = asyncio.create_task(use_for_ever())
        await asyncio.sleep(random.uniform(0, LONGEST_RUN_S))
        using.cancel()
        done, _ = await asyncio.wait([using], timeout=ENDS_WITHIN_S)
        assert done, "it went on"
    await view.close()


GARBAGE = (b"", b"\xff\x00", b"-1", b"1e9", b"9" * 5_000, b"\x92\x01\xc4\x00", msgspec.msgpack.encode([1, BOMB]), b"{}")


async def test_whatever_somebody_else_writes_under_our_keys_is_passed_over_and_written_anew(
    start_valkey: StartValkey,
) -> None:
    """Kafka is read instead: no value stops a service at its start, or is taken for a checkpoint."""
    settings = RedisSettings(url=start_valkey().url)
    somebody = redis.Redis.from_url(settings.url)
    checkpoints, history = CheckpointView(settings, "topic"), HistoryView(settings, "topic")
    heads, state = history._heads_key, checkpoints._state_key
    table = ("s", TableId(database="d", table="t"))

    for value in GARBAGE:
        for field in ("#next_offset", "s\0d\0t", "no field of ours", b"\xff"):
            somebody.delete(heads)
            somebody.hset(heads, mapping={"#next_offset": "0", field: value})
            contents = await history.load()
            assert contents is None or (field == "#next_offset" and contents.next_offset >= 0)
        somebody.hset(history._versions_key(table), "1", value)
        assert await history.versions(table, [1]) == {}
        for key in ("#next_offsets", "s/0", "lease/s/0", "reset/s/0", "\0"):
            somebody.delete(state)
            somebody.hset(state, mapping={"#next_offsets": "{}", key: value})
            found = await checkpoints.load()
            assert found is None or all(decode(each.key, each.value) is not None for each in found.records)
        somebody.hset(checkpoints._progress_key, "x", value)
        assert await checkpoints.load_progress() == []
    assert history.unavailable is None
    assert checkpoints.unavailable is None

    for key in (heads, state):
        somebody.delete(key)
        somebody.set(key, "a text, no hash")
    assert await history.load() is None
    assert await checkpoints.load() is None
    for view in (history, checkpoints):
        assert "nobody else writes" in (view.unavailable or "")
        view._connection.note_back()
        view._connection._away_until_s = 0.0
    assert await history.replace(7, [], {})
    assert await checkpoints.replace({0: 7}, [])
    assert (await history.load() or fail()).next_offset == 7
    assert (await checkpoints.load() or fail()).next_offsets == {0: 7}
    await history.close()
    await checkpoints.close()
    somebody.close()


def fail() -> NoReturn:
    raise AssertionError("the view holds nothing")


NO_REDIS = (
    b"*abc\r\n",
    b":x\r\n",
    b"$abc\r\n",
    b"$-5\r\n",
    b"%x\r\n",
    b"?\r\n",
    b"\xff\xfe\r\n",
    b"*2\r\n" * 3_000,
    b",nanx\r\n",
    b"(12x\r\n",
    b":1\r\n",
)


@pytest.mark.parametrize("answer", NO_REDIS)
async def test_whatever_answers_in_redis_s_place_is_a_redis_that_is_away(answer: bytes) -> None:
    """Numbers that are none, depths without end, another protocol: no command of a view raises."""

    async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(answer_all, "127.0.0.1", 0)
    settings = RedisSettings(url=f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
    loading, extending, replacing = (CheckpointView(settings, "topic") for _ in range(3))
    history = HistoryView(settings, "topic")

    assert await loading.load() is None
    assert await extending.extend({0: 0}, {0: 1}, []) is None
    assert not await replacing.replace({0: 0}, [])
    assert await history.load() is None
    for view in (loading, extending, replacing, history):
        await view.close()
    server.close()


ENDLESS = {
    "a long text": (b"$2000000000\r\n", b"x" * 65_536),
    "a long text in a text": (b"*2\r\n$3\r\nabc\r\n$2000000000\r\n", b"x" * 65_536),
    "many texts": (b"*2000000000\r\n", (b"$65536\r\n" + b"x" * 65_536 + b"\r\n") * 4),
    "many numbers": (b"*2000000000\r\n", b":1\r\n" * 20_000),
    "many pairs": (b"%2000000000\r\n", b"$1\r\na\r\n:1\r\n" * 5_000),
    "a line": (b"+", b"x" * 65_536),
}


@pytest.mark.parametrize("endless", list(ENDLESS))
async def test_an_answer_without_end_has_one(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes: by time alone, a server nearby could send a gigabyte before the client gives up."""
    monkeypatch.setattr(bounded, "MOST_ANSWER_BYTES", MOST_BYTES)
    first, ever_after = ENDLESS[endless]
    sent, ended = 0, asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            while asked := await reader.read(65_536):
                if any(word in asked for word in (b"HELLO", b"CLIENT")):  # the handshake
                    writer.write(b"-ERR unknown command\r\n" * asked.count(b"*"))
                    continue
                writer.write(first)
                while True:
                    writer.write(ever_after)
                    await writer.drain()
                    sent += len(ever_after)
        except ConnectionError:
            pass
        finally:
            writer.close()
            ended.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    view = HistoryView(RedisSettings(url=f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"), "topic")

    assert await view.load() is None
    assert view.unavailable is not None or endless == "a line"
    await view.close()
    await asyncio.wait_for(ended.wait(), ENDS_WITHIN_S)
    server.close()
    assert 0 < sent < MOST_BYTES + IN_BUFFERS_BYTES


@pytest.mark.parametrize("answer", [b":x\r\n", b"*2\r\n" * 3_000, b":1\r\n"])
def test_whatever_holds_valkeys_port_is_another_server(answer: bytes, tmp_path: Path) -> None:
    class AnswerAll(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while self.request.recv(65_536):
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), AnswerAll) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        assert not valkey_server._serves(server.server_address[1], tmp_path)
        server.shutdown()
