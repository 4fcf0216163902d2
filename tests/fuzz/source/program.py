"""A program: the statements of some sessions in their order, and the words that are to come of them. Its text is SQL.

    -- found: the fault, in a line
    -- reported: fz_a.t, rows changed unseen          (where the difference is to be reported; without it there is to be none)
    -- values: {"decimal": "string"}
    -- [a]
    CREATE TABLE t (id INT);
    -- [reader]
    restart;

``[a]``, ``[b]`` and ``[x]`` are sessions. ``[reader]`` is asked to ``restart``, to ``copy`` all tables by an incremental
snapshot, or to ``begin``: all before it is there when the reader begins. Without a ``begin`` it begins first.
``tests.fuzz.views`` has tenants too, each a line ``-- tenant: {…}``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from libs.types.value_modes import DEFAULT_MODES, ValueModes

READER: Final = "reader"
BEGIN: Final = "begin"
RESTART: Final = "restart"
COPY: Final = "copy"
DATABASES: Final = ("fz_a", "fz_b")
"""The captured ones, which every program begins with, each with an empty table ``t0``; ``fz_a`` is each session's default."""
_HEADER: Final = re.compile(r"^-- (found|reported|values|key|tenant): (.*)$")
_SESSION: Final = re.compile(r"^-- \[(\w+)\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    """A statement of a session, or an order to the reader."""

    session: str
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    steps: tuple[Step, ...]
    values: ValueModes = DEFAULT_MODES
    found: str = ""
    reported: str = ""
    """A part of the words that report the difference; empty: there is to be none."""
    tenants: tuple[str, ...] = ()
    """Their views, of programs of ``tests.fuzz.views``."""
    key: str = ""
    """The column that ``key_columns`` chooses; empty: none."""

    def text(self) -> str:
        """As SQL."""
        header = [f"-- found: {self.found}"] if self.found else []
        header += [f"-- reported: {self.reported}"] if self.reported else []
        if self.values != DEFAULT_MODES:
            header.append(f"-- values: {msgspec.json.encode(self.values).decode()}")
        header += [f"-- key: {self.key}"] if self.key else []
        header += [f"-- tenant: {tenant}" for tenant in self.tenants]
        return "\n".join([*header, *(f"-- [{step.session}]\n{step.text};" for step in self.steps)]) + "\n"


def parse(text: str) -> Program:
    """The program of that text. Raises ValueError, ValidationError."""
    first = _SESSION.search(text)
    if first is None:
        raise ValueError("a program without a statement")
    lines = [_HEADER.fullmatch(line) for line in text[: first.start()].splitlines()]
    header = {line[1]: line[2] for line in lines if line is not None}
    tenants = tuple(line[2] for line in lines if line is not None and line[1] == "tenant")
    parts = _SESSION.split(text)[1:]
    return Program(
        steps=tuple(Step(name, _statement(body)) for name, body in zip(parts[::2], parts[1::2], strict=True)),
        values=msgspec.json.decode(header.get("values", "{}"), type=ValueModes),
        found=header.get("found", ""),
        reported=header.get("reported", ""),
        tenants=tenants,
        key=header.get("key", ""),
    )


def _statement(body: str) -> str:
    return body.removeprefix("\n").rstrip("\n").removesuffix(";")


def without(steps: Sequence[Step], begin: int, end: int) -> tuple[Step, ...]:
    """``steps`` but some."""
    return (*steps[:begin], *steps[end:])
