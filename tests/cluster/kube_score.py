"""``make kube-score``: kube-score's judgement of the chart, as it is shipped and with everything switched on.

Beside the annotations in the chart, one rule is left out: CPU has requests and no limits, because a service that is held back
in the middle of a transaction delays every tenant that waits for it.
"""

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.chart import CHART, FULL, LEAST, RELEASE, TRIAL
from tests.cluster.programs import build_kube_score, helm_program

KUBERNETES: Final = "v1.34"


@dataclass(frozen=True, slots=True)
class Kind:
    """Values of the chart, and how they are judged."""

    values: Mapping[str, Any]
    is_strict: bool
    """Warnings count. As the chart is shipped, where egress is open, they count for nothing."""


KINDS: Final[Mapping[str, Kind]] = {
    "least": Kind(LEAST, is_strict=False),
    "full": Kind(FULL, is_strict=True),
    "trial": Kind(TRIAL, is_strict=True),
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer of kube-score on the chart."""

    is_clean: bool
    text: str


def judge(kube_score: Path, kind: Kind) -> Judgement:
    """By the program at ``kube_score``."""
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        file = Path(folder) / "values.yaml"
        file.write_text(yaml.safe_dump(dict(kind.values)))
        helm = (helm_program(), "template", RELEASE, CHART, "-n", "mesh", "-f", file)
        rendered = subprocess.run(helm, check=True, capture_output=True).stdout
    strictly = ("--exit-one-on-warning",) if kind.is_strict else ()
    options = ("--ignore-container-cpu-limit", "--kubernetes-version", KUBERNETES, *strictly)
    told = subprocess.run((kube_score, "score", "-", *options), input=rendered, capture_output=True, check=False)
    return Judgement(told.returncode == 0, (told.stdout + told.stderr).decode())


def main() -> int:
    """The exit code: 1 where anything counts against a kind of values, or there is no kube-score."""
    kube_score = build_kube_score()
    if kube_score is None:
        return 1
    is_clean = True
    for name, kind in KINDS.items():
        judged = judge(kube_score, kind)
        sys.stdout.write(f"== {name}\n{judged.text}")
        is_clean &= judged.is_clean
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
