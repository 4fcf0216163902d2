"""Ports that were given are nobody else's, in this process or another."""

import subprocess
import sys

from libs.servers import ports


def _asked_elsewhere(port: int) -> bool:
    """Whether another process is given ``port``."""
    program = f"from libs.servers import ports; print(ports._is_reserved({port}))"
    return (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "True\n"
    )


def test_a_port_that_was_given_is_given_to_nobody_else() -> None:
    given = ports.free_port()

    assert not ports._is_reserved(given)
    assert not _asked_elsewhere(given)


def test_a_port_is_free_again_with_the_end_of_its_process() -> None:
    program = "from libs.servers.ports import free_port; print(free_port())"
    given = int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)

    assert _asked_elsewhere(given)
