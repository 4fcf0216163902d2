"""Whose an error of the sink job is: everybody's, one tenant's, or one table's. The one place that says so.

The rule is that of ``libs.errors.is_of_all``: an error that a tenant's document, or a name or value at the source, causes is
that tenant's, or of that table. Nobody has to have foreseen it.
"""

from typing import Final

from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from libs.errors import PipelineHalted, is_of_all
from spark.jvm.errors import causes_of

_OF_INPUT: Final = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    RecursionError,
    NotImplementedError,
)
"""Python raises these because of code's arguments; of a server that is away an OSError, and a library an error of its own."""
_OF_INPUT_IN_JAVA: Final = (
    "org.apache.spark.sql.AnalysisException",
    "org.apache.spark.SparkRuntimeException",
    "java.lang.IllegalArgumentException",
    "java.lang.NullPointerException",
    "java.lang.IndexOutOfBoundsException",
    "java.lang.ArithmeticException",
    "java.lang.ClassCastException",
    "java.lang.UnsupportedOperationException",
    "java.lang.StackOverflowError",
)
_OF_THE_WORLD_IN_JAVA: Final = (
    "java.io.IOException",
    "java.sql.SQLException",
    "java.lang.InterruptedException",
    "java.util.concurrent.TimeoutException",
    "org.apache.kafka.common.KafkaException",
)
"""One of these among an error's causes: a server may be away, and the other causes are its consequence."""


def is_of_job(error: BaseException) -> bool:
    """Whether an error of one tenant's work concerns all of the job's tenants.

    That the session is gone is not asked here: the job's loop asks that itself, once a second (``Fleet.supervise``).
    """
    return is_of_all(error)


def is_of_tenant(error: BaseException) -> bool:
    """Whether an error of one table's work is more than that table's: of all tenants, of the session, or one that is to stop
    the tenant (``PipelineHalted``)."""
    is_sessions = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    return is_of_job(error) or is_sessions or isinstance(error, PipelineHalted)


def is_of_input(error: BaseException) -> bool:
    """Whether it is sure, of an error that ``is_of_tenant`` is not, that no server which was away has raised it: the same input
    will raise it again."""
    if isinstance(error, PySparkException | Py4JJavaError):
        causes = causes_of(error)
        gateway = SparkContext._gateway
        if any(is_instance_of(gateway, cause, name) for cause in causes for name in _OF_THE_WORLD_IN_JAVA):
            return False
        return any(is_instance_of(gateway, cause, name) for cause in causes for name in _OF_INPUT_IN_JAVA)
    return isinstance(error, _OF_INPUT)
