"""The Helm chart as a package and as a folder in OCI's image layout: ``python -m tests.cluster.chart_package`` (`make chart`).

``helm install NAME dist/headwater-0.1.0.tgz`` takes the package. Tools such as skopeo and oras copy the layout to a registry,
from which ``helm install NAME oci://…`` takes it. Helm itself writes no layout. The media types are those that it pushes
(Helm documentation, "Use OCI-based registries").
"""

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.helm import HelmClient, RunsHelm
from tests.cluster.programs import REPOSITORY, helm_program

CHART: Final = REPOSITORY / "charts" / "headwater"
DIST: Final = REPOSITORY / "dist"
CONFIG_TYPE: Final = "application/vnd.cncf.helm.config.v1+json"
CONTENT_TYPE: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"


def package(helm: RunsHelm, folder: Path) -> Path:
    """``helm package`` of the chart into ``folder``; the archive's path.

    Raises:
        AssertionError: with Helm's words, where it refuses the chart.
    """
    helm.helm("package", str(CHART), "--destination", str(folder))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return folder / f"{chart['name']}-{chart['version']}.tgz"


def write_layout(archive: Path, folder: Path) -> None:
    """Write ``archive`` into ``folder`` as OCI's image layout, tagged with the chart's version; an older one is replaced."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "blobs" / "sha256").mkdir(parents=True)

    def blob(content: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (folder / "blobs" / "sha256" / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": blob(json.dumps(chart).encode(), CONFIG_TYPE),
        "layers": [blob(archive.read_bytes(), CONTENT_TYPE)],
    }
    entry = blob(json.dumps(manifest).encode(), MANIFEST_TYPE)
    entry["annotations"] = {"org.opencontainers.image.ref.name": chart["version"]}
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [entry]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def main() -> int:
    """Write both into ``dist/``; the exit code."""
    program = helm_program()
    if program is None:
        sys.stderr.write("make chart failed: helm could not be fetched; check the network\n")
        return 1
    DIST.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headwater-helm-") as homes:
        archive = package(HelmClient(program, Path(homes)), DIST)
    layout = DIST / "headwater-chart.oci"
    write_layout(archive, layout)
    sys.stdout.write(f"{archive.relative_to(REPOSITORY)}\n{layout.relative_to(REPOSITORY)}/\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
