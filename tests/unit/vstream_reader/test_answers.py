"""Two streams whose answers are read ahead: either may fall silent while the other goes on."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from libs.errors import SourceUnavailable
from libs.events.batch import BatchBuilder, BatchIdentity
from libs.source.vitess.settings import EventSettings
from libs.types.value_modes import ValueModes
from protos.vitess.vtgate_pb2 import VStreamRequest
from services.vstream_reader import answers as module
from services.vstream_reader.answers import Answers
from services.vstream_reader.decode import StreamDecoder
from services.vstream_reader.decoder_options import DecoderOptions
from services.vstream_reader.position import VitessPosition

PATIENCE_S = 1.0
QUICK, SILENT = VStreamRequest(), VStreamRequest()
SILENT.flags.cells = "silent"


class Streams:
    """One that brings an answer every few milliseconds, one that brings one and then nothing."""

    async def stream(self, request: VStreamRequest) -> AsyncGenerator[bytes, None]:
        yield b"first"
        while request != SILENT:
            await asyncio.sleep(0.005)
            yield b"more"
        await asyncio.Event().wait()


def decoder() -> StreamDecoder:
    identity = BatchIdentity(source="s", source_partition="0", connector="vitess", run_id="r", fencing_token=1)
    options = DecoderOptions(
        source="s", keyspace="ks", is_captured=lambda _: True, modes=ValueModes(), events=EventSettings()
    )
    return StreamDecoder(options, VitessPosition(vgtid=()), {}, batch=BatchBuilder(identity), is_copying=False)


@pytest.fixture(autouse=True)
def a_short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For three heartbeats, which the streams here have none of. A busy machine stops this process for a tenth of it."""
    monkeypatch.setattr(module, "_SLACK_S", PATIENCE_S)


async def test_a_main_stream_falls_silent_while_another_copies() -> None:
    """It is lost, and says so: its changes would be waited for as long as the copy runs."""
    async with Answers(Streams(), heartbeat_s=0) as answers:
        answers.open(decoder(), SILENT)
        answers.open(decoder(), QUICK)

        with pytest.raises(SourceUnavailable, match="not even a heartbeat"):
            async with asyncio.timeout(30):
                while True:
                    await answers.next(1.0)


async def test_a_second_stream_that_falls_silent_is_told_apart() -> None:
    """Its end comes as one of its answers; the main one goes on."""
    main, second = decoder(), decoder()
    async with Answers(Streams(), heartbeat_s=0) as answers, asyncio.timeout(30):
        answers.open(main, QUICK)
        answers.open(second, SILENT)
        while (arrived := await answers.next(1.0)) is None or arrived.error is None:
            pass
        answers.end(second)
        behind = await answers.next(30.0)

    assert arrived.decoder is second
    assert isinstance(arrived.error, SourceUnavailable)
    assert behind is not None
    assert behind.decoder is main


async def test_a_stream_whose_decoder_is_behind_is_not_silent() -> None:
    """Nothing is read meanwhile, for want of room."""
    async with Answers(Streams(), heartbeat_s=0) as answers:
        answers.open(decoder(), QUICK)
        await asyncio.sleep(3 * PATIENCE_S)

        arrived = [await answers.next(1.0) for _ in range(30)]

    assert all(each is not None and each.error is None for each in arrived)
