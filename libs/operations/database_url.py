"""The address of a database, as ``headwater init`` takes it."""

from dataclasses import dataclass

import yaml


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """``mysql://user:password@host:port/database``, ``oracle://user:password@host:port/service/SCHEMA``."""

    host: str
    port: int
    user: str
    password: str | None
    """None: the URL has none. ``user:@host`` is an empty one."""
    path: tuple[str, ...]
    """The parts after the host: of MySQL a database; of Oracle a service and, where only one is captured, a schema."""
    kind: str = "mysql"


def scalar(value: str) -> str:
    """A text as YAML, in quotes: any text is read as itself."""
    return yaml.safe_dump(value, default_style='"', allow_unicode=True, width=10**9).strip()


def pattern_scalar(pattern: str) -> str:
    """A regular expression as YAML."""
    return yaml.safe_dump(pattern, default_style="'", allow_unicode=True, width=10**9).strip()
