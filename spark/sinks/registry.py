"""Every kind of warehouse by the name that tenants' documents use. A new one is one folder and one line here."""

import importlib
from collections.abc import Mapping
from typing import Any, Final

from libs.config.load import convert_document
from spark.sinks.port import Sink

SINKS: Final[Mapping[str, str]] = {
    "clickhouse": "spark.sinks.clickhouse",
    "delta": "spark.sinks.delta",
    "iceberg": "spark.sinks.iceberg",
    "postgresql": "spark.sinks.postgresql",
}
"""Each folder has ``settings.Settings`` (what ``warehouses.<name>`` of the job's settings holds) and ``sink.open_sink``."""


def open_sinks(warehouses: Mapping[str, Any], *, mistakes: list[str]) -> dict[str, Sink]:
    """The sinks of the job's settings, by name; every mistake is appended, place first."""
    sinks: dict[str, Sink] = {}
    for name, document in warehouses.items():
        place = f"warehouses.{name}"
        if name not in SINKS:
            mistakes.append(f"{place}: is no warehouse; known: {', '.join(sorted(SINKS))}")
            continue
        settings_type = importlib.import_module(f"{SINKS[name]}.settings").Settings
        settings = convert_document(settings_type, document, place=place, mistakes=mistakes)
        if settings is not None:
            sinks[name] = importlib.import_module(f"{SINKS[name]}.sink").open_sink(settings)
    return sinks
