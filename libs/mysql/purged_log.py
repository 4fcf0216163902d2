"""A server's refusal because its log no longer holds the position that is asked for.

Error 1236 stands for everything that ends a dump of the log; only its text names the cause (MySQL source,
``sql/rpl_binlog_sender.cc``). vttablet passes the text on.
"""

from typing import Final

_TEXTS: Final = (
    "purged required",
    "purged binary logs",
    "could not find first log file",
    "more gtids than",
    "impossible position",
    "position > file size",
)


def reports_purged_log(text: str) -> bool:
    """Whether the text of an error 1236 is one of a log that is gone, from the place asked for on.

    >>> reports_purged_log("Could not find first log file name in binary log index file")
    True
    >>> reports_purged_log("log event entry exceeded max_allowed_packet")
    False
    """
    lowered = text.lower()
    return any(each in lowered for each in _TEXTS)
