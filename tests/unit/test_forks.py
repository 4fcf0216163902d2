"""A test process has gRPC's threads and starts Java, which PySpark does by a fork."""

import signal
import subprocess
import threading

import grpc

CHILDREN = 60
TIMEOUT_S = 60.0


def ignore_interrupts() -> None:
    """As PySpark has it; with any function there, Python forks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_children_come_to_be_while_grpc_is_at_work() -> None:
    """Each child ends well."""
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
        codes = [
            subprocess.run(
                ["/bin/true"], preexec_fn=ignore_interrupts, check=False, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S
            ).returncode
            for _ in range(CHILDREN)
        ]
    finally:
        is_over.set()
        thread.join()

    assert codes == [0] * CHILDREN
