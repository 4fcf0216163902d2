"""Events of many small tables in the driver's memory, and their decoder there (``small_tables``)."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from libs.errors import PipelineHalted
from libs.types.table import TableSchema
from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import OP_COLUMN, own_columns
from spark.jvm.java import compiled, java_class
from spark.transforms.conform_to import conform_to
from spark.transforms.mark_deleted import mark_deleted
from spark.transforms.parse_events import parse_events
from spark.transforms.parse_keys import key_columns, parse_keys
from spark.transforms.sql_text import quoted
from spark.transforms.warehouse_columns import TableColumn

MOST_BYTES: Final = 16_000_000
"""Of the images that are brought at once."""
_EVENT: Final = "key string, `order` string, op string, committed_at_us bigint, image string"
_CLASS: Final = "EventsAtHand"
_MOST_DECODERS: Final = 1_000
"""Of a job, however many tenants it has; those that were made first go."""


class EventsAtHand:
    """A batch's events of some topics, given with how many bytes their images have. They are brought when the first table of a
    group is asked for; a table's are given once."""

    def __init__(
        self, events: DataFrame, image_bytes: Mapping[str, int], *, rows: Mapping[str, int] | None = None
    ) -> None:
        """``rows``: how many events each topic has, as they were counted when the batch was read."""
        self._events = events
        self._rows = rows or {}
        self._groups: dict[str, _Group] = {}
        for group in _grouped(image_bytes):
            self._groups |= dict.fromkeys(group.topics, group)

    def __contains__(self, topic: str) -> bool:
        return topic in self._groups

    def take(self, topic: str, projections: Any) -> Any:
        """Java's iterator over the topic's events after ``projections``.

        Raises:
            PipelineHalted: there are more or fewer than were counted; nothing of the table is written.
        """
        group = self._groups[topic]
        with group.lock:
            if group.events is None:
                group.events = self._brought(group.topics)
            if (counted := self._rows.get(topic)) is not None and (found := group.events.count(topic)) != counted:
                raise PipelineHalted(
                    f"topic {topic}: the batch was read with {counted} events, and {found} are here to be written; nothing of "
                    "the table is written. Restart the job; if that does not help, report it with this line"
                )
            return group.events.take(topic, projections)

    def _brought(self, topics: Sequence[str]) -> Any:
        columns = ("key", "order", "op", "committed_at_us", "image", "topic")
        brought: Any = self._events.where(sf.col("topic").isin(*topics)).select(*columns)
        rows = brought._jdf.queryExecution().executedPlan().executeCollect()
        return compiled(self._events.sparkSession, _CLASS)(rows)


@dataclass(slots=True)
class _Group:
    """Tables whose events are brought by one query."""

    topics: list[str] = field(default_factory=list)
    image_bytes: int = 0
    events: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)


def _grouped(image_bytes: Mapping[str, int]) -> list[_Group]:
    groups = [_Group()]
    for topic, size in image_bytes.items():
        if groups[-1].topics and groups[-1].image_bytes + size > MOST_BYTES:
            groups.append(_Group())
        groups[-1].topics.append(topic)
        groups[-1].image_bytes += size
    return groups


@dataclass(frozen=True, slots=True)
class Decoder:
    """From a table's events to its rows, as long as both are of these shapes."""

    schema: TableSchema
    columns: Mapping[str, TableColumn]
    deletes: Deletes
    projections: Any
    """Java's: of rows of ``_EVENT``, one after another."""
    row_type: Any
    """Spark's StructType, in Java: the table's columns, Headwater's, the op."""


class Decoders:
    """Of a job's tables, by topic; for any thread, of which one at a time asks for a topic's."""

    def __init__(self) -> None:
        self._decoders: dict[str, Decoder] = {}
        self._lock = threading.Lock()

    def of(
        self, spark: SparkSession, topic: str, schema: TableSchema, columns: Mapping[str, TableColumn], deletes: Deletes
    ) -> Decoder | None:
        """None: Spark would not decode such rows one by one."""
        known = self._decoders.get(topic)
        if known is not None and (known.schema, known.columns, known.deletes) == (schema, columns, deletes):
            return known
        made = _decoder(spark, schema, columns, deletes)
        if made is not None:
            with self._lock:
                self._decoders[topic] = made
                if len(self._decoders) > _MOST_DECODERS:
                    del self._decoders[next(iter(self._decoders))]
        return made


def _decoder(
    spark: SparkSession, schema: TableSchema, columns: Mapping[str, TableColumn], deletes: Deletes
) -> Decoder | None:
    """The same expressions as of a query (``latest_changes_of``), taken out of the plan of one."""
    keys = key_columns(schema)
    own = own_columns(SinkMode.MIRROR, deletes)
    # Not a list of no rows, whose plan Spark would cut down to nothing.
    events = spark.createDataFrame(spark.sparkContext.emptyRDD(), _EVENT)
    rows = (
        events.transform(parse_keys(columns, schema))
        .transform(parse_events(schema))
        .transform(conform_to(columns, schema, parsed_keys=keys))
        .transform(mark_deleted(None) if deletes is Deletes.SOFT else _unchanged)
        .select(*map(quoted, columns), *own, OP_COLUMN)
    )
    plan: Any = rows._jdf.queryExecution().optimizedPlan()
    unsafe_projection = java_class(spark, "org.apache.spark.sql.catalyst.expressions.UnsafeProjection")
    projections = java_class(spark, "java.util.LinkedList")()
    while plan.nodeName() == "Project":
        projections.addFirst(unsafe_projection.create(plan.projectList(), plan.child().output()))
        plan = plan.child()
    is_one_by_one = plan.children().isEmpty()
    return Decoder(schema, columns, deletes, projections, rows._jdf.schema()) if is_one_by_one else None


def _unchanged(rows: DataFrame) -> DataFrame:
    return rows
