"""``bench/RESULTS.md``: a section for each part, each with the day and the machine that it was measured on.

A part that is measured again replaces its own section, and leaves the others as they are.
"""

import datetime
import os
import platform
import re
from collections.abc import Mapping, Sequence
from typing import Final

_HEAD: Final = """# Results

Written by `make bench`, or a section by `python -m bench PART`; do not edit.
"""


def measured_now(section: str, *, load_before: float) -> str:
    """``section`` (its title first) with a line that says when and on what it was measured."""
    title, _, rest = section.partition("\n")
    when = (
        f"Measured on {datetime.datetime.now(datetime.UTC):%Y-%m-%d} with {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, load average {load_before:.1f} before it."
    )
    return f"{title}\n\n{when}\n{rest}"


def with_sections(document: str, measured: Mapping[str, str], order: Sequence[str]) -> str:
    """``document`` with the sections ``measured``, in ``order``: both by titles up to the colon, as ``many-tables``."""
    kept = {_name(section): section for section in re.split(r"(?m)^(?=## )", document) if section.startswith("## ")}
    sections = {**kept, **measured}
    return "\n".join([_HEAD, *(sections[name].rstrip() + "\n" for name in order if name in sections)])


def _name(section: str) -> str:
    return section.removeprefix("## ").partition(":")[0].lower().replace(" ", "-")
