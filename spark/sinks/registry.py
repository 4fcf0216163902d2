"""Every kind of warehouse by the name that tenants' documents use. A new one is one folder and one line here."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from libs.config.load import convert_document
from spark.sinks.places import local_folders
from spark.sinks.port import Sink

SINKS: Final[Mapping[str, str]] = {
    "clickhouse": "spark.sinks.clickhouse",
    "delta": "spark.sinks.delta",
    "iceberg": "spark.sinks.iceberg",
    "postgresql": "spark.sinks.postgresql",
}
"""Each folder has ``settings.Settings`` (for ``warehouses.<name>`` of the job's settings) and ``sink.open_sink``.

Settings of a warehouse that may lie in folders of this machine say by ``places`` where it lies, by the name of the field.
"""


def open_sinks(
    warehouses: Mapping[str, Any], *, mistakes: list[str], shared_dirs: Sequence[str] | None = None
) -> dict[str, Sink]:
    """The sinks of the job's settings, by name; every mistake is appended, place first.

    ``shared_dirs``: the folders that all executors see as this machine does; a warehouse in any other is a mistake. None: there
    are no executors.
    """
    sinks: dict[str, Sink] = {}
    for name, document in warehouses.items():
        place = f"warehouses.{name}"
        if name not in SINKS:
            mistakes.append(f"{place}: is no warehouse; known: {', '.join(sorted(SINKS))}")
            continue
        settings_type = importlib.import_module(f"{SINKS[name]}.settings").Settings
        settings = convert_document(settings_type, document, place=place, mistakes=mistakes)
        unseen = [] if settings is None or shared_dirs is None else _unseen(settings, shared_dirs)
        mistakes.extend(f"{place}.{mistake}" for mistake in unseen)
        if settings is not None and not unseen:
            sinks[name] = importlib.import_module(f"{SINKS[name]}.sink").open_sink(settings)
    return sinks


def _unseen(settings: Any, shared_dirs: Sequence[str]) -> list[str]:
    """The folders that executors do not see, and the remedy."""
    folders = local_folders(getattr(settings, "places", {}))
    shared = [Path(each) for each in shared_dirs]
    return [
        f"{name}: {folder} is a folder of the driver's pod, and executors would each write into one of their own; name an "
        "object store (s3://...) with a catalog that is a service, or a folder on a volume that all of them mount (in the "
        "chart sink.extraVolumes with ReadWriteMany), or leave the executors out"
        for name, folder in folders.items()
        if not any(folder.is_relative_to(each) for each in shared)
    ]
