"""Helm without a cluster: renders and lints the chart."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

TIMEOUT_S: Final = 1_200.0
"""With ``--wait`` it waits for pods."""


class RunsHelm(Protocol):
    """Helm, with or without a cluster."""

    @property
    def folder(self) -> Path:
        """For files of values."""

    def helm(self, *arguments: str) -> str:
        """The output. Raises AssertionError with Helm's words if it fails."""


@dataclass(frozen=True, slots=True)
class HelmClient:
    """Helm that reaches no cluster."""

    program: Path
    folder: Path

    def helm(self, *arguments: str) -> str:
        """The output. Raises AssertionError with Helm's words if it fails."""
        environ = {**os.environ, **helm_homes(self.folder), "KUBECONFIG": str(self.folder / "no-cluster")}
        done = subprocess.run(
            [self.program, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, env=environ, check=False
        )
        assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout


def helm_homes(folder: Path) -> Mapping[str, str]:
    """Environment variables that keep Helm's own files below ``folder``."""
    return {f"HELM_{kind}_HOME": str(folder / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
