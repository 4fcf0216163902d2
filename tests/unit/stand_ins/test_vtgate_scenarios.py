"""Every scenario of Vitess's own end-to-end tests has a test of the stand-in that is named by its id."""

import json
import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
WITH_VALUES = {
    "keyspace-heartbeat-tables-on": "keyspace-heartbeat-tables",
    "keyspace-heartbeat-tables-off": "keyspace-heartbeat-tables",
}
"""One test, run with both."""
NOT_SHOWN = {"keyspaces-to-watch": "limits what a vtgate discovers; the stand-in is told its keyspaces"}


def test_every_scenario_has_its_test() -> None:
    scenarios = json.loads((TESTS / "golden/cases/h_vitess_vstream.json").read_text(encoding="utf-8"))["scenarios"]
    files = (TESTS / "integration").glob("test_vtgate_*.py")
    shown = {
        name.replace("_", "-")
        for file in files
        for name in re.findall(r"^def test_(\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    ids = {scenario["id"] for scenario in scenarios}

    assert {WITH_VALUES.get(each, each) for each in ids} - NOT_SHOWN.keys() <= shown
    assert NOT_SHOWN.keys() <= ids
    assert not NOT_SHOWN.keys() & shown
