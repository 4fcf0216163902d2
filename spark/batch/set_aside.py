"""Events that the warehouse refuses, and later ones of their keys: set aside as dead letters; the rest of a batch goes on.

A batch is written as if all were well; nothing is looked for before a write has failed for a value. Then the events of the
table are searched for values that do not fit (``unfit_values``, or the warehouse itself: ``NamesRefusedRows``). The first
such event of
a key is refused and its key parked: that event and all later ones of the key, in this batch and in those to come, become dead
letters, until a ``ReplayRequest`` takes them up again, in order.

    write ▶ refused? ▶ find ▶ write letters ▶ store parked keys ▶ write the rest
"""

import functools
import itertools
import operator
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from libs.failpoints import failpoint
from libs.sink_state.parked_keys import ParkedKey, ParkedKeysOfTable, ReplayAnswer
from libs.types.tenant import Images, SinkMode
from spark.batch.context import BatchContext
from spark.batch.table_batch import (
    TableBatch,
    events_with_places,
    is_whole_mirror,
    parts_of,
    placed_changes,
)
from spark.jvm.errors import OF_ONE_ROW, has_condition
from spark.pending.letters import Held, write_letters
from spark.pending.progress import SetAside
from spark.pending.replays import Replay
from spark.sinks.port import NamesRefusedRows, RowsRefused, SinkTable, TableRefused
from spark.transforms.key_text import KEY_TEXT_COLUMN, key_text
from spark.transforms.local_rows import local_rows
from spark.transforms.log_images import before_images
from spark.transforms.unfit_values import UNFIT_COLUMN, find_unfit
from spark.transforms.warehouse_columns import TableColumn

# Each finds all that can be found by then; a warehouse may refuse more once Spark's own casts are through.
_ROUNDS: Final = 5

_LETTERS_LEFT_OUT_AT_ONCE: Final = 1_000

_REMEDY: Final = "mend the row at the source, or the column; then `headwater dead-letter replay`"

