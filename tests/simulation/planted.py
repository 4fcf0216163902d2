"""Bugs that the simulations must find: one for each that tests/faults was written for, and those of the issues' lists.

Each is a line of the product changed. A simulation that does not find it within ``seeds`` seeds has become blind; that the code
as it is passes the same seeds, the tests say beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.mysql import watermarks
from libs.source import follow, publisher, transactional_producer
from libs.source.mysql import snapshot
from services.binlog_reader import incremental
from services.checkpoint_committer import leases
from services.router.kafka import writer
from services.router.lane import lane, lanes
from services.router.lane import worker as lane_worker
from services.router.stragglers import missed_batches
from services.router.stragglers import turns as straggler_turns
from spark.pending import progress, retries, tries
from tests.simulation import router
from tests.simulation.mutate import Edit


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug."""

    name: str
    simulation: str
    """Which is to find it."""
    edits: Sequence[Edit]
    kin: str
    """The test of processes that kills for the same reason, or the issue."""
    seeds: Sequence[int] = range(120)
    """One of these finds it."""
    in_gate: bool = True
    """Else it takes so many that ``python -m tests.simulation --planted`` alone looks for it."""


_SLOW = range(router.PROFILES.index("slow"), 600, len(router.PROFILES))
"""Seeds whose runs have more of one thing."""

_KILLS = "tests/faults/test_router_kills.py"
_STRAGGLERS = "tests/faults/test_router_straggler_kills.py"
_AWAITED = "tests/faults/test_router_awaited.py"

