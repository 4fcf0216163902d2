"""One version of a captured table, as its rows become events."""

from dataclasses import dataclass

from libs.events.envelope import OracleSourceBlock
from libs.oracle.redo import RedoDecoder
from libs.oracle.redo_rows import PlainRows
from libs.types.table import TableSchema


@dataclass(frozen=True, slots=True)
class TableVersion:
    """How rows of one version of a table become events."""

    schema: TableSchema
    decoder: RedoDecoder
    block: OracleSourceBlock
    lacking: frozenset[str]
    """Columns whose values the log may lack, and that are to be read again; none where nothing is."""

    @property
    def plain(self) -> PlainRows:
        """Reads its rows in plain Python."""
        return self.decoder.plain
