"""The state built from the log: every state in force can be written down and read again."""

from hypothesis import given
from hypothesis import strategies as st

from libs.kafka.tail import LogRecord
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from services.checkpoint_committer.leases import Lease
from services.checkpoint_committer.log import Entry, decode, encode
from services.checkpoint_committer.partitions import Partitions
from services.checkpoint_committer.service import reset_entries

ERP = SourcePartition(source="erp", name="0")
CRM = SourcePartition(source="crm", name="ks/-80")
START = SourcePosition(source_kind="mysql", token=b"start")

partitions_asked = st.sampled_from([ERP, CRM])


def checkpoint(rank: int, token: int, partition: SourcePartition = ERP) -> Checkpoint:
    return Checkpoint(
        partition=partition,
        position=SourcePosition(source_kind="mysql", token=b"%d" % rank),
        order=EventOrder(epoch=0, rank=rank, tx_ordinal=1),
        fencing_token=FencingToken(token),
        committed_at_us=0,
        published_at_us=0,
    )


def lease(token: int, partition: SourcePartition = ERP) -> Lease:
    return Lease(
        partition=partition, owner=f"owner-{token}", fencing_token=FencingToken(token), granted_at_us=0, lease_ms=1000
    )


class Log:
    """Entries, and the state that they lead to."""

    def __init__(self, *entries: Entry) -> None:
        self.partitions = Partitions()
        self.add(*entries)

    def add(self, *entries: Entry) -> None:
        for entry in entries:
            record = encode(entry)
            self.partitions.apply(LogRecord(0, 0, record.key, record.value))

    def reset(self, partition: SourcePartition, position: SourcePosition | None) -> None:
        state = self.partitions.state(partition)
        self.add(*reset_entries(partition, state, position, reason="test", now_us=0))


steps = st.lists(
    st.one_of(
        st.builds(checkpoint, st.integers(0, 9), st.integers(1, 4), partitions_asked),
        st.builds(lease, st.integers(1, 4), partitions_asked),
        st.tuples(partitions_asked, st.sampled_from([None, START])),
    ),
    max_size=25,
)


@given(taken=steps)
def test_what_is_in_force_leads_to_the_same_state_again(
    taken: list[Checkpoint | Lease | tuple[SourcePartition, SourcePosition | None]],
) -> None:
    """So a start from the Redis view equals a start from the log."""
    log = Log()
    for step in taken:
        if isinstance(step, tuple):
            log.reset(*step)
        else:
            log.add(step)

    again = Log(*log.partitions.entries())

    for partition in (ERP, CRM):
        before, after = log.partitions.state(partition), again.partitions.state(partition)
        assert after.standing == before.standing
        assert after.newest_token == before.newest_token
        assert after.reset == before.reset
        assert (after.holding and after.holding.lease) == (before.holding and before.holding.lease)


def test_entries_survive_the_log_and_names_with_slashes_too() -> None:
    """A shard's name may hold slashes; a source's may not."""
    log = Log(checkpoint(1, 1, CRM), lease(1, CRM))
    log.reset(CRM, None)

    for entry in log.partitions.entries():
        record = encode(entry)
        assert decode(record.key, record.value) == entry
    assert log.partitions.state(CRM).standing.checkpoint is None


def test_a_reset_takes_effect_in_whatever_order_its_records_arrive() -> None:
    """They may lie in different Kafka partitions."""
    log = Log(checkpoint(9, 1))
    entries = reset_entries(ERP, log.partitions.state(ERP), START, reason="test", now_us=0)
    forwards, backwards = Log(checkpoint(9, 1), *entries), Log(checkpoint(9, 1), *reversed(entries))

    assert forwards.partitions.state(ERP).standing == backwards.partitions.state(ERP).standing
    found = forwards.partitions.state(ERP).standing.checkpoint
    assert found is not None
    assert (found.position, found.fencing_token) == (START, 2)


def test_a_record_of_nobody_changes_nothing() -> None:
    """It is logged and passed over: one stray record must not stop every reader."""
    log = Log(checkpoint(1, 1))
    before = log.partitions.state(ERP)

    log.partitions.apply(LogRecord(0, 5, b"erp/0", b"\xff\xff"))
    log.partitions.apply(LogRecord(0, 6, b"\xff", None))

    assert log.partitions.state(ERP) == before
