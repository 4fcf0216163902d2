"""The session's JVM, for what only its classes can do."""

from typing import Any

from pyspark.sql import SparkSession


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
