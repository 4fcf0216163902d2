"""The wheel: its requirements come from the dependency groups, and it holds compiled modules. pyproject.toml cannot say so."""

import platform
import re
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))

from libs.setup import compiled_modules
from libs.setup.cache import cache_dir
from libs.setup.step import Progress

SHIPPED_GROUPS = (
    *("binlog_reader", "vstream_reader", "dts_decoder", "logminer_reader", "schema_history", "checkpoint_committer"),
    *("router", "tenant_operator", "spark", "cli"),
)
"""Each is an extra. The wheel itself requires all of them, because the command starts every service."""


OLDEST_GLIBC = 17
"""Of 2.x: the wheels of Headwater's requirements ask for this one too."""
_SYMBOLS = re.compile(rb"GLIBC_2\.(\d+)")
_LIBRARIES = re.compile(rb"\0(lib[\w+.-]+\.so[.\d]*)(?=\0)")
_OF_GLIBC = frozenset({b"libc.so.6", b"libm.so.6", b"libpthread.so.0"})


class Requirements(MetadataHookInterface):
    """``dependencies`` and ``optional-dependencies``, of pyproject.toml's ``dependency-groups``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling."""
        groups = tomllib.loads((Path(self.root) / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
        extras = {name: requirements(groups, name) for name in SHIPPED_GROUPS}
        metadata["optional-dependencies"] = {name.replace("_", "-"): found for name, found in extras.items()}
        metadata["dependencies"] = sorted({each for found in extras.values() for each in found})


class CompiledModules(BuildHookInterface):  # type: ignore[type-arg]
    """The compiled modules, for the Python that builds: those of `make setup` where they fit, else made here."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling."""
        if self.target_name != "wheel" or version == "editable":
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        root = Path(self.root)
        built_in = root
        if not compiled_modules.are_built(root):
            self._folder = tempfile.TemporaryDirectory(prefix="headwater-wheel-")
            built_in = Path(self._folder.name)
            compiled_modules.build_into(built_in, cache_dir(), root, Progress())
        names = compiled_modules.built_names(root)
        tag = wheel_tag([built_in / name for name in names])
        if tag is not None:
            build_data["tag"] = tag
        for name in names:
            build_data["force_include"][str(built_in / name)] = f"headwater/{name}"


def wheel_tag(modules: Sequence[Path]) -> str | None:
    """Of this Python, and of the oldest glibc that has each symbol which ``modules`` ask for (PEP 600).

    None: they ask for a library of another kind, so that the wheel fits this machine alone.
    """
    contents = [path.read_bytes() for path in modules]
    if any(set(_LIBRARIES.findall(content)) - _OF_GLIBC for content in contents):
        return None
    glibc = max([OLDEST_GLIBC, *(int(minor) for content in contents for minor in _SYMBOLS.findall(content))])
    release = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{release}-{release}-manylinux_2_{glibc}_{platform.machine()}"


def requirements(groups: Mapping[str, Sequence[str | Mapping[str, str]]], name: str) -> list[str]:
    """Of a group and those that it includes."""
    found: list[str] = []
    for each in groups[name]:
        found += [each] if isinstance(each, str) else requirements(groups, each["include-group"])
    return sorted(set(found))
