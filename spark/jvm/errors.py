"""Spark's errors by class and place, without their text, which may hold rows' values."""

from collections.abc import Iterator
from typing import Any, Final

from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from libs.errors import HeadwaterError

MALFORMED_RECORD: Final = "MALFORMED_RECORD_IN_PARSING"
OF_ONE_ROW: Final = (
    MALFORMED_RECORD,
    "ARITHMETIC_OVERFLOW",
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
    "NOT_NULL_ASSERT_VIOLATION",
    "NUMERIC_VALUE_OUT_OF_RANGE",
)
"""A value does not fit its column: the row's fault, or the table's."""
_LONGEST_CHAIN: Final = 20


def has_condition(error: BaseException, condition: str) -> bool:
    """Whether Spark raised ``condition`` (Spark documentation, "Error Conditions"), be it deep inside a failed job."""
    return any(name.split(".")[0] == condition for name in _conditions(error))


class EventsLost(HeadwaterError):
    """Kafka no longer has the next events. Its text: of which Kafka partitions."""


def lost_partitions(error: BaseException | None) -> str | None:
    """The Kafka partitions that no longer have their next events; None: the error is another one.

    Spark's Kafka connector, "KAFKA_DATA_LOSS" and its parameters.
    """
    if isinstance(error, EventsLost):
        return str(error)
    for throwable in [] if error is None else causes_of(error):
        if (_condition(throwable) or "").split(".")[0] == "KAFKA_DATA_LOSS":
            parameters = throwable.getMessageParameters()
            return str(parameters.get("topicPartition") or parameters.get("partitions") or "a topic")
    return None


def described(error: BaseException | None) -> str:
    """For logs: our own errors in full, others by their class and Spark's condition."""
    if error is None:
        return "it ended without an error"
    if isinstance(error, HeadwaterError):
        return str(error)
    names = list(dict.fromkeys([*_java_classes(error), *_conditions(error)]))
    return f"{type(error).__name__}: {', '.join(names)}" if names else type(error).__name__


def _conditions(error: BaseException) -> Iterator[str]:
    if isinstance(error, PySparkException) and (condition := error.getCondition()):
        yield condition
    yield from filter(None, map(_condition, causes_of(error)))


def _condition(throwable: Any) -> str | None:
    is_sparks = is_instance_of(SparkContext._gateway, throwable, "org.apache.spark.SparkThrowable")
    return throwable.getCondition() if is_sparks else None


def _java_classes(error: BaseException) -> Iterator[str]:
    for throwable in causes_of(error):
        yield str(throwable.getClass().getSimpleName())


def causes_of(error: BaseException) -> list[Any]:
    """The chain of Java causes; empty where the JVM is gone."""
    throwable = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    causes: list[Any] = []
    try:
        while throwable is not None and len(causes) < _LONGEST_CHAIN:
            causes.append(throwable)
            throwable = throwable.getCause()
    except (Py4JError, OSError):
        return []
    return causes
