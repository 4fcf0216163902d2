"""The tests that ``make test`` leaves to ``make test-long``: they show of one warehouse or stack what others show of another.

``make test`` is for every change and for a machine of two cores. A commit of Delta's takes five times the processor's time of
one of Iceberg's there, a life of a sink job half a minute, a stack of all services some minutes. Every promise of a sink,
every kind of warehouse and a kill of every process is in ``make test`` once at least. What kills around moves, resyncs, dead
letters and consistent tables show, and whole stacks of erasing, joining, resyncing and signals, is here alone: of these
``make test`` has what they are made of. Both together are all tests.
"""

import re
from typing import Final

SHOWN_BY_ANOTHER_WAREHOUSE: Final = (
    r"contract/test_sinks\.py::test_a_sink_keeps_its_promises\[delta-(?!"
    r"late_and_repeated_changes_change_nothing|append_keeps_every_change|a_replay_adds_nothing|"
    r"columns_of_every_kind_are_filled|a_table_is_built_anew_whatever_it_held).*",
    r"unit/spark/test_history\.py::(?!test_a_change_ends_one_version).*delta\]",
    r"unit/spark/test_history\.py::test_(?!a_change_ends|any_batches|values_of_every_kind).*postgresql\]",
    r"unit/spark/test_history\.py::test_(?!a_change_ends|a_version_that_was_joined|any_batches|values_of_every_kind).*clickhouse.*\]",
    r"unit/spark/test_history\.py::test_any_batches.*clickhouse, by several tasks\]",
    r"unit/spark/test_history\.py::test_(?!any_batches).*iceberg, by a filter\]",
    r"unit/spark/test_history\.py::test_any_batches_give_the_versions_of_the_whole\[1-.*",
    r"integration/test_consistency\.py::test_money_is_always_there_for_whoever_asks_postgresql",
    r"integration/test_dead_letters\.py::test_a_refused_row_waits.*\[(clickhouse|delta)\]",
    r"integration/test_dead_letters\.py::test_a_log_has_every_change.*\[(clickhouse|delta|postgresql)\]",
    r"integration/test_delta_sink\.py::test_(a_table_that_was_widened|files_that_nobody_needs).*",
    r"integration/test_first_load\.py::test_a_copy_is_what_merges_make_of_it\[delta\]",
    r"integration/test_iceberg_catalogs\.py::.*\[(hadoop|jdbc|hive)-.*",
    r"integration/test_late_events\.py::test_a_late_event_brings_no_deleted_row_back\[(clickhouse|delta)\]",
    r"integration/test_late_events\.py::test_a_late_event_brings_no_truncated_row_back\[(clickhouse|delta|postgresql)\]",
    r"integration/test_live_check_catalogs\.py::.*\[rest\]",
    r"integration/test_live_clickhouse\.py::.*",
    r"integration/test_parked_tables\.py::test_what_a_try_.*(clickhouse|delta|postgresql).*",
    r"integration/test_rebuild\.py::test_the_rows_are_those.*\[(iceberg-Images\.AFTER|delta-.*)\]",
    r"integration/test_resync\.py::test_a_doubted_table.*\[(clickhouse|delta)\]",
    r"integration/test_resync\.py::test_(rows_that_were|a_table_that_is_empty).*\[(clickhouse|delta|postgresql)\]",
    r"integration/test_time_travel\.py::test_delta_tables.*",
    r"integration/test_variant_columns\.py::test_(?!check).*\[delta\]",
    r"faults/test_commit_kills\.py::.*_of_(deltas|postgresqls|a_rest_catalogs)_.*",
    r"faults/test_sink_kills\.py::test_killed_at_every_failpoint.*\[(clickhouse|delta|postgresql)\]",
)
SHOWN_BY_ANOTHER_MODE: Final = (
    r"differential/test_values_side_by_side\.py::test_the_same_values\[(adaptive|connect|url-safe)\]",
    r"integration/test_resync\.py::test_(a_history_is_swapped|rows_of_a_snapshot).*",
)
SHOWN_AT_ANOTHER_POINT: Final = (
    r"integration/test_vstream_reshard_in_copy\.py::test_readers_killed_at_random.*-[2-5]\]",
    r"faults/test_commit_kills\.py::.*_move_together_.*",
    r"faults/test_consistency_kills\.py::.*",
    r"faults/test_sink_kills\.py::test_killed_around.*",
    r"faults/test_kept_state_kills\.py::test_(?!killed_with_its_folder).*",
    r"faults/test_router_kills\.py::test_killed_at_a_crash_point.*\[(router_after_offsets_before_commit|router_after_commit)\]",
    r"faults/test_router_straggler_kills\.py::test_killed_while_a_tenant_is_behind.*\["
    r"(router_after_leaving_before_commit|router_straggler_after_offset_before_commit|router_straggler_after_commit)\]",
)
SHOWN_BY_ANOTHER_STACK: Final = (
    r"e2e/test_demo\.py::test_the_demo_follows_other_sources.*",
    r"faults/test_move_kills\.py::.*",
    r"integration/test_live_(delta|joining|postgresql|resync|erase|signals)\.py::.*",
)
PATTERNS: Final = (
    *SHOWN_BY_ANOTHER_WAREHOUSE,
    *SHOWN_BY_ANOTHER_MODE,
    *SHOWN_AT_ANOTHER_POINT,
    *SHOWN_BY_ANOTHER_STACK,
)
_LONG: Final = re.compile("|".join(f"(?:{pattern})" for pattern in PATTERNS))


def is_long(test: str) -> bool:
    """Whether the test of that id, below ``tests/``, is left to ``make test-long``."""
    return _LONG.fullmatch(test) is not None
