"""Loads structlog without rich, which it takes where it finds it, for coloured tracebacks, which a service never shows.

A service's ``__main__`` imports it before all else of ours. The images do not have rich; where the services share the headwater
command's environment, which needs it, this makes both alike. A later import of rich finds it.
"""

import sys

if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # an import of it fails (Python, "The module cache")
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
