"""Where a write's time went: by Spark's stages."""

from pyspark.sql import functions as sf

from libs.types.warehouse import WarehouseTable
from spark.batch.phases import Stage, WriteSplit, measured, split
from tests.spark_session import SharedSpark


def stage(begun_s: float, ended_s: float, *, reads: bool = False, writes: bool = False) -> Stage:
    return Stage(begun_s=begun_s, ended_s=ended_s, reads_batch=reads, writes=writes)


def test_parts_are_the_whole() -> None:
    """Stages that read the batch side by side count once; one of the table's own rows is of the merge."""
    stages = [
        stage(1.0, 3.0, reads=True),
        stage(2.0, 4.0, reads=True),
        stage(2.0, 6.0),
        stage(6.0, 8.0, writes=True),
    ]

    assert split(stages, begun_s=0.0, ended_s=10.0) == WriteSplit(dedupe_s=3.0, merge_s=5.0, commit_s=2.0)


def test_one_stage_is_a_merge() -> None:
    """With any work in it."""
    assert split([stage(1.0, 3.0, reads=True)], begun_s=0.0, ended_s=4.0) == WriteSplit(0.0, 3.0, 1.0)


def test_what_spark_does_behind_the_files_is_of_the_commit() -> None:
    """Delta looks at its log with stages of its own."""
    stages = [stage(0.0, 2.0, reads=True, writes=True), stage(3.0, 4.0)]

    assert split(stages, begun_s=0.0, ended_s=5.0) == WriteSplit(0.0, 2.0, 3.0)


def test_without_stages_nothing_is_known() -> None:
    assert split([], begun_s=0.0, ended_s=5.0) is None


def test_spark_tells_the_stages_of_a_write(shared: SharedSpark) -> None:
    """Of this write alone: the one before it, and the counting after it, carry no tag of it."""
    batch = shared.session.range(50_000).withColumn("key", sf.col("id") % 1_000).persist()
    batch.count()
    latest = batch.groupBy("key").agg(sf.max("id").alias("id"))
    place = WarehouseTable(namespace=("phases",), name="orders").quoted()

    with measured(shared.session) as write:
        latest.writeTo(place).using("iceberg").createOrReplace()
    with measured(shared.session) as nothing:
        pass
    batch.unpersist()

    assert write.split is not None
    assert write.split.dedupe_s > 0
    assert write.split.merge_s > 0
    assert write.split.commit_s > 0
    assert nothing.split is None
