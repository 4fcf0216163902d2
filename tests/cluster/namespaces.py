"""A machine of one's own for a node: private namespaces for mounts, network, processes, host name and IPC.

A kubelet mounts, routes and starts processes wherever it runs. ``run_inside`` starts a program that sees our files, but whose
mounts, network and processes nobody else sees, and which the kernel ends and clears away as one: with the first process of the
namespace go all others, with the last one its mounts and its network. A folder and control groups are left outside, which
``run_inside`` removes itself. Root only.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

INSIDE: Final = "HEADWATER_NODE_FOLDER"
"""Of the environment inside: the folder that is the node's."""
UNSHARED: Final = ("--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child=KILL", "--mount-proc")
CGROUPS: Final = Path("/sys/fs/cgroup")
PROBE_TIMEOUT_S: Final = 60.0
REMOVAL_TIMEOUT_S: Final = 60.0
# A kubelet writes these, and they are the whole machine's: it is shown files that hold the values that it wants.
KERNEL_SETTINGS: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def why_not() -> str | None:
    """Why no such machine can be had here; None: it can."""
    if os.geteuid() != 0:
        return "a node needs root"
    for program in ("setpriv", "unshare", "ip", "iptables", "mount", "buildah", "debootstrap"):
        if shutil.which(program) is None:
            return f"the program {program} is missing"
    probe = (
        "ip link set lo up && ip link add probe0 type veth peer name probe1 && mount -t tmpfs tmpfs /mnt"
        " && iptables -t mangle -A INPUT -p tcp -m conntrack --ctstate NEW -j NFQUEUE"
    )
    tried = subprocess.run(
        ["unshare", *UNSHARED, "sh", "-c", probe], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
    )
    if tried.returncode != 0:
        return (
            f"namespaces, or a node's needs in them, are not to be had here: {(tried.stderr or tried.stdout).strip()}"
        )
    return None


def run_inside(command: Sequence[str]) -> int:
    """Run ``command`` on a machine of its own, and take that away; the command's exit code. Blocks."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-node-"))
    try:
        # A shell is the first process, which waits for orphans' ends as an init does; exec would make it the command itself.
        return subprocess.run(
            # Killed with -9, this process takes the machine with it too, and leaves the folder and the control groups.
            ["setpriv", "--pdeathsig", "KILL", "--", "unshare", *UNSHARED, "sh", "-c", '"$@"; exit $?', "sh", *command],
            env={**os.environ, INSIDE: str(folder)},
            check=False,
        ).returncode
    finally:
        _remove_cgroups(folder.name)
        shutil.rmtree(folder)


def folder_inside() -> Path | None:
    """The node's folder; None: this process has no machine of its own."""
    told = os.environ.get(INSIDE)
    return Path(told) if told else None


def prepare(folder: Path, *, host: str, address: str) -> None:
    """Make the mounts and control groups that a kubelet and containerd need; nobody outside sees the mounts.

    ``host`` at ``address`` is the machine's own name, and the server that it asks for names.

    Raises:
        CalledProcessError: a mount was refused.
    """
    upper, work, shown = folder / "var", folder / "var.work", folder / "kernel"
    for path in (upper, work, shown):
        path.mkdir()
    _run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/var,upperdir={upper},workdir={work}", "/var")
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for name in ("lock", "netns"):
        (Path("/run") / name).mkdir()
    for setting, value in KERNEL_SETTINGS.items():
        stand_in = shown / setting.replace("/", ".")
        stand_in.write_text(f"{value}\n")
        _run("mount", "--bind", str(stand_in), f"/proc/sys/{setting}")
    # Names are asked of the node, at once: a server that looks up its callers waits long for one that nobody reaches.
    for name, text in (
        ("hosts", f"127.0.0.1 localhost\n{address} {host}\n"),
        ("resolv.conf", f"nameserver {address}\n"),
    ):
        (shown / name).write_text(text)
        _run("mount", "--bind", str(shown / name), f"/etc/{name}")
    socket.sethostname(host)  # Java asks for the address of its own name
    for group in _cgroups(folder.name):
        group.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, and then nothing may enter it
            if (group / name).exists():
                (group / name).write_text((group.parent / name).read_text())


def cgroup(folder: Path) -> str:
    """The control group under which the node's pods are."""
    return f"/{folder.name}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _cgroups(name: str) -> Iterator[Path]:
    """The group of that name in each hierarchy."""
    if (CGROUPS / "cgroup.controllers").exists():
        yield CGROUPS / name
        return
    for hierarchy in sorted(CGROUPS.iterdir()):
        if hierarchy.is_dir() and not hierarchy.is_symlink():
            yield hierarchy / name


def _remove_cgroups(name: str) -> None:
    """They are empty once the kernel has ended the last process, which takes it a moment."""
    deadline = time.monotonic() + REMOVAL_TIMEOUT_S
    for root in _cgroups(name):
        while root.is_dir():
            for group, _, _ in os.walk(root, topdown=False):
                with contextlib.suppress(OSError):
                    Path(group).rmdir()
            if not root.is_dir() or time.monotonic() > deadline:
                break
            time.sleep(0.2)
