"""aiokafka's own log lines: those that mean nothing wrong, or repeat, are left out."""

import logging
import time
from typing import Final


def quieten_aiokafka() -> None:
    """Leave out aiokafka's lines that mean nothing wrong, or repeat. Called once, when logs are set up.

    The sender's warnings are about attempts that are made again, such as the first produce to a new topic; an attempt that
    does not
    succeed at last ends in an error of ours. A topic that was made a moment ago is "not found" until the broker heard of it.
    """
    logging.getLogger("aiokafka.producer.sender").setLevel(logging.ERROR)
    logging.getLogger("aiokafka.cluster").addFilter(lambda line: "not found in cluster metadata" not in str(line.msg))
    for library in ("aiokafka", "aiokafka.consumer.fetcher", "aiokafka.consumer.group_coordinator"):
        logging.getLogger(library).addFilter(_NowAndThen())


class _NowAndThen:
    """Lets a line that repeats pass every 10 s: while a broker is away, each attempt to connect is one."""

    _INTERVAL_S: Final = 10.0

    def __init__(self) -> None:
        self._passed_at_s: dict[str, float] = {}

    def __call__(self, line: logging.LogRecord) -> bool:
        now_s, text = time.monotonic(), str(line.msg)
        if now_s < self._passed_at_s.get(text, -self._INTERVAL_S) + self._INTERVAL_S:
            return False
        self._passed_at_s[text] = now_s
        return True