ROUTER = (
    Planted(
        "an offset above the batches that are written",
        "router",
        (
            Edit(
                lane_worker.LaneWorker,
                "route",
                "(done == first or time.monotonic() - began_s < _MAX_WRITING_S)",
                "time.monotonic() - began_s < _MAX_WRITING_S",
            ),
            Edit(
                lane_worker.LaneWorker,
                "route",
                "next_offset = self._offset_after(fresh[first:done], plan)",
                "next_offset = fresh[done - 1].offset + 1",
            ),
        ),
        "tests/unit/router/test_lane_offsets.py: a backlog that took longer than a transaction may write",
        seeds=_SLOW,
    ),
    Planted(
        "records and offset in two transactions",
        "router",
        (
            Edit(
                lane_worker.LaneWorker,
                "_commit",
                'await self._writer.send_gathered()\n    failpoint("router_after_produce_before_offsets")',
                'await self._writer.commit()\n    failpoint("router_after_produce_before_offsets")\n'
                "    await self._writer.begin()",
            ),
        ),
        f"{_KILLS}, after produce and before offsets",
    ),
    Planted(
        "the committed offset is read before the old owner is fenced",
        "router",
        (
            Edit(
                lane.Lane,
                "_follow",
                "writer = await TransactionWriter.open(shared.kafka, shared.group, place, shared.settings)\n    try:\n"
                "        next_offset = _committed_offset(place, shared)",
                "next_offset = _committed_offset(place, shared)\n"
                "    writer = await TransactionWriter.open(shared.kafka, shared.group, place, shared.settings)\n    try:",
            ),
        ),
        f"{_KILLS}, a frozen router that wakes",
        # One in some two thousand such runs shows it: the first that does, and others after it.
        seeds=range(10_177, 12_000, len(router.PROFILES)),
    ),
    Planted(
        "an offset is read whose transaction is not decided",
        "router",
        (Edit(lane, "_committed_offset", '"read_committed"', '"read_uncommitted"'),),
        f"{_KILLS}, after offsets and before commit",
    ),
    Planted(
        "batches of an older assignment are taken",
        "router",
        (
            Edit(
                lanes.Lanes,
                "offer",
                "lane is not None and lane.assignment.generation == generation",
                "lane is not None",
            ),
        ),
        f"{_KILLS}, the partition of a killed router",
        # One in some hundred such runs shows it.
        seeds=range(709, 1_400, len(router.PROFILES)),
    ),
    Planted(
        "each process has a transactional id of its own",
        "router",
        (
            Edit(
                writer.TransactionWriter,
                "open",
                'f"{group}-{place.topic}-{place.partition}{part}"',
                'f"{group}-{place.topic}-{place.partition}{part}-{time.monotonic()}"',
            ),
        ),
        f"{_KILLS}, a frozen router that wakes",
    ),
    Planted(
        "a commit does not look at acknowledgements",
        "router",
        (
            Edit(
                writer.TransactionWriter,
                "_acknowledged",
                "self._settle(",
                "(lambda *_, **__: self._in_flight.clear())(",
            ),
        ),
        "aiokafka commits although a batch was refused",
    ),
    Planted(
        "a tenant falls behind without its cursor",
        "router",
        (Edit(lane_worker.LaneWorker, "_commit", "in plan.left.items():", "in ():"),),
        f"{_STRAGGLERS}, after leaving",
    ),
    Planted(
        "a tenant that comes back keeps its cursor",
        "router",
        (Edit(lane_worker.LaneWorker, "_commit", "plan.joining.keys() - plan.left.keys() | self", "self"),),
        f"{_STRAGGLERS}, when a tenant comes back",
    ),
    Planted(
        "a tenant that comes back lacks what it missed",
        "router",
        (Edit(lane_worker.LaneWorker, "_write_backlogs", "in plan.backlogs.items():", "in ():"),),
        f"{_STRAGGLERS}, when a tenant comes back",
    ),
    Planted(
        "a straggler's records and cursor in two transactions",
        "router",
        (
            Edit(
                straggler_turns.StragglerTurns,
                "take",
                'await writer.send_gathered()\n        failpoint("router_straggler_after_produce_before_offset")',
                'await writer.commit()\n        failpoint("router_straggler_after_produce_before_offset")\n'
                "        await writer.begin()",
            ),
        ),
        f"{_STRAGGLERS}, after produce and before the cursor",
    ),
    Planted(
        "cursors are read before their old owner is fenced",
        "router",
        (
            Edit(
                lane.Lane,
                "_follow",
                "            stragglers.open()  # nobody else moves cursors from now on\n"
                "            found = find_stragglers(shared.kafka, shared.group, place)\n",
                "            found = find_stragglers(shared.kafka, shared.group, place)\n"
                "            stragglers.open()\n",
            ),
        ),
        f"{_STRAGGLERS}, at random",
        seeds=range(1_500),
        in_gate=False,
    ),
    Planted(
        "a straggler goes on above the lane's offset",
        "router",
        (
            Edit(
                missed_batches.MissedBatches,
                "_fetch",
                "[batch for batch in batches if batch.offset < end]",
                "batches",
            ),
            Edit(missed_batches.MissedBatches, "_fetch", "if offset + 1 >= end:", "if offset > end:"),
        ),
        f"{_STRAGGLERS}, at random",
        seeds=range(1_500),
        in_gate=False,
    ),
    Planted(
        "a batch awaits no other partition",
        "router",
        (Edit(lane.Lane, "_await_others", "if not ends:", "if True:"),),
        f"{_AWAITED}, what another partition holds comes first",
    ),
    Planted(
        "a tenant that is behind elsewhere passes",
        "router",
        (Edit(lane.Lane, "_await_others", "lacking = passed.behind(ends)", "lacking = ()"),),
        f"{_AWAITED}, a tenant that lags in one partition",
    ),
    Planted(
        "a straggler awaits no other partition",
        "router",
        (Edit(straggler_turns.StragglerTurns, "_passed", "if ends and not", "if False and not"),),
        f"{_AWAITED}, a tenant that lags in one partition",
    ),
)

_READERS = "tests/integration/test_publisher.py, test_binlog_reader.py: readers that are killed and frozen"

OWNERSHIP = (
    Planted(
        "the checkpoint is read before the old owner is fenced",
        "ownership",
        (
            Edit(
                follow,
                "_follow_once",
                "await publisher.start()\n        await publisher.require_no_open_transaction()\n"
                "        checkpoint = await committer.checkpoint(partition)",
                "checkpoint = await committer.checkpoint(partition)\n        await publisher.start()",
            ),
        ),
        _READERS,
        seeds=range(100, 300),
    ),
    Planted(
        "events and checkpoint in two transactions",
        "ownership",
        (
            Edit(
                publisher._Transactions,
                "_commit",
                "self._producer.produce(CHECKPOINTS_TOPIC",
                "self._producer.commit()\n    self._producer.begin()\n    self._producer.produce(CHECKPOINTS_TOPIC",
            ),
        ),
        _READERS,
    ),
    Planted(
        "each reader has a transactional id of its own",
        "ownership",
        (
            Edit(
                transactional_producer.TransactionalProducer,
                "__init__",
                'f"headwater-reader-{partition.source}-{partition.name}"',
                'f"headwater-reader-{partition.source}-{partition.name}-{time.monotonic()}"',
            ),
        ),
        _READERS,
    ),
    Planted(
        "a takeover grants the token of the owner before",
        "ownership",
        (Edit(leases, "decide_grant", "FencingToken(newest_token + 1)", "FencingToken(max(newest_token, 1))"),),
        "tests/integration/test_checkpoint_committer.py: tokens of a takeover",
    ),
)

