"""The session's JVM, for work that only its classes can do."""

import threading
import zipfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from py4j.java_gateway import JavaClass, JavaMember  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

_SOURCES: Final = Path(__file__).parent
_FUNCTION: Final = "ColumnFunction"
_NUL: Final = "\0"
_OF_ONE_CALL: Final = range(2, 11)
"""So many arguments ``List.of`` has names for; one alone, if it is an array, it takes for them all."""
_LOCK: Final = threading.RLock()


def java_class(spark: SparkSession, name: str) -> Any:
    """The class of that full name (a nested one's has a ``$``), or of a short one that PySpark has for it: its constructor, and
    its static members as attributes.

    Asked for whole: py4j asks the JVM once for each part of a name with dots, and the JVM looks through all its jars for a
    class ``org``, a class ``org.apache`` and so on, a tenth of a job's time where tables are many and small. And asked for
    once a session: py4j itself, and so PySpark, asks each time.
    """
    return _class(spark.sparkContext, name)


def _class(context: SparkContext, name: str) -> Any:
    def make() -> _JavaClass:
        jvm: Any = context._jvm
        found = _JavaClass(getattr(jvm, name))
        setattr(jvm, name, found)
        return found

    return _once(context, name, make)


class _JavaClass:
    """py4j's, which asks Java at each call of a static method whether there is such a one; once is enough."""

    def __init__(self, found: JavaClass) -> None:
        self._found = found

    def __call__(self, *arguments: Any) -> Any:
        return self._found(*arguments)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._found, name)
        if isinstance(member, JavaMember):
            setattr(self, name, member)
        return member


def keep_type_checks(spark: SparkSession) -> None:
    """Have PySpark find at hand the classes by which it judges an error's type.

    It asks thirteen times for each error that Java raises, and the end of a Java list is one. Each time py4j has the JVM look
    through all jars for a class ``py4j``, a class ``py4j.reflection``, the class itself and its method.
    """
    jvm: Any = spark.sparkContext._jvm
    jvm.py4j = SimpleNamespace(reflection=SimpleNamespace(TypeUtil=java_class(spark, "py4j.reflection.TypeUtil")))


def activate(spark: SparkSession) -> None:
    """Settings and catalogs are looked up in the thread's active session; a thread of our own has none yet."""
    java_class(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)


def compiled(spark: SparkSession, name: str) -> Callable[..., Any]:
    """The constructor of the class in ``spark/jvm/<name>.java``. Compiled once a session, by the compiler that Spark has for
    its own generated code.

    For loops over rows in the driver's memory: a call by py4j takes a tenth of a millisecond.
    """
    return _compiled(spark.sparkContext, name)


def compiled_object(spark: SparkSession, name: str) -> Any:
    """The session's only object of that class, made of nothing: for methods that keep nothing."""
    context = spark.sparkContext
    return _once(context, (name, "object"), lambda: _compiled(context, name)())


def _compiled(context: SparkContext, name: str) -> Callable[..., Any]:
    def make() -> Callable[..., Any]:
        [constructor] = _compiler(context, name).getClassLoader().loadClass(name).getConstructors()
        return lambda *given: constructor.newInstance(_array(context, "Object", given))

    made: Callable[..., Any] = _once(context, (name, "compiled"), make)
    return made


def column_function(name: str, method: str, returns: str) -> Callable[..., Column]:
    """A function of columns and plain values, four at most: the static method of the class in ``spark/jvm/<name>.java``, in
    a package ``headwater``. ``returns`` is its type in SQL, of a value that may be null; where an argument is null it is not
    called.

    For work on each row, in queries: Spark's generated code calls it as its own, in executors too. Its arguments and its value
    are Spark's internal ones (``UTF8String``, ``InternalRow``). It is of the session that runs, as PySpark's own functions
    are; compiled once a session.
    """
    context = _running()

    def make() -> Callable[..., Column]:
        value_type = _class(context, "org.apache.spark.sql.types.DataType").fromDDL(returns)
        return _function(context, _job_class(context, name), None, method, value_type)

    made: Callable[..., Column] = _once(context, (name, method, returns), make)
    return made


