"""The session's JVM, for what only its classes can do."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

_COMPILER_LOCK: Final = threading.Lock()


def java_class(spark: SparkSession, name: str) -> Any:
    """The class of that full name (a nested one's has a ``$``), or of a short one that PySpark has for it: its constructor, and
    its static members as attributes.

    Asked for whole: py4j asks the JVM once for each part of a name with dots, and the JVM looks through all its jars for a
    class ``org``, a class ``org.apache`` and so on, a tenth of a job's time where tables are many and small. And asked for
    once a session, by whoever: py4j itself, and so PySpark, asks each time.
    """
    jvm: Any = spark.sparkContext._jvm
    found = getattr(jvm, name)
    setattr(jvm, name, found)
    return found


def compiled(spark: SparkSession, source: Path) -> Callable[..., Any]:
    """The constructor of the public class in ``source``, which is named as the file is. Compiled once a session, by the
    compiler that Spark has for its own generated code.

    For loops over rows in the driver's memory: a call by py4j takes a tenth of a millisecond.
    """
    jvm: Any = spark.sparkContext._jvm
    with _COMPILER_LOCK:
        known: Callable[..., Any] | None = jvm.__dict__.get(str(source))
        if known is None:
            compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
            compiler.setParentClassLoader(
                java_class(spark, "org.apache.spark.util.Utils").getContextOrSparkClassLoader()
            )
            compiler.cook(source.name, source.read_text(encoding="utf-8"))
            [constructor] = compiler.getClassLoader().loadClass(source.stem).getConstructors()
            known = jvm.__dict__[str(source)] = lambda *given: constructor.newInstance(
                java_array(spark, "Object", given)
            )
        return known


def java_array(spark: SparkSession, of: str, items: Sequence[Any]) -> Any:
    """Of ``java.lang``'s class ``of``."""
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(java_class(spark, f"java.lang.{of}"), len(items))
    for place, item in enumerate(items):
        array[place] = item
    return array
