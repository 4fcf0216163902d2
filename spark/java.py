"""The session's JVM, for what only its classes can do."""

import threading
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

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
            compiler = _compiler(spark, source)
            [constructor] = compiler.getClassLoader().loadClass(source.stem).getConstructors()
            known = jvm.__dict__[str(source)] = lambda *given: constructor.newInstance(
                java_array(spark, "Object", given)
            )
        return known


def column_function(spark: SparkSession, source: Path, method: str, returns: str) -> Callable[..., Column]:
    """A function of columns: the static method of the public class in ``source``, which is named as the file is, in a package
    ``headwater``. ``returns`` is its type in SQL, of a value that may be null; where an argument is null it is not called.

    For work on each row, in queries: Spark's generated code calls it as its own, in executors too. Its arguments and its value
    are Spark's internal ones (``UTF8String``, ``InternalRow``). Compiled once a session.
    """
    owner = _job_class(spark, source)
    value_type = java_class(spark, "org.apache.spark.sql.types.DataType").fromDDL(returns)
    invoke = java_class(spark, "org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke")
    nothing = java_class(spark, "scala.Option").empty()

    def call(*arguments: Column) -> Column:
        given, no_types = _expressions(spark, arguments), _expressions(spark, ())
        return _column(spark, invoke(owner, value_type, method, given, no_types, True, True, True, nothing))

    return call


def column_method(
    spark: SparkSession, source: Path, given: Sequence[Any], method: str, returns: Any
) -> Callable[..., Column]:
    """As ``column_function``, a method of an object that is made of ``given`` and goes with the query: it is serializable, each
    task has its own, and those that are ``equals`` are taken for one. ``returns``: Spark's type of the value, of the JVM."""
    owner = _job_class(spark, source)
    target = java_class(spark, "org.apache.spark.sql.catalyst.expressions.Literal")(
        job_object(spark, source, given), java_class(spark, "org.apache.spark.sql.types.ObjectType")(owner)
    )
    invoke = java_class(spark, "org.apache.spark.sql.catalyst.expressions.objects.Invoke")

    def call(*arguments: Column) -> Column:
        passed, no_types = _expressions(spark, arguments), _expressions(spark, ())
        return _column(spark, invoke(target, method, returns, passed, no_types, True, True, True))

    return call


def _expressions(spark: SparkSession, columns: Sequence[Column]) -> Any:
    """As Spark's expressions take them."""
    expression = java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils").expression
    given = java_class(spark, "java.util.ArrayList")()
    for column in columns:
        given.add(expression(column._jc))  # type: ignore[attr-defined]
    return java_class(spark, "PythonUtils").toSeq(given)


def _column(spark: SparkSession, expression: Any) -> Column:
    return ClassicColumn(java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils").column(expression))


def job_class(spark: SparkSession, source: Path) -> str:
    """The full name of the public class in ``source``, which is named as the file is, in a package ``headwater``: for who looks
    a class up by its name, in executors too. Compiled once a session."""
    return str(_job_class(spark, source).getName())


def job_object(spark: SparkSession, source: Path, given: Sequence[Any]) -> Any:
    """An object of that class, made of ``given``: for who hands it to a job's tasks."""
    [constructor] = _job_class(spark, source).getConstructors()
    return constructor.newInstance(java_array(spark, "Object", given))


def _job_class(spark: SparkSession, source: Path) -> Any:
    """Executors get the class as a jar of the session's."""
    jvm: Any = spark.sparkContext._jvm
    known_as = f"{spark.sparkContext.applicationId} {source}"
    with _COMPILER_LOCK:
        owner = jvm.__dict__.get(known_as)
        if owner is None:
            jar = _jar(spark, source)
            spark.sparkContext._jsc.addJar(str(jar))
            loader = java_class(spark, "org.apache.spark.util.Utils").getContextOrSparkClassLoader()
            loader.addURL(java_class(spark, "java.io.File")(str(jar)).toURI().toURL())
            owner = jvm.__dict__[known_as] = loader.loadClass(f"headwater.{source.stem}")
        return owner


def _jar(spark: SparkSession, source: Path) -> Path:
    """With the class in ``source``; it is gone with the session."""
    folder: Any = spark.sparkContext._temp_dir
    path = Path(folder, f"{source.stem}.jar")
    classes = _compiler(spark, source).getBytecodes()
    with zipfile.ZipFile(path, "w") as jar:
        for name in classes:
            jar.writestr(f"{name.replace('.', '/')}.class", classes[name])
    return path


def _compiler(spark: SparkSession, source: Path) -> Any:
    """Janino's, with ``source`` compiled."""
    compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(java_class(spark, "org.apache.spark.util.Utils").getContextOrSparkClassLoader())
    compiler.cook(source.name, source.read_text(encoding="utf-8"))
    return compiler


def java_array(spark: SparkSession, of: str, items: Sequence[Any]) -> Any:
    """Of ``java.lang``'s class ``of``."""
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(java_class(spark, f"java.lang.{of}"), len(items))
    for place, item in enumerate(items):
        array[place] = item
    return array
