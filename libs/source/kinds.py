"""Every kind of source, and the service that reads it: the one line that a new reader adds.

The service is named by a string, so that no arrow points up from here. The contract suite runs for each kind.
"""

from typing import Final

READER_OF_KIND: Final = {
    "mysql": "services.binlog_reader",
    "vitess": "services.vstream_reader",
    "dts": "services.dts_decoder",
    "oracle": "services.logminer_reader",
}
KINDS_WITHOUT_SIGNALS: Final = frozenset({"dts"})
"""Kinds whose readers copy nothing again: their input holds changes only."""
