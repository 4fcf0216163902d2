"""A test process has gRPC's threads and starts Java, which PySpark does by a fork."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import grpc

CHILDREN = 60
TIMEOUT_S = 60.0


def ignore_interrupts() -> None:
    """As PySpark has it; with any function there, Python forks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def exit_codes() -> list[int]:
    """Of children that come to be while gRPC is at work in this process."""
    is_over = threading.Event()
    is_begun = threading.Event()

    def call() -> None:
        with grpc.insecure_channel("127.0.0.1:9") as channel:  # nobody listens there
            ask = channel.unary_unary("/nobody/Asks")
            while not is_over.is_set():
                try:
                    ask(b"", timeout=1)
                except grpc.RpcError:
                    is_begun.set()

    thread = threading.Thread(target=call)
    thread.start()
    try:
        assert is_begun.wait(30)
        return [
            subprocess.run(
                ["/bin/true"], preexec_fn=ignore_interrupts, check=False, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S
            ).returncode
            for _ in range(CHILDREN)
        ]
    finally:
        is_over.set()
        thread.join()


def test_children_come_to_be_while_grpc_is_at_work() -> None:
    """Each child ends well. A small process has them, set up as all tests are: a fork of a worker takes a third of a second."""
    command = [sys.executable, "-m", __name__]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=5 * TIMEOUT_S)

    assert json.loads(done.stdout) == [0] * CHILDREN


if __name__ == "__main__":
    print(json.dumps(exit_codes()))  # noqa: T201