def column_method(name: str, given: Sequence[Any], method: str, returns: Any) -> Callable[..., Column]:
    """As ``column_function``, a method of an object that is made of ``given`` and goes with the query: it is serializable, each
    task has its own, and those that are ``equals`` are taken for one. ``returns``: Spark's type of the value, of the JVM."""
    context = _running()
    return _function(context, _job_class(context, name), _job_object(context, name, given), method, returns)


def _function(context: SparkContext, owner: Any, target: Any, method: str, returns: Any) -> Callable[..., Column]:
    function = _compiled(context, _FUNCTION)(owner, target, method, returns)

    def call(*arguments: Column | str | int) -> Column:
        given = (argument._jc if isinstance(argument, ClassicColumn) else argument for argument in arguments)
        return ClassicColumn(function.of(*given))

    return call


def _running() -> SparkContext:
    context = SparkContext._active_spark_context
    assert context is not None
    return context


def job_class(spark: SparkSession, name: str) -> str:
    """The full name of the class in ``spark/jvm/<name>.java``, in a package ``headwater``. A class can be looked up by it in
    executors too. Compiled once a session."""
    return str(_job_class(spark.sparkContext, name).getName())


def job_object(spark: SparkSession, name: str, given: Sequence[Any]) -> Any:
    """An object of that class, made of ``given``: for a caller that hands it to a job's tasks."""
    return _job_object(spark.sparkContext, name, given)


def _job_object(context: SparkContext, name: str, given: Sequence[Any]) -> Any:
    [constructor] = _job_class(context, name).getConstructors()
    return constructor.newInstance(_array(context, "Object", given))


def _job_class(context: SparkContext, name: str) -> Any:
    """Executors get the class as a jar of the session's."""

    def make() -> Any:
        jar = _jar(context, name)
        context._jsc.addJar(str(jar))
        loader = _class(context, "org.apache.spark.util.Utils").getContextOrSparkClassLoader()
        loader.addURL(_class(context, "java.io.File")(str(jar)).toURI().toURL())
        return loader.loadClass(f"headwater.{name}")

    return _once(context, name, make)


def _once(context: SparkContext, name: Hashable, make: Callable[[], Any]) -> Any:
    """The session's object of that name; made if there is none."""
    known = vars(context).setdefault("_headwater_java", {})
    if name not in known:
        with _LOCK:
            if name not in known:
                known[name] = make()
    return known[name]


def _jar(context: SparkContext, name: str) -> Path:
    """With the class of that name; it is gone with the session."""
    folder: Any = context._temp_dir
    path = Path(folder, f"{name}.jar")
    classes = _compiler(context, name).getBytecodes()
    with zipfile.ZipFile(path, "w") as jar:
        for each in classes:
            jar.writestr(f"{each.replace('.', '/')}.class", classes[each])
    return path


def _compiler(context: SparkContext, name: str) -> Any:
    """Janino's, with the class of that name compiled."""
    source = _SOURCES / f"{name}.java"
    compiler = _class(context, "org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(_class(context, "org.apache.spark.util.Utils").getContextOrSparkClassLoader())
    compiler.cook(source.name, source.read_text(encoding="utf-8"))
    return compiler


def java_map(spark: SparkSession, entries: Mapping[str, str]) -> Any:
    """Of ten entries at most; nobody can change it."""
    return java_class(spark, "java.util.Map").of(*chain.from_iterable(entries.items()))


def java_array(spark: SparkSession, of: str, items: Sequence[Any]) -> Any:
    """Of ``java.lang``'s class ``of``."""
    return _array(spark.sparkContext, of, items)


def _array(context: SparkContext, of: str, items: Sequence[Any]) -> Any:
    # By item it is two calls to Java each.
    if of == "String" and items and not any(_NUL in item for item in items):
        return _once(context, _NUL, lambda: _class(context, "java.util.regex.Pattern").compile(_NUL)).split(
            _NUL.join(items), -1
        )
    if of == "Object" and len(items) in _OF_ONE_CALL and not any(item is None for item in items):
        return _class(context, "java.util.List").of(*items).toArray()
    gateway: Any = context._gateway
    array = gateway.new_array(_class(context, f"java.lang.{of}"), len(items))
    for place, item in enumerate(items):
        array[place] = item
    return array
