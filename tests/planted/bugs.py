"""One bug for each of ten promises of the README: the change of code that plants it, and the tests of the gate that have to
fail."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """``text`` in ``file`` becomes ``instead``."""

    name: str
    promise: str
    """Of ``tests.promises``."""
    file: str
    text: str
    """Stands in the file once."""
    instead: str
    caught_by: str
    """A test of the gate, as pytest names it."""


BUGS: Final = (
    PlantedBug(
        "aborted",
        "once and in order",
        "services/router/app.py",
        'processing_guarantee="exactly_once",',
        'processing_guarantee="at_least_once",',
        "tests/integration/test_router.py::test_every_committed_event_arrives_once_and_in_order",
    ),
    PlantedBug(
        "mask",
        "what a tenant gets",
        "services/router/delivery/rows_at_once.py",
        "masked_values(pieces, tuple(projection.masks.values()), places)",
        "masked_values(pieces, (bytes,) * len(projection.masks), places)",
        "tests/integration/test_router.py::test_tenants_get_what_their_documents_say",
    ),
    PlantedBug(
        "resume",
        "killed reader",
        "libs/source/follow.py",
        "async with source.open(checkpoint, identity) as change_log:",
        "async with source.open(None, identity) as change_log:",
        "tests/integration/test_binlog_reader.py::test_a_reader_killed_anywhere_loses_and_repeats_nothing",
    ),
    PlantedBug(
        "offset",
        "router's transaction",
        "services/router/kafka/writer.py",
        "offsets = {self._place: (next_offset, note)}",
        "offsets = {self._place: (max(0, next_offset - 1), note)}",
        "tests/faults/test_router_kills.py::test_killed_at_each_crash_point_nothing_is_lost_or_repeated",
    ),
    PlantedBug(
        "replay",
        "batch run again",
        "spark/sinks/iceberg/sink.py",
        "return newest is not None and newest.batch == str(batch)",
        "return False",
        "tests/contract/test_sinks.py::test_a_sink_keeps_its_promises",
    ),
    PlantedBug(
        "latest",
        "every warehouse",
        "spark/transforms/latest_per_key.py",
        "latest = sf.max_by(",
        "latest = sf.min_by(",
        "tests/unit/spark/test_transforms.py",
    ),
    PlantedBug(
        "preflight",
        "pre-flight",
        "libs/mysql/preflight.py",
        "faults = [*_setting_faults(variables, needs_full_images), *_grant_faults(grants)]",
        "faults = [*_grant_faults(grants)]",
        "tests/integration/test_mysql_preflight.py::test_all_faults_are_listed_at_once_and_their_mends_mend_them",
    ),
    PlantedBug(
        "check",
        "check",
        "libs/check/compare.py",
        "    found.rows_different += 1\n",
        "    found.rows_different += 0\n",
        "tests/integration/test_check.py::test_each_planted_fault_is_found_where_it_is",
    ),
    PlantedBug(
        "plan",
        "tenant plan",
        "libs/operations/tenant_plan.py",
        "yield PlannedTable(change=NEW, fate=after[key])",
        "yield PlannedTable(change=AS_BEFORE, fate=after[key])",
        "tests/integration/test_tenant_commands.py::test_a_plan_tells_tables_columns_rows_topics_and_settings",
    ),
    PlantedBug(
        "status",
        "commands",
        "libs/cli/status.py",
        "        not found.faults\n",
        "        found.faults is not None\n",
        "tests/unit/cli/test_command.py",
    ),
)