_POLICY_REMEDY: Final = (
    "the tenant's sink.schema_changes keeps columns as they are: let column_widened be evolve or lenient there, or "
    + _REMEDY
)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first event of a key that cannot be written."""

    event_key: str
    reason: str
    kafka_partition: int
    offset: int
    order: str


@dataclass(frozen=True, slots=True)
class _Found:
    """The cause found for a failed write."""

    refused: Mapping[str, Refusal]
    """By key text."""
    superseded: Mapping[str, str]
    """By key text: an order whose event replaces all earlier ones, so that those may be unfit."""
    left_out: frozenset[tuple[int, int]]
    """Places of letters that a replay gives up."""


_NOTHING: Final = _Found({}, {}, frozenset())

Write = Callable[[TableBatch], None]


def write_fitting_rows(
    context: BatchContext,
    table: TableBatch,
    wanted: SinkTable,
    columns: Mapping[str, TableColumn],
    write: Write,
    *,
    is_held_back: bool,
) -> SetAside:
    """``write`` the table's events but for those that the warehouse refuses, and that wait for such.

    The letters and the parked keys are durable before ``write`` commits. ``is_held_back``: the tenant's policies keep some
    of the table's columns as they are.

    Raises:
        TableRefused: too many keys are parked.
        PySparkException, Py4JJavaError, RowsRefused: ``write`` failed for something else.
    """
    state = context.pending.parked_keys.of_table(table.topic, context.batch)
    released = {} if table.replay is None else table.replay.released
    parked = {text: key for text, key in state.keys.items() if text not in released}
    found = _NOTHING
    for _ in range(_ROUNDS):
        is_whole = not parked and found == _NOTHING
        try:
            if is_whole and table.replay is None:
                write(table)
                return SetAside(0, 0, 0, 0)
            kept, aside = _set_aside(context, table, wanted, state, parked, found)
            write(kept)
            return aside
        except (PySparkException, Py4JJavaError, RowsRefused) as error:
            left = table if is_whole else _without(table, parked, found)
            remedy = _POLICY_REMEDY if is_held_back else _REMEDY
            unfit = _unfit_events(context, left, wanted, columns, error, remedy)
            more = _judged(unfit, table, context, error, at_most=context.limits.parked_keys)
            if more == _NOTHING:
                raise
            found = _joined(found, more)
            if len(parked) + len(found.refused) > context.limits.parked_keys:
                raise TableRefused(
                    f"{wanted.table}: more than {context.limits.parked_keys} keys would be parked (max_parked_keys), the last "
                    f"because {list(found.refused.values())[-1].reason}"
                ) from error
    raise TableRefused(f"{wanted.table}: the warehouse refuses rows, but after {_ROUNDS} tries it is not known which")


def _joined(found: _Found, more: _Found) -> _Found:
    """Of two refusals of a key the earlier one."""
    refused = dict(found.refused)
    for text, refusal in more.refused.items():
        known = refused.get(text)
        refused[text] = refusal if known is None or refusal.order < known.order else known
    superseded = {text: max(order, found.superseded.get(text, "")) for text, order in more.superseded.items()}
    return _Found(refused, {**found.superseded, **superseded}, found.left_out | more.left_out)


# --- which events do not fit -------------------------------------------------------------------------------------------


def _unfit_events(
    context: BatchContext,
    table: TableBatch,
    wanted: SinkTable,
    columns: Mapping[str, TableColumn],
    error: BaseException,
    remedy: str,
) -> DataFrame:
    """All events with ``unfit``: the reason, or NULL. Raises ``error`` where no row is the cause."""
    spark = table.events.sparkSession
    events = _keyed(table)
    if isinstance(error, RowsRefused):
        if not isinstance(context.sink, NamesRefusedRows):
            raise error
        changes = placed_changes(table, columns)
        rows = context.sink.refused_rows(spark, wanted, changes, at_most=context.limits.parked_keys)
        places = [(row.kafka_partition, row.offset, row.because) for row in rows]
        frame = local_rows(spark, places, f"kafka_partition int, offset bigint, {UNFIT_COLUMN} string")
        return events.join(sf.broadcast(frame), ["kafka_partition", "offset"], "left")
    if not any(has_condition(error, condition) for condition in OF_ONE_ROW):
        raise error
    images = [table]
    if context.settings.images is Images.BEFORE_AND_AFTER:
        images.append(replace(table, events=before_images(table.events)))
    parts = []
    for each, (part, schema) in itertools.product(images, parts_of(table)):
        found = (
            events_with_places(each, part, is_partial=bool(part.partial_rows))
            .transform(find_unfit(columns, schema))
            .select("kafka_partition", "offset", _reason(columns, remedy).alias(UNFIT_COLUMN))
        )
        parts.append(found.where(sf.col(UNFIT_COLUMN).isNotNull()))
    unfit = functools.reduce(DataFrame.unionByName, parts).dropDuplicates(["kafka_partition", "offset"])
    return events.join(unfit, ["kafka_partition", "offset"], "left")


def _reason(columns: Mapping[str, TableColumn], remedy: str) -> Column:
    names = sf.col(UNFIT_COLUMN)
    types = sf.create_map(
        *(sf.lit(part) for name, column in columns.items() for part in (name, f"{name} ({column.sql_type})"))
    )
    described = sf.array_join(sf.transform(names, lambda name: sf.coalesce(types[name], name)), ", ")
    text = sf.when(sf.size(names) == 0, sf.lit(f"the event is malformed; {remedy}")).otherwise(
        sf.concat(sf.lit("a value does not fit: column "), described, sf.lit(f"; {remedy}"))
    )
    return sf.when(names.isNotNull(), text)


def _judged(
    events: DataFrame, table: TableBatch, context: BatchContext, error: BaseException, *, at_most: int
) -> _Found:
    """Of each key that has unfit events the first to be refused."""
    bad = sf.struct("order", "kafka_partition", "offset", sf.col("key").alias("event_key"), UNFIT_COLUMN)
    is_bad = sf.col(UNFIT_COLUMN).isNotNull()
    rows = (
        events.groupBy(KEY_TEXT_COLUMN)
        .agg(
            sf.max(sf.when(~is_bad, sf.col("order"))).alias("last_good"),
            sf.array_sort(sf.collect_list(sf.when(is_bad, bad))).alias("bad"),
        )
        .where(sf.size("bad") > 0)
        .withColumn("bad", sf.slice("bad", 1, _LETTERS_LEFT_OUT_AT_ONCE))
        .limit(at_most + 1)
        .collect()
    )
    # Of whole rows a mirror needs the last one only.
    last_counts = context.settings.mode is SinkMode.MIRROR and is_whole_mirror(table)
    gives_up = table.replay is not None and table.replay.leaves_out_refused
    refused, superseded, left_out = {}, {}, set()
    for row in rows:
        unfit = [each for each in row.bad if not (last_counts and row.last_good and each.order < row.last_good)]
        if len(unfit) < len(row.bad):
            superseded[row.key_text] = row.last_good
        letters = [each for each in unfit if gives_up and not table.is_fresh(each.kafka_partition, each.offset)]
        left_out |= {(each.kafka_partition, each.offset) for each in letters}
        first = next((each for each in unfit if each not in letters), None)
        if first is not None:
            refused[row.key_text] = Refusal(
                first.event_key or "", first[UNFIT_COLUMN], first.kafka_partition, first.offset, first.order
            )
    return _Found(refused, superseded, frozenset(left_out))


# --- setting aside -----------------------------------------------------------------------------------------------------


def _keyed(table: TableBatch) -> DataFrame:
    schemas = [schema.table_schema for schema in table.schemas.values()]
    return table.events.where(sf.col("topic") == table.topic).withColumn(KEY_TEXT_COLUMN, key_text(schemas))


def _bounds(table: TableBatch, parked: Mapping[str, ParkedKey], found: _Found) -> DataFrame:
    """By key text: events from ``from_order`` on wait; those below ``below_order`` are not needed."""
    spark, never = table.events.sparkSession, "~"  # after every order
    texts = {**dict.fromkeys(found.superseded, never), **{t: r.order for t, r in found.refused.items()}}
    for text, key in parked.items():
        # Parked by this very batch, which was cut off: events before the refused one are still to be written.
        texts[text] = key.order if table.is_fresh(key.kafka_partition, key.offset) else ""
    rows = [(text, order, found.superseded.get(text, "")) for text, order in texts.items()]
    return local_rows(spark, rows, f"{KEY_TEXT_COLUMN} string, from_order string, below_order string")


def _without(table: TableBatch, parked: Mapping[str, ParkedKey], found: _Found) -> TableBatch:
    """The events that are to be written."""
    spark, events = table.events.sparkSession, _keyed(table)
    bounds = sf.broadcast(_bounds(table, parked, found))
    order = events["order"]
    is_out = (events[KEY_TEXT_COLUMN] == bounds[KEY_TEXT_COLUMN]) & (
        (order >= bounds["from_order"]) | (order < bounds["below_order"])
    )
    kept = events.join(bounds, is_out, "left_anti").drop(KEY_TEXT_COLUMN)
    if found.left_out:
        places = local_rows(spark, sorted(found.left_out), "kafka_partition int, offset bigint")
        kept = kept.join(sf.broadcast(places), ["kafka_partition", "offset"], "left_anti")
    return replace(table, events=kept)


def _set_aside(
    context: BatchContext,
    table: TableBatch,
    wanted: SinkTable,
    state: ParkedKeysOfTable,
    parked: Mapping[str, ParkedKey],
    found: _Found,
) -> tuple[TableBatch, SetAside]:
    """Write letters and state of waiting events; returns the rest of the table."""
    spark, events = table.events.sparkSession, _keyed(table)
    bounds = sf.broadcast(_bounds(table, parked, found))
    held = events.join(bounds, KEY_TEXT_COLUMN).where(sf.col("order") >= sf.col("from_order"))
    known = {**parked, **(table.replay.released if table.replay else {})}
    seen = local_rows(
        spark,
        [(text, key.kafka_partition, key.last_offset) for text, key in known.items()],
        f"{KEY_TEXT_COLUMN} string, kafka_partition int, last_offset bigint",
    )
    held = held.join(sf.broadcast(seen), [KEY_TEXT_COLUMN, "kafka_partition"], "left").withColumn(
        "is_new", _is_fresh(table) & (sf.col("last_offset").isNull() | (sf.col("offset") > sf.col("last_offset")))
    )
    counts = {
        row[KEY_TEXT_COLUMN]: row
        for row in held.groupBy(KEY_TEXT_COLUMN)
        .agg(sf.count("*").alias("events"), sf.count_if("is_new").alias("new"), sf.max("offset").alias("last_offset"))
        .collect()
    }
    keys = {
        **{text: _longer(key, counts.get(text)) for text, key in parked.items()},
        **{text: _newly_parked(refusal, counts[text]) for text, refusal in found.refused.items() if text in counts},
    }
    held_count = sum(row["events"] for row in counts.values()) + len(found.left_out)
    letters = sum(row["new"] for row in counts.values())
    has_waiting_truncations = bool(keys) and wanted.mode is not SinkMode.APPEND and bool(wanted.key)
    places = held.where("is_new").select(*_PLACE)
    if has_waiting_truncations and any(part.newest_keyless is not None for part in table.fresh):
        places = places.unionByName(events.where(sf.col("key").isNull() & _is_fresh(table)).select(*_PLACE))
        letters += 1
    if letters:
        ranges = Held(places, *table.fresh_range)
        newest = table.newest
        letters = write_letters(spark, context.kafka, context.tenant, newest, ranges, functools.partial(_why, keys))
        log.warning("events_dead_lettered", table=wanted.table, events=letters, parked_keys=len(keys))
    failpoint("sink_after_letters_before_parked_keys")
    answers = dict(state.answers)
    if table.replay is not None:
        for request in table.replay.requests:
            met = [text for text in state.keys if not request.keys or text in request.keys]
            answers[request.id] = ReplayAnswer(
                batch_id=context.batch.batch_id, keys=len(met), refused=sum(text in keys for text in met)
            )
    if table.replay is not None or keys != state.keys:
        released = {} if table.replay is None else table.replay.released
        now = ParkedKeysOfTable(keys=keys, released=released, released_by=context.batch.batch_id, answers=answers)
        context.pending.parked_keys.store(table.topic, context.batch, now)
    failpoint("sink_after_parked_keys_before_merge")
    return _without(table, parked, found), SetAside(
        held_count, letters, len(keys), sum(key.letters for key in keys.values())
    )


_PLACE: Final = ("kafka_partition", "offset", "order", "op", "schema_version", KEY_TEXT_COLUMN)


def _is_fresh(table: TableBatch) -> Column:
    """Of an event: this batch read it from the table's topic, and not from the dead letters."""
    from_offsets, _ = table.fresh_range
    ranges = [
        (sf.col("kafka_partition") == partition) & (sf.col("offset") >= offset)
        for partition, offset in from_offsets.items()
    ]
    return functools.reduce(operator.or_, ranges, sf.lit(False))