_WINDOWS = "tests/integration/test_incremental_snapshot.py: a copy beside writes, and its reader killed"

WINDOWS = (
    Planted(
        "a read has the order of the change before it",
        "windows",
        (Edit(snapshot, "append_rows", "first_order=view.order.after()", "first_order=view.order"),),
        "a copy whose order is below a change that it holds",
    ),
    Planted(
        "rows that the window shows stay in the chunk",
        "windows",
        (Edit(incremental.IncrementalCopy, "_take_out", "del chunk.rows[identity]", "pass"),),
        _WINDOWS,
    ),
    Planted(
        "the low watermark lacks what the log has shown",
        "windows",
        (
            Edit(
                incremental,
                "read_between_watermarks",
                "if not low.is_superset(seen):\n        query(connection",
                "if False:\n        query(connection",
            ),
        ),
        _WINDOWS,
    ),
    Planted(
        "a window closes at its low watermark",
        "windows",
        (
            Edit(
                watermarks,
                "set_high",
                "high=executed.subtract(window.low), unseen=executed.union(window.low).subtract(seen)",
                "high=executed.subtract(executed), unseen=window.low.subtract(seen)",
            ),
        ),
        _WINDOWS,
    ),
    Planted(
        "the high watermark is taken before the rows",
        "windows",
        (
            Edit(
                incremental,
                "read_between_watermarks",
                "chunk.window = set_high(chunk.window, executed_gtids(connection), seen)",
                "chunk.window = set_high(chunk.window, low, seen)",
            ),
        ),
        _WINDOWS,
    ),
    Planted(
        "progress is kept before the chunk is delivered",
        "windows",
        (
            Edit(
                incremental.IncrementalCopy,
                "take_chunk",
                "    self.chunk = chunk\n    self.is_due = caught_up",
                "    self.chunk = chunk\n    self.is_due = caught_up\n"
                "    self.state = chunk_delivered(self.state, chunk.copy, is_last=False)",
            ),
        ),
        _WINDOWS,
    ),
)

_SINKS = "tests/faults/test_sink_kills.py: a job that dies in the tries of a parked table"

SINK = (
    Planted(
        "a try of a parked table is not noted",
        "sink",
        (Edit(tries.Tries, "begin", "store_progress(self.state_dir, self._stored)", "pass"),),
        _SINKS,
    ),
    Planted(
        "a try that the warehouse has is made again",
        "sink",
        (Edit(tries, "settle", "tables[topic] = table_behind(tables[topic], tried)", "pass"),),
        _SINKS,
    ),
    Planted(
        "a try that nobody knows is forgotten",
        "sink",
        (Edit(tries, "settle", "unknown[topic] = tried", "pass"),),
        _SINKS,
    ),
    Planted(
        "tries end with their batch",
        "sink",
        (
            Edit(
                progress,
                "with_batch",
                "for topic, each in tries.items() if topic not in written",
                "for topic, each in ()",
            ),
        ),
        _SINKS,
    ),
    Planted(
        "a piece of what waits is written, and waits yet",
        "sink",
        (
            Edit(
                retries,
                "left_behind",
                "from_offsets = joined_offsets(waiting.from_offsets, ends, choose=max)",
                "from_offsets = waiting.from_offsets",
            ),
        ),
        "tests/integration/test_parked_tables.py: a parked table is caught up piece by piece",
    ),
    Planted(
        "events that join a parked table are passed over",
        "sink",
        (
            Edit(
                retries,
                "with_joined",
                "to_offsets=joined_offsets(to_offsets, waiting.to_offsets, choose=max)",
                "to_offsets=waiting.to_offsets",
            ),
        ),
        "tests/integration/test_parked_tables.py: what comes meanwhile waits, too",
    ),
    Planted(
        "events that joined since a try are passed over",
        "sink",
        (Edit(tries, "table_behind", "parked=left_behind(waiting, tried.ends)", "parked=after"),),
        _SINKS,
    ),
)

PLANTED: Sequence[Planted] = (*ROUTER, *OWNERSHIP, *WINDOWS, *SINK)
