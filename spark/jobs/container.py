"""The command of the image ``spark``: ``python -m spark.jobs.container …``.

Spark on Kubernetes starts its containers with a word: ``executor``, and where ``spark-submit`` runs in cluster mode (a
SparkApplication does so) ``driver`` with spark-submit's arguments. Their settings come by the environment; Spark's own images
have ``entrypoint.sh`` for that contract. Any other arguments are the sink job's.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from libs.errors import InvalidSettings

_EXECUTOR: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
# Its options, and the variables that Spark's driver puts into the pod.
_OPTIONS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_MEMORY: Final = "SPARK_EXECUTOR_MEMORY"
_BIND_ADDRESS: Final = "SPARK_DRIVER_BIND_ADDRESS"
EXIT_INVALID_SETTINGS: Final = 2


def command(arguments: Sequence[str], environ: Mapping[str, str], spark_home: Path) -> list[str]:
    """The command that the container runs.

    Raises:
        InvalidSettings: variables are missing that Spark's driver sets; for a container started by hand use the sink job.
    """
    match arguments:
        case ["executor", *_]:
            return _executor(environ, spark_home)
        case ["driver", *rest]:
            given = _options({"": _BIND_ADDRESS}, environ)[1]
            # By itself it would give executors the name of its Service, which is known only when the driver is ready, and it is
            # ready when executors have come.
            address = [word for name in ("bindAddress", "host") for word in ("--conf", f"spark.driver.{name}={given}")]
            return [str(spark_home / "bin" / "spark-submit"), *address, "--deploy-mode", "client", *rest]
        case _:
            return [sys.executable, "-m", "spark.jobs.sink_job", *arguments]


def _executor(environ: Mapping[str, str], spark_home: Path) -> list[str]:
    given = _options({**_OPTIONS, "memory": _MEMORY}, environ)[:-2]
    java = f"{environ['JAVA_HOME']}/bin/java" if environ.get("JAVA_HOME") else "java"
    options = {name: re.fullmatch(r"SPARK_JAVA_OPT_(\d+)", name) for name in environ}
    in_order = sorted((int(found[1]), environ[name]) for name, found in options.items() if found)
    places = (environ.get("SPARK_CONF_DIR"), environ.get("SPARK_CLASSPATH"), f"{spark_home}/jars/*")
    memory = environ[_MEMORY]
    return [
        java,
        *(option for _, option in in_order),
        *(f"-Xms{memory}", f"-Xmx{memory}", "-cp", os.pathsep.join(place for place in places if place)),
        *(_EXECUTOR, *given),
    ]


def _options(wanted: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """Options and their values, in order."""
    missing = [name for name in wanted.values() if not environ.get(name)]
    if missing:
        remedy = (
            "Spark's driver sets it in the pods that it makes; without the words executor and driver the sink job runs"
        )
        raise InvalidSettings("container", [f"{name}: is missing; {remedy}" for name in missing])
    return [word for option, name in wanted.items() for word in (option, environ[name])]


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


if __name__ == "__main__":
    home = _spark_home()
    try:
        words = command(sys.argv[1:], os.environ, home)
    except InvalidSettings as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_INVALID_SETTINGS)
    os.execvpe(words[0], words, {**os.environ, "SPARK_HOME": str(home)})  # noqa: S606 - the container's own command
