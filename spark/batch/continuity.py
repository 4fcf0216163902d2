"""Whether a table, and its topic, go on where the sink left them: plain functions from known facts to the reason why not.

The sink knows by its progress which batch it wrote last. A table that was dropped, set back to an older state or replaced by
another does not have that batch; a checkpoint that was removed, or put back from a backup, is of another query or older than
the table; a topic that was made again has another id, and other events under the offsets that were read. Each of these would
pass events over, or have them twice.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from libs.sink_state.progress import ParkedTable, SinkProgress, Standing, TableProgress
from libs.types.tenant import SinkMode
from spark.kafka.kafka_ranges import OffsetRange
from spark.sinks.port import BatchIdentity
from spark.transforms.survey import Slice


def made_again(tenant: str, known: TableProgress, topic_id: str) -> str | None:
    """Why the topic of ``known``, which has ``topic_id`` now, is not the one that was read; None: it is, as far as is known."""
    if not known.topic_id or not topic_id or known.topic_id == topic_id:
        return None
    return (
        f"topic {known.topic} was deleted and made again: its id is {topic_id}, and the events up to now came from "
        f"{known.topic_id}. Events of the old one that the sink had not read are lost; {_resync(tenant, known.table)}"
    )


def whole_topic(because: str, ends: Mapping[int, int]) -> ParkedTable:
    """All of a topic that was made again waits."""
    return ParkedTable(because=because, from_offsets=dict.fromkeys(ends, 0), to_offsets=dict(ends))


def unaccounted(
    read_to: Mapping[str, Mapping[int, int]], written: Collection[str], progress: SinkProgress
) -> list[str]:
    """Topics of which a batch has read events that nothing has: no commit took them in, and they do not wait in Kafka.

    ``read_to``: by topic and Kafka partition, after the last event. ``written``: topics of tables whose part is in the
    warehouse, or that a policy passes over. ``progress``: as the batch leaves it.
    """
    lost = []
    for topic, ends in read_to.items():
        known = progress.tables.get(topic)
        waits_to = {} if known is None or known.parked is None else known.parked.to_offsets
        if topic not in written and any(waits_to.get(partition, 0) < end for partition, end in ends.items()):
            lost.append(topic)
    return lost


def outside_ranges(ranges: Mapping[str, OffsetRange], read: Iterable[Slice]) -> list[str]:
    """Topics of which a batch has other records than its offsets say: from outside of them, or more than they hold.

    ``ranges``: by topic, the offsets that the batch was to read, and that count as read when it is done.
    """
    wrong, rows = set(), Counter[str]()
    for part in read:
        begins, ends = ranges.get(part.topic, ({}, {}))
        rows[part.topic] += part.rows
        begin_early = any(first < begins.get(partition, 0) for partition, first in part.from_offsets.items())
        if begin_early or any(end > ends.get(partition, 0) for partition, end in part.to_offsets.items()):
            wrong.add(part.topic)
    for topic, count in rows.items():
        begins, ends = ranges.get(topic, ({}, {}))
        if count > sum(end - begins.get(partition, 0) for partition, end in ends.items()):
            wrong.add(topic)
    return sorted(wrong)


def broken_off(
    tenant: str,
    table: str,
    known: Standing,
    found: Standing | None,
    batch: BatchIdentity,
    mode: SinkMode,
    *,
    is_resynced: bool = False,
    accepts_losses: bool = False,
) -> str | None:
    """Why a table that is ``found`` in the warehouse cannot take ``batch``; None: it can.

    ``known``: as the sink left it. Of a query that began again it says nothing: that reads the topics from their begin.
    ``is_resynced``: it is replaced by one built from its topic. ``accepts_losses``: lost events may be missing.
    """
    known_batch, found_batch = _identity(known.batch), None if found is None else _identity(found.batch)
    if found_batch is not None and found_batch.query_id == batch.query_id and found_batch.batch_id > batch.batch_id:
        return (
            f"{table}: the warehouse has batch {found_batch.batch_id}, and the sink's checkpoint stands at {batch.batch_id}: "
            f"an older checkpoint was put back. Stop the job, remove checkpoints/{tenant} and progress/{tenant}.json below its "
            "state_dir (docs/sinks/repair.md, 'Write tables again'), and start it; a log it then refuses by name, with "
            "its remedy"
        )
    if is_resynced or found_batch == batch:
        return None
    if known_batch is None or known_batch.query_id != batch.query_id:
        if mode is SinkMode.APPEND and found_batch is not None and found_batch.query_id != batch.query_id:
            return (
                f"{table}: the table has batches of another query ({found_batch.query_id}): the sink's checkpoint was removed, "
                "or is another tenant's. Read from its begin, the topic would bring each event to the log once more; "
                f"{_resync(tenant, table)}, which writes each once"
            )
        return None
    if accepts_losses:
        return None
    if found is None:
        return (
            f"{table}: the table is gone from the warehouse, and the sink had written it up to batch {known_batch.batch_id}; "
            f"put it back, or {_resync(tenant, table)}"
        )
    if known.id and found.id and known.id != found.id:
        return (
            f"{table}: the warehouse has another table of that name ({found.id}) than the one that the sink wrote "
            f"({known.id}); put that one back, or {_resync(tenant, table)}"
        )
    if found_batch is None or found_batch.query_id != batch.query_id or found_batch.batch_id < known_batch.batch_id:
        newest = "no batch" if found_batch is None else f"batch {found_batch}"
        return (
            f"{table}: the table was set back: the sink had written it up to batch {known_batch}, and it has {newest} now; "
            f"undo that, or {_resync(tenant, table)}"
        )
    return None


def _resync(tenant: str, table: str) -> str:
    return f"have the table built again: headwater resync {tenant} {table}"


def _identity(batch: str) -> BatchIdentity | None:
    query_id, _, batch_id = batch.rpartition(":")
    return BatchIdentity(query_id, int(batch_id)) if batch_id else None
