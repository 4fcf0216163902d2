"""The keys of tenants' masks: from files and the environment, each tenant's its own.

    <keys folder>/acme/pii            key_from: {file: pii}                        of tenant acme alone
    HEADWATER_KEY__ACME__PII=…        key_from: {env: HEADWATER_KEY__ACME__PII}    the same

A document names keys, and can name none but its own tenant's: neither a path nor another variable of the router's fits. In
Kubernetes the folder of a tenant is its Secret, mounted. A file's last line break does not count.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.config.load import KEY_VARIABLE_PREFIX
from libs.errors import HeadwaterError
from libs.types.tenant import KeyFrom

_LEAST_BYTES: Final = 16
_MOST_BYTES: Final = 4096
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_VARIABLE_END: Final = re.compile(r"[A-Z0-9]+(_[A-Z0-9]+)*")
"""No ``__`` in it: the part before the last one is the tenant, for any two names."""


class KeyUnusable(HeadwaterError):
    """A mask's key is not there, or is not fit; the message names it and the remedy, never the key."""


@dataclass(frozen=True, slots=True)
class MaskKeys:
    """Where a process finds keys."""

    folder: Path | None
    """None: the environment alone."""
    environ: Mapping[str, str]

    def key(self, tenant: str, key_from: KeyFrom) -> bytes:
        """A tenant's key, read now: a key that was put there a moment ago counts.

        Raises:
            KeyUnusable: it is not there, too short, or not the tenant's.
        """
        if key_from.file is not None:
            key, called = self._of_file(tenant, key_from.file)
        else:
            key, called = self._of_environment(tenant, key_from.env or "")
        if (mistake := size_mistake(called, len(key))) is not None:
            raise KeyUnusable(mistake)
        return key

    def mistake(self, tenant: str, key_from: KeyFrom) -> str | None:
        """Why the key cannot be had; None: it can."""
        try:
            self.key(tenant, key_from)
        except KeyUnusable as error:
            return str(error)
        return None

    def stamp(self) -> object:
        """Other than before when a key file came, went or changed."""
        if self.folder is None or not self.folder.is_dir():
            return None
        stamps = []
        for file in sorted(self.folder.glob("*/*")):
            try:
                stat = file.stat()
            except OSError:  # it went away since it was listed
                continue
            stamps.append((str(file), stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return stamps

    def _of_file(self, tenant: str, name: str) -> tuple[bytes, str]:
        if (mistake := name_mistake(tenant, KeyFrom(file=name))) is not None:
            raise KeyUnusable(mistake)
        if self.folder is None:
            raise KeyUnusable(f"key file {name!r} cannot be read: no keys_folder is set; set it, or take env")
        called = f"key file {tenant}/{name} of {self.folder}"
        try:
            with (self.folder / tenant / name).open("rb") as opened:
                content = opened.read(_MOST_BYTES + 2)
        except OSError as error:
            raise KeyUnusable(f"{called} cannot be read ({error.strerror}); put it there") from error
        return key_in(content), called

    def _of_environment(self, tenant: str, name: str) -> tuple[bytes, str]:
        if (mistake := name_mistake(tenant, KeyFrom(env=name))) is not None:
            raise KeyUnusable(mistake)
        if name not in self.environ:
            raise KeyUnusable(f"environment variable {name} is not set; set it, or take file")
        return self.environ[name].encode(), f"environment variable {name}"


def name_mistake(tenant: str, key_from: KeyFrom) -> str | None:
    """Why no key of this tenant can be called so; None: one can."""
    if key_from.file is not None:
        if _FILE_NAME.fullmatch(key_from.file):
            return None
        return (
            f"{key_from.file!r} is no key's name; take letters, digits and '._-': it is a file in the tenant's own folder of "
            "keys"
        )
    name, own = key_from.env or "", f"{KEY_VARIABLE_PREFIX}{tenant.upper().replace('-', '_')}__"
    if name.startswith(own) and _VARIABLE_END.fullmatch(name.removeprefix(own)):
        return None
    return f"{name!r} is no variable of this tenant; its keys are called {own}<NAME>"


def size_mistake(called: str, size_bytes: int) -> str | None:
    """Why a key of that size is none; None: it is one."""
    if _LEAST_BYTES <= size_bytes <= _MOST_BYTES:
        return None
    return (
        f"{called} has {size_bytes} bytes; a key has {_LEAST_BYTES} to {_MOST_BYTES}: `openssl rand -hex 32` makes one"
    )


def key_in(content: bytes) -> bytes:
    """The key that a file holds."""
    return content.removesuffix(b"\n").removesuffix(b"\r")


NO_KEYS: Final = MaskKeys(None, {})
