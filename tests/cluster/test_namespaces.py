"""All that a node was given is taken away again, also when it fails."""

import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster import namespaces

pytestmark = pytest.mark.rest(because="a control plane is built for it; the gate renders the chart")

INSIDE = """
import subprocess, sys, time
from tests.cluster import namespaces
folder = namespaces.folder_inside()
namespaces.prepare(folder, host="node0", address="10.200.0.1")
subprocess.run(["ip", "link", "add", "left0", "type", "bridge"], check=True)
sleeper = subprocess.Popen(["sleep", "86399"], start_new_session=True)
for group in namespaces._cgroups(folder.name):
    (group / "pods").mkdir()
    (group / "cgroup.procs").write_text(str(sleeper.pid))
print(folder, flush=True)
assert namespaces.KERNEL_SETTINGS["kernel/panic"] in open("/proc/sys/kernel/panic").read()
sys.exit(3)
"""


def test_a_machine_that_fails_leaves_no_process_mount_network_group_or_folder(
    capfd: pytest.CaptureFixture[str],
) -> None:
    reason = namespaces.why_not()
    if reason is not None:
        pytest.skip(reason)
    mounts = Path("/proc/self/mounts").read_text()

    exit_code = namespaces.run_inside([sys.executable, "-c", INSIDE])

    folder = Path(capfd.readouterr().out.strip())
    assert exit_code == 3
    assert folder.name.startswith("headwater-node-")
    assert not folder.exists()
    assert not [group for group in namespaces._cgroups(folder.name) if group.exists()]
    assert not [each.pid for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "86399"]]
    assert Path("/proc/self/mounts").read_text() == mounts
    assert not Path("/sys/class/net/left0").exists()
