"""The setting ``on_unseen_change`` of a source's document; ``unseen_rows`` carries it out.

Commands read documents, and load neither metrics nor a logger for it.
"""

import enum
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from libs.types.table import TableId

SHADOW_TABLES: Final = (r"_+.+_(gho|ghc|del)", r"_+.+_(new|old)")
"""Names of the tables that gh-ost and pt-online-schema-change fill, and put into a table's place."""


class UnseenAction(enum.Enum):
    """A reader's action after rows of a table changed unseen."""

    WARN = "warn"
    """Report it, and go on: tenants keep the rows as they were."""
    RESYNC = "resync"
    """Report it, empty the tenants' tables by a truncation, and read the table again while the log is followed."""
    HALT = "halt"
    """Stop before the statement, with its place."""


class UnseenPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of ``on_unseen_change``."""

    tables: str = ".*"
    """A regular expression that matches the whole ``database.table``."""
    action: UnseenAction


class TellingPolicy(UnseenPolicy, frozen=True, kw_only=True):
    """One rule of ``on_unseen_change`` of a source whose reader cannot empty a table and read it again at a statement."""

    def __post_init__(self) -> None:
        if self.action is UnseenAction.RESYNC:
            raise ValueError(
                "resync is there for MySQL sources alone; say warn or halt, and run `headwater resync TENANT TABLE` afterwards"
            )


def action_for(policies: Sequence[UnseenPolicy], table_id: TableId) -> UnseenAction:
    """That of the first rule that names the table; WARN where none does."""
    return next((each.action for each in policies if re.fullmatch(each.tables, str(table_id))), UnseenAction.WARN)
