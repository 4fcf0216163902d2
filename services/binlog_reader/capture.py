"""Which tables a reader captures, and which transactions: tables by name, transactions by the server that numbered them."""

import re
from collections.abc import Callable

from libs.mysql.gtid import server_filter
from libs.types.table import TableId
from services.binlog_reader.settings import BinlogReaderSettings


def capture_filter(settings: BinlogReaderSettings) -> Callable[[TableId], bool]:
    """Whether a table is captured, by the settings' regular expressions."""
    include = [re.compile(pattern) for pattern in settings.include_tables]
    exclude = [re.compile(pattern) for pattern in settings.exclude_tables]
    shadow = [re.compile(pattern) for pattern in settings.shadow_tables]
    system = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
    known: dict[TableId, bool] = {}

    def is_captured(table_id: TableId) -> bool:
        if table_id not in known:
            name = str(table_id)
            known[table_id] = (
                table_id.database not in system
                and (name == settings.signal_table or any(pattern.fullmatch(name) for pattern in include))
                and not any(pattern.fullmatch(name) for pattern in exclude)
                and not any(pattern.fullmatch(table_id.table) for pattern in shadow)
            )
        return known[table_id]

    return is_captured


def gtid_filter(settings: BinlogReaderSettings) -> Callable[[str], bool]:
    """Whether rows of transactions that a server (its uuid) numbered are passed over."""
    return server_filter(settings.gtid_source_includes, settings.gtid_source_excludes)
