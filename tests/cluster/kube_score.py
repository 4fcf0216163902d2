"""``make kube-score``: what kube-score thinks of the chart, as it is shipped and with everything switched on.

Beside the annotations in the chart, one rule is left out: CPU has requests and no limits, since a service that is held back
in the middle of a transaction delays every tenant behind it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import yaml

from tests.cluster.chart import CHART, FULL, LEAST, RELEASE, TRIAL
from tests.cluster.programs import build_kube_score, programs

KUBERNETES: Final = "v1.34"


def main() -> int:
    """The exit code: of the worst that it says; as it is shipped, where egress is open, warnings count for nothing."""
    kube_score = build_kube_score()
    if kube_score is None:
        return 1
    worst = 0
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        strictly = ("--exit-one-on-warning",)
        for name, values, options in (("least", LEAST, ()), ("full", FULL, strictly), ("trial", TRIAL, strictly)):
            file = Path(folder) / f"{name}.yaml"
            file.write_text(yaml.safe_dump(dict(values)))
            helm = (programs().helm, "template", RELEASE, CHART, "-n", "mesh", "-f", file)
            rendered = subprocess.run(helm, check=True, capture_output=True).stdout
            score = (
                kube_score,
                "score",
                "-",
                "--ignore-container-cpu-limit",
                "--kubernetes-version",
                KUBERNETES,
                *options,
            )
            sys.stdout.write(f"== {name}\n")
            sys.stdout.flush()
            worst = max(worst, subprocess.run(score, input=rendered, check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
