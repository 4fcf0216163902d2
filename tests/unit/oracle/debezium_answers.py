"""``tests/golden/oracle/value_converters.json``: Debezium's answers to types, handling modes and values of the log."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from libs.types.value_modes import (
    BinaryMode,
    DecimalMode,
    IntervalMode,
    OracleValueModes,
    TimePrecision,
    ZeroScaleMode,
)

_PATH: Final = Path("tests/golden/oracle/value_converters.json")
_CONNECT_NAMES: Final = {"float32": "float", "float64": "double"}


@dataclass(frozen=True, slots=True)
class Answer:
    """A column of a type, under properties of the connector."""

    source_type: str
    config: Mapping[str, str]
    literal: str
    """As the connector's parser hands it to its converters: a quoted text without its quotes."""
    connect_type: str
    schema_name: str | None
    parameters: Mapping[str, str] | None
    json: Any
    """The value, parsed."""

    def __str__(self) -> str:
        return "-".join((self.source_type, *self.config.values(), self.literal[:40]))


def _answers() -> tuple[Answer, ...]:
    return tuple(
        Answer(
            each["source_type"],
            each["config"],
            each["literal"],
            _CONNECT_NAMES.get(each["type"], each["type"]),
            each["name"],
            each.get("parameters"),
            json.loads(each["json"]),
        )
        for each in json.loads(_PATH.read_text(encoding="utf-8"))["answers"]
    )


ANSWERS: Final = _answers()


def modes_of(config: Mapping[str, str]) -> OracleValueModes:
    """The same choices in a source's document."""
    is_legacy = config.get("legacy.decimal.handling.strategy") == "true"
    return OracleValueModes(
        time_precision=TimePrecision(config.get("time.precision.mode", "adaptive")),
        decimal=DecimalMode(config.get("decimal.handling.mode", "precise")),
        binary=BinaryMode(config.get("binary.handling.mode", "bytes")),
        interval=IntervalMode(config.get("interval.handling.mode", "numeric")),
        zero_scale_numbers=ZeroScaleMode.INTEGER if is_legacy else ZeroScaleMode.EXACT,
    )
