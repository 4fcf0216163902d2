"""Dead letters that a batch takes up again: which keys a request asks for, and the answers to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from libs.events.dead_letter import ReplayRequest
from libs.sink_state.parked_keys import ParkedKey, ParkedKeysOfTable, ReplayAnswer
from spark.pending.parked_keys import ParkedKeysFile
from spark.pending.progress import SetAside
from spark.sinks.port import BatchIdentity


@dataclass(frozen=True, slots=True)
class Replay:
    """Dead letters that a table takes up again with this batch."""

    requests: Sequence[ReplayRequest]
    released: Mapping[str, ParkedKey]
    """The keys that they ask for, by key text."""

    @property
    def leaves_out_refused(self) -> bool:
        return any(request.leave_out_refused for request in self.requests)


def chosen_keys(state: ParkedKeysOfTable, requests: Sequence[ReplayRequest]) -> dict[str, ParkedKey]:
    """The parked keys that ``requests`` ask for, by key text."""
    wanted = {text for request in requests for text in (request.keys or state.keys)}
    return {text: key for text, key in state.keys.items() if text in wanted}


def answer_in_vain(file: ParkedKeysFile, topic: str, batch: BatchIdentity, replay: Replay) -> None:
    """Nothing is to be written: no key that is asked for is parked, or there are no letters. Given up, the keys are free."""
    if not replay.leaves_out_refused:
        answer_refused(file, topic, batch, replay)
        return
    state = file.of_table(topic, batch)
    answers = _answers(state, batch, replay, refused=0)
    keys = {text: key for text, key in state.keys.items() if text not in replay.released}
    file.store(topic, batch, msgspec.structs.replace(state, keys=keys, answers=answers))


def answer_refused(file: ParkedKeysFile, topic: str, batch: BatchIdentity, replay: Replay) -> None:
    """Nothing of the table can be written now: the keys stay parked."""
    state = file.of_table(topic, batch)
    answers = _answers(state, batch, replay, refused=len(replay.released))
    file.store(topic, batch, msgspec.structs.replace(state, answers=answers))


def _answers(
    state: ParkedKeysOfTable, batch: BatchIdentity, replay: Replay, *, refused: int
) -> dict[str, ReplayAnswer]:
    answer = ReplayAnswer(batch_id=batch.batch_id, keys=len(replay.released), refused=refused)
    return {**state.answers, **{request.id: answer for request in replay.requests}}


def parked_by_now(state: ParkedKeysOfTable) -> SetAside:
    """Of a table that held the batch already."""
    return SetAside(0, 0, len(state.keys), sum(key.letters for key in state.keys.values()))
