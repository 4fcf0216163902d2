"""A reader's halt is a person's affair only while the source is the reader's own."""

from typing import cast

import pytest

from libs.errors import Fenced, PipelineHalted, ServiceUnavailable, SourceMisconfigured
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.source.follow import require_lease
from libs.types.checkpoint import FencingToken
from libs.types.position import SourcePartition

PARTITION = SourcePartition(source="shop", name="0")
SAME_ID = SourceMisconfigured("somebody else asked for the log under the same server id")


class Committer:
    """Answers who asks for the lease with a token, or an error."""

    def __init__(self, answer: FencingToken | Exception) -> None:
        self._answer = answer

    async def acquire(self, partition: SourcePartition, owner: str, lease_s: float) -> FencingToken:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def asked(answer: FencingToken | Exception) -> None:
    committer = cast(CheckpointCommitterClient, Committer(answer))
    await require_lease(committer, PARTITION, "me", FencingToken(7), 60.0, because=SAME_ID)


@pytest.mark.parametrize("answer", [Fenced("held by another"), FencingToken(9)])
async def test_a_reader_whose_lease_went_to_another_is_fenced_and_not_halted(answer: FencingToken | Exception) -> None:
    """It was frozen for longer than its lease, and its successor took the log over."""
    with pytest.raises(Fenced):
        await asked(answer)


@pytest.mark.parametrize("answer", [FencingToken(7), ServiceUnavailable("away")])
async def test_a_reader_that_holds_its_lease_stays_halted(answer: FencingToken | Exception) -> None:
    await asked(answer)  # returns: the error that halted it is raised


def test_the_same_server_id_halts() -> None:
    assert isinstance(SAME_ID, PipelineHalted)