def _longer(key: ParkedKey, counted: object) -> ParkedKey:
    if counted is None:
        return key
    return msgspec.structs.replace(
        key,
        letters=key.letters + counted["new"],  # type: ignore[index]
        last_offset=max(key.last_offset, counted["last_offset"]),  # type: ignore[index]
    )


def _newly_parked(refusal: Refusal, counted: object) -> ParkedKey:
    return ParkedKey(
        event_key=refusal.event_key,
        reason=refusal.reason,
        kafka_partition=refusal.kafka_partition,
        offset=refusal.offset,
        order=refusal.order,
        parked_at_us=time.time_ns() // 1_000,
        last_offset=counted["last_offset"],  # type: ignore[index]
        letters=counted["events"],  # type: ignore[index]
    )


def _why(keys: Mapping[str, ParkedKey], text: str, kafka_partition: int, offset: int) -> tuple[str, int | None]:
    key = keys.get(text)
    if key is None:
        return "TRUNCATE: the table was emptied; rows of parked keys from before it must not come back", min(
            each.offset for each in keys.values()
        )
    if (kafka_partition, offset) == (key.kafka_partition, key.offset):
        return key.reason, None
    return key.reason, key.offset


def letters_of(letters: DataFrame, replay: Replay, table: TableBatch) -> tuple[DataFrame, dict[str, ParkedKey]]:
    """Of a table's ``letters``, as events, those of the released keys that still wait, and truncations that came after them.

    With the keys of which every letter is there: of others Kafka has deleted some, and the rest is no whole story. Where
    the replay gives up refused events, it gives those up too.
    The table's own batch holds none of them: a batch that was cut off has written its letters already.
    """
    schemas = [schema.table_schema for schema in table.schemas.values()]
    keyed = letters.withColumn(KEY_TEXT_COLUMN, key_text(schemas))
    spark = letters.sparkSession
    rows = [(text, key.kafka_partition, key.offset, key.order) for text, key in replay.released.items()]
    bounds = local_rows(
        spark, rows, f"{KEY_TEXT_COLUMN} string, parked_partition int, parked_offset bigint, parked_order string"
    )
    is_waiting = sf.when(
        sf.col("kafka_partition") == sf.col("parked_partition"), sf.col("offset") >= sf.col("parked_offset")
    ).otherwise(sf.col("order") >= sf.col("parked_order"))
    waiting = keyed.join(sf.broadcast(bounds), KEY_TEXT_COLUMN).where(is_waiting & ~_is_fresh(table))
    counts = {row[0]: row[1] for row in waiting.groupBy(KEY_TEXT_COLUMN).count().collect()}
    whole = {
        text: key
        for text, key in replay.released.items()
        if replay.leaves_out_refused or counts.get(text, 0) >= key.letters
    }
    chosen = waiting.where(sf.col(KEY_TEXT_COLUMN).isin(list(whole))).select(*letters.columns)
    is_truncation = sf.col("key").isNull() & sf.col("image").isNull()
    oldest = min((key.order for key in whole.values()), default="~")
    truncations = letters.where(is_truncation & (sf.col("order") > oldest) & ~_is_fresh(table))
    return chosen.unionByName(truncations), whole
