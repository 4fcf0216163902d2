"""The sink job: tenants' topics into their warehouse tables. ``python -m spark.jobs.sink_job --settings FILE``.

One Spark session serves one tenant or several packed. Each has a query of its own (``spark.tenant.query``), whose micro-batches
run in turns that all share (``spark.tenant.turns``). This module only wires: settings, session, the tenants'
documents, SIGTERM.

Exit codes are those of every service: 0 stopped, 1 start again, 2 settings, 3 every tenant is halted, or another job has one.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from libs.config.load import load_settings
from libs.errors import Fenced, InvalidSettings, PipelineHalted
from libs.telemetry.endpoint import start_endpoint
from libs.telemetry.faults import STRAY_RECORDS, raise_again
from libs.telemetry.log import configure_logging
from libs.tenants.document import TenantFolder
from spark.jobs.fleet import Fleet
from spark.settings import SinkJobSettings
from spark.sinks.port import KeepsFiles, Sink
from spark.sinks.registry import open_sinks

NAME: Final = "sink_job"
EXIT_RESTART: Final = 1
EXIT_INVALID_SETTINGS: Final = 2
EXIT_HALTED: Final = 3
_SUPERVISE_EVERY_S: Final = 1.0
# Of the 10 s that a supervisor gives. Nothing is lost by leaving in the middle: a batch that is cut off comes again.
_STOP_WITHIN_S: Final = 9.0

log = structlog.get_logger()


def main(argv: Sequence[str]) -> int:
    """Run until SIGTERM; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spark.jobs.sink_job")
    parser.add_argument("--settings", type=Path, help="YAML file; HEADWATER_<NAME> in the environment wins over it")
    arguments = parser.parse_args(argv)
    stop = threading.Event()
    _stop_on_signals(stop)
    try:
        settings = load_settings(SinkJobSettings, path=arguments.settings, environ=os.environ, subject=NAME)
        configure_logging(NAME, settings.telemetry)
        mistakes: list[str] = []
        shared_dirs = settings.session.shared_dirs if settings.session.has_executors else None
        sinks = open_sinks(settings.warehouses, mistakes=mistakes, shared_dirs=shared_dirs)
        mistakes += gone_with_the_job(settings, sinks)
        if mistakes:
            raise InvalidSettings(NAME, mistakes)
        serve(settings, sinks, stop)
    except InvalidSettings as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_INVALID_SETTINGS
    except Exception as error:
        code = EXIT_HALTED if isinstance(error, PipelineHalted | Fenced) else EXIT_RESTART
        log.error("service_failed", error=type(error).__name__, reason=str(error), exit_code=code, exc_info=True)
        return 0 if stop.is_set() else code
    log.info("service_stopped")
    return 0


def serve(settings: SinkJobSettings, sinks: Mapping[str, Sink], stop: threading.Event) -> None:
    """Serve the tenants until ``stop``.

    Raises:
        TransientError: the session died; start the job again.
        PipelineHalted: every tenant is halted; the log has each one's reason.
        Fenced: another job writes the state of a tenant of this one.
        InvalidSettings: the tenants' folder or the jars are missing.
    """
    folder = TenantFolder(Path(settings.tenants_dir), state_folder=Path(settings.state_dir) / "tenants")
    fleet = Fleet(settings, sinks)
    raise_again(STRAY_RECORDS, lambda _: True)
    endpoint = start_endpoint(settings.telemetry, alive=fleet.stalled, ready=fleet.not_ready)
    try:
        fleet.open()
        _stop_on_signals(stop)  # pyspark has taken SIGINT for itself
        log.info("service_started", http_port=endpoint.port, master=settings.session.master)
        while not stop.wait(_SUPERVISE_EVERY_S):
            tenants = folder.refresh()
            if tenants is not None:
                fleet.take_in(tenants)
            fleet.serve_tenants()
            fleet.supervise()
    finally:
        fleet.close()
        endpoint.close()


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _ask_to_stop(stop))


def _ask_to_stop(stop: threading.Event) -> None:
    last_resort = threading.Timer(_STOP_WITHIN_S, os._exit, args=(0,))
    last_resort.daemon = True
    last_resort.start()
    stop.set()  # last: a signal that comes while this very thread is inside ``stop.wait`` would wait for itself


def gone_with_the_job(settings: SinkJobSettings, sinks: Mapping[str, Sink]) -> list[str]:
    """Mistakes: warehouses on a volume that may end with the job, because its state is kept elsewhere. Their rows would be
    gone, and the state say that they are written."""
    if settings.state_store is None or settings.own_volume is None:
        return []
    volume = Path(settings.own_volume).resolve()
    return [
        f"warehouses.{name}: lies in {folder}, on the job's own volume, and with state_store that may end with the job; "
        "have it in an object store or a folder that jobs share, or leave state_store out"
        for name, sink in sinks.items()
        if isinstance(sink, KeepsFiles)
        for folder in sink.folders
        if folder.resolve().is_relative_to(volume)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
