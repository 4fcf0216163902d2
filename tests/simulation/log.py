"""The replacement of structlog's loggers: lines of a run's trace."""

import traceback
from typing import Any, Final

from tests.simulation import scheduler


class _Log:
    """structlog's logger; its lines are part of the trace."""

    def bind(self, **_: object) -> "_Log":
        """Itself."""
        return self

    def __getattr__(self, level: str) -> Any:
        def line(event: str, **facts: object) -> None:
            here = scheduler.current()
            if here is not None and here.traces:
                here.note(f"{level}: {event} {facts or ''}")
                if level == "exception":
                    here.note(traceback.format_exc())

        return line


LOG: Final = _Log()
