"""A warehouse's table made ready for a batch, whose events may be of several versions of the source's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from libs.types.tenant import SinkMode
from libs.warehouse.schema_changes import places_of, unheld_columns
from spark.sinks.evolution import stored_columns
from spark.sinks.port import Sink, SinkTable
from spark.transforms.warehouse_columns import TableColumn


def ready_table(
    spark: SparkSession, sink: Sink, versions: Sequence[SinkTable]
) -> tuple[SinkTable, Mapping[str, TableColumn]]:
    """The table by the names that its columns have in the warehouse, and these columns, each with the source's column that it
    takes at each version.

    ``versions``: the table at each version of the batch, the newest last: it is made ready for that one. In a mirror, for an
    older one only columns of another type come beside existing ones. A log and a history keep columns that came and went, and
    are made ready for each.

    Raises:
        TableRefused, TableLeftOut: see ``Sink.ensure_table``.
    """
    newest = versions[-1]
    if newest.mode is SinkMode.MIRROR:
        columns = sink.ensure_table(spark, newest)
        for older in versions[:-1]:
            if unheld_columns(stored_columns(columns), older.schema, sink.dialect):
                columns = sink.ensure_table(spark, older)
    else:
        for each in versions:
            columns = sink.ensure_table(spark, each)
    sources: dict[str, dict[int, str]] = {name: {} for name in columns}
    for version in versions:
        for name, place in places_of(stored_columns(columns), version.schema, sink.dialect).items():
            sources[place][version.schema.version] = name
    placed = {name: replace(column, sources=sources[name]) for name, column in columns.items()}
    names = {taken[newest.schema.version]: name for name, taken in sources.items() if newest.schema.version in taken}
    return (
        replace(
            newest,
            key=tuple(names.get(name, name) for name in newest.key),
            columns=tuple(replace(column, name=names.get(column.name, column.name)) for column in newest.columns),
        ),
        placed,
    )
