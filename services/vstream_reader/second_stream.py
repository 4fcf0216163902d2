"""The second stream beside the main one: opened and ended as ``recopy`` wants it, its rows into the batch that both share."""

import time

from libs.errors import DiskFull, HeadwaterError, ServiceUnavailable
from services.vstream_reader.answers import Answers, Arrived
from services.vstream_reader.client import Vtgate
from services.vstream_reader.decode import StreamDecoder
from services.vstream_reader.found import NewTable
from services.vstream_reader.recopy import Recopy
from services.vstream_reader.row_estimates import estimated_rows
from services.vstream_reader.table_versions import TableVersions


async def take_answer(recopy: Recopy, arrived: Arrived, answers: Answers, versions: TableVersions) -> bool:
    """Decode an answer of the second stream; its rows are one batch, to be taken with the place that it reached. False: it is
    of a stream that was ended meanwhile.

    Raises:
        ServiceUnavailable: schema_history does not answer. DiskFull.
    """
    second = arrived.decoder
    if second is not recopy.decoder:
        return False
    now_s = time.monotonic()
    error = arrived.error
    if arrived.answer is not None:
        error = await _feed(second, arrived.answer, versions)
    if error is not None or arrived.answer is None:
        recopy.broke(error, now_s)
        is_over = True
    else:
        is_over = recopy.delivered()
    if is_over:
        answers.end(second)
        recopy.ended()
    return True


async def _feed(second: StreamDecoder, answer: bytes, versions: TableVersions) -> HeadwaterError | None:
    """Returns the fault of the answer, if it has one. Whole rows before it are in the batch: they are right, and come again."""
    second.tick(time.time_ns())
    try:
        for found in second.feed(answer):
            if isinstance(found, NewTable):
                await versions.learn(found, second)
    except (ServiceUnavailable, DiskFull):
        raise
    except HeadwaterError as error:
        return error
    finally:
        second.flush()
    return None


async def direct(recopy: Recopy, main: StreamDecoder, answers: Answers, vtgate: Vtgate, keyspace: str) -> None:
    """Open or end the second stream, as signals and reshards want it."""
    second = recopy.decoder
    if second is not None and recopy.is_to_end(main.shards.names):
        answers.end(second)
        recopy.ended()
    if not main.shards.names:
        recopy.pass_over()
    if main.shards.copy.is_running or (request := recopy.due(main, time.monotonic())) is None:
        return
    assert recopy.decoder is not None
    assert recopy.running is not None
    if not recopy.running.rows_estimated:
        table = recopy.running.table.partition(".")[2]
        recopy.expect(await estimated_rows(vtgate, keyspace, [table], main.shards.names))
    answers.open(recopy.decoder, request)
