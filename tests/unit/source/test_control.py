"""A reader's answers about itself."""

from libs.source.control import ReaderControl
from libs.source.port import ShardProgress
from libs.source.status import ReaderStatus
from libs.types.position import SourcePartition
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb

SHARD = ShardProgress(
    shard="-80",
    position="MySQL56/a:1-5",
    rank=5,
    epoch=2,
    committed_at_us=1_700_000_000_000_000,
    lag_s=1.5,
    transactions=3,
    rows=7,
    rows_copied=4,
    is_copying=True,
    is_ended=True,
)


async def test_shards_are_told_as_they_were_read() -> None:
    """Every fact of each; a source without shards reports none."""
    status = ReaderStatus(SourcePartition(source="s", name="0"))
    control = ReaderControl(status, lambda signal: 0)
    context = None  # not looked at

    without = await control.GetStatus(pb.GetStatusRequest(), context)  # type: ignore[arg-type]
    status.shards = lambda: (SHARD,)
    (told,) = (await control.GetStatus(pb.GetStatusRequest(), context)).shards  # type: ignore[arg-type]

    assert len(without.shards) == 0
    told_facts = {field.name: getattr(told, field.name) for field in pb.ShardStatus.DESCRIPTOR.fields}
    assert told_facts == {name: getattr(SHARD, name) for name in told_facts}
