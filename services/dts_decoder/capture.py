"""The tables that are captured."""

import re
from collections.abc import Callable

from libs.types.table import TableId
from services.dts_decoder.settings import DtsDecoderSettings


def capture_filter(settings: DtsDecoderSettings) -> Callable[[TableId], bool]:
    """Whether a table is captured, by the settings' regular expressions."""
    include = [re.compile(pattern) for pattern in settings.include_tables]
    exclude = [re.compile(pattern) for pattern in settings.exclude_tables]
    # __tencentdb__ is DTS's own (Tencent Cloud document 571/39531).
    hidden = frozenset({"mysql", "sys", "information_schema", "performance_schema", "__tencentdb__"})
    known: dict[TableId, bool] = {}

    def is_captured(table_id: TableId) -> bool:
        if table_id not in known:
            name = str(table_id)
            known[table_id] = (
                table_id.database not in hidden
                and any(pattern.fullmatch(name) for pattern in include)
                and not any(pattern.fullmatch(name) for pattern in exclude)
            )
        return known[table_id]

    return is_captured
