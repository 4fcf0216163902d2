"""The function that atheris calls with each input, in the process that ``python -m tests.fuzz`` starts.

Python modules of the decoder are instrumented as they are imported; the compiled ones come from ``HEADWATER_FUZZ_MODULES``,
built with coverage counters and AddressSanitizer.
"""

import functools
import importlib
import os
import sys

import atheris

COMPILED = ("services.dts_decoder", "libs.events", "libs.formats")


def _prefer_instrumented(folder: str) -> None:
    """The compiled modules of ``folder`` stand before those beside their sources."""
    for package in COMPILED:
        importlib.import_module(package).__path__.insert(0, os.path.join(folder, *package.split(".")))  # noqa: PTH118


_prefer_instrumented(os.environ["HEADWATER_FUZZ_MODULES"])
with atheris.instrument_imports(include=["services.dts_decoder"]):
    from libs.mysql import logical
    from services.dts_decoder import values
    from tests.fuzz.dts_input import take

# Half of an input's time went into reading the same columns' types again.
values.parse_column_type = logical.parse_column_type = functools.lru_cache(4_096)(values.parse_column_type)


if __name__ == "__main__":
    atheris.Setup(sys.argv[1:], take)  # the name that libFuzzer starts itself again by, and its arguments
    atheris.Fuzz()
