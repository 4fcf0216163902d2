"""Whose CPU it was, in one session that tenants share."""

import time

from prometheus_client import REGISTRY
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark.batch.side_by_side import side_by_side
from spark.tenant.cpu_meter import CpuMeter
from tests.spark_session import SharedSpark

NS = 1e-9
POWER = 1_000_000
"""Of seven: work of the JVM's, for a single call from Python."""


def seconds(tenant: str) -> float:
    return REGISTRY.get_sample_value("headwater_sink_tenant_cpu_seconds_total", {"tenant": tenant}) or 0.0


def as_tenant(spark: SparkSession, tenant: str | None) -> None:
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", tenant)  # type: ignore[arg-type]


def tell(spark: SparkSession, meter: CpuMeter) -> None:
    """When Spark's listeners have heard of all."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    meter.count_tasks()


def test_who_has_more_rows_takes_more_and_what_is_nobodys_is_not_told(shared: SharedSpark) -> None:
    spark, meter = shared.session, CpuMeter(shared.session)
    for tenant, rows in (("meter-large", 3_000_000), ("meter-small", 30_000), (None, 3_000_000)):
        as_tenant(spark, tenant)
        spark.range(rows).selectExpr("sum(hash(id, id + 1))").collect()
    tell(spark, meter)

    assert seconds("meter-large") > seconds("meter-small") > 0
    told = seconds("meter-large")
    tell(spark, meter)
    assert seconds("meter-large") == told


def test_tasks_of_stages_that_spark_has_forgotten_are_counted(shared: SharedSpark) -> None:
    """Its store keeps 120 stages; its figures for each while it knew it add up to ours."""
    spark, meter = shared.session, CpuMeter(shared.session)
    core = spark.sparkContext._jsc.sc()
    as_tenant(spark, "meter-many")
    told_ns, stages = 0, []
    for group in range(15):
        spark.sparkContext.setJobGroup(f"meter-{group}", "")
        for _ in range(10):
            spark.sparkContext.parallelize([1], 1)._jrdd.count()
        core.listenerBus().waitUntilEmpty()
        for job in core.statusTracker().getJobIdsForGroup(f"meter-{group}"):
            [number] = [int(each) for each in core.statusStore().job(job).stageIds().mkString(",").split(",")]
            stage = core.statusStore().lastStageAttempt(number)
            told_ns += stage.executorCpuTime() + stage.executorDeserializeCpuTime()
            stages.append(number)
    as_tenant(spark, None)
    tell(spark, meter)

    assert len(stages) == 150
    assert abs(seconds("meter-many") - told_ns * NS) < NS
    try:
        core.statusStore().lastStageAttempt(stages[0])
        raise AssertionError("Spark knows all of them still: make more")
    except Py4JJavaError:
        pass


def test_threads_that_drive_are_counted_in_python_and_in_the_jvm(shared: SharedSpark) -> None:
    """Those that go through tables too; and a thread's earlier time is not counted twice."""
    spark, meter = shared.session, CpuMeter(shared.session)
    number = spark.sparkContext._jvm.java.math.BigInteger("7")  # type: ignore[union-attr]

    def drive(power: int) -> None:
        with meter.driving("meter-driver"):
            number.pow(power)

    before_s = time.thread_time()
    drive(POWER)
    in_python_s, here_s = time.thread_time() - before_s, seconds("meter-driver")
    with meter.driving("meter-idle"):
        pass
    side_by_side(spark, drive, [POWER, POWER], 2)

    assert here_s > in_python_s  # the rest is the JVM's
    assert 0 < seconds("meter-idle") < here_s
    assert seconds("meter-driver") > here_s + in_python_s
