"""PL/SQL blocks, as drivers and readers send them: calls, assignments of variables, cursors, statements one by one."""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, Protocol

from libs.stand_ins.oracle import sql
from libs.stand_ins.oracle.answers import Answer, Cursors, Done, Rows, Value
from libs.stand_ins.oracle.logminer import OPTIONS
from libs.stand_ins.oracle.sql import Queries

_CALL: Final = re.compile(r"\s*([\w.$#]+)\s*(?:\((.*)\))?\s*\Z", re.DOTALL)
_ARGUMENT: Final = re.compile(r"\s*(?:(\w+)\s*=>)?\s*(.*?)\s*\Z", re.DOTALL)
_ASSIGNED: Final = re.compile(r"\s*(:?\w+)\s*:=\s*(.*?)\s*\Z", re.DOTALL)
_OPEN: Final = re.compile(r"\s*OPEN\s+(:?\w+)\s+FOR\s+(.*)\Z", re.IGNORECASE | re.DOTALL)
_BEGIN: Final = re.compile(r"\A(.*?)\bBEGIN\b", re.IGNORECASE | re.DOTALL)
_END: Final = re.compile(r"\bEND\s*\w*\s*;?\s*\Z", re.IGNORECASE)
_PARAMETERS: Final = {
    "ADD_LOGFILE": ("LOGFILENAME", "OPTIONS"),
    "REMOVE_LOGFILE": ("LOGFILENAME",),
    "START_LOGMNR": ("STARTSCN", "ENDSCN", "STARTTIME", "ENDTIME", "DICTFILENAME", "OPTIONS"),
}


class Runner(Protocol):
    """The session that runs a block."""

    def call(self, package: str, procedure: str, arguments: Mapping[str, Value]) -> None:
        """A package's procedure, or ``OracleError``."""
        ...

    def carry_out(self, statement: str, binds: Sequence[Value]) -> Answer:
        """A statement of SQL, or ``OracleError``."""
        ...


class _Names:
    """A block's variables and bind variables: the values they have, and the cursors that were opened for them."""

    def __init__(self, block: str, binds: Sequence[Value]) -> None:
        self.values: dict[str, Value] = {f":{name}": value for name, value in sql.named_binds(block, binds).items()}
        self.places = {name: place for place, name in enumerate(self.values)}
        self.cursors: dict[str, Rows] = {}

    def value(self, text: str) -> Value:
        """Of an expression: one thing, or a sum of a package's constants."""
        values = [self._value(part.strip()) for part in split(text, "+")]
        return values[0] if len(values) == 1 else sum(Decimal(str(value)) for value in values)

    def _value(self, text: str) -> Value:
        constant = text.upper().rsplit(".", 1)[-1]
        if _name(text) in self.values:
            return self.values[_name(text)]
        if text.startswith("'"):
            return text[1:-1].replace("''", "'")
        if constant in OPTIONS:
            return OPTIONS[constant]
        return None if text.upper() == "NULL" else text

    def opened(self) -> dict[int, Rows]:
        """Cursors of bind variables, by their places."""
        return {self.places[name]: rows for name, rows in self.cursors.items() if name in self.places}


def run(block: str, binds: Sequence[Value], runner: Runner, queries: Queries) -> Answer:
    """Carry a block out. Cursors of its bind variables are its answer.

    Raises:
        OracleError: as the server's.
    """
    names = _Names(block, binds)
    for statement in split(_END.sub("", _BEGIN.sub("", block, count=1)), ";"):
        if (found := _OPEN.match(statement)) is not None:
            names.cursors[_name(found[1])] = _selected(found[2], names, queries)
        elif (found := _ASSIGNED.match(statement)) is not None:
            target, source = _name(found[1]), _name(found[2])
            if source in names.cursors:
                names.cursors[target] = names.cursors[source]
            else:
                names.values[target] = names.value(found[2])
        elif (found := _CALL.match(statement)) is not None and "." in found[1]:
            *_, package, procedure = found[1].upper().split(".")
            runner.call(package, procedure, _arguments(procedure, found[2] or "", names))
        else:
            places = [f":{name}" for name in sql.bind_places(statement)]
            runner.carry_out(statement.strip(), [names.values[place] for place in places])
    return Cursors(opened) if (opened := names.opened()) else Done()


def _selected(query: str, names: _Names, queries: Queries) -> Rows:
    """A query in which variables stand as plain names."""
    for name in names.values:
        if not name.startswith(":"):
            query = re.sub(rf"\b{name}\b", f":{name}", query, flags=re.IGNORECASE)
    found = {
        place: names.values[f":{place}" if f":{place}" in names.values else _name(place)]
        for place in sql.bind_places(query)
    }
    return queries.carry_out(sql.parsed(query), found)


def _name(text: str) -> str:
    """A variable is in capitals; a bind variable has its colon."""
    if text.startswith(":"):
        return f":{sql.bind_places(text)[0]}" if sql.bind_places(text) else text
    return text.upper()


def _arguments(procedure: str, text: str, names: _Names) -> dict[str, Value]:
    """A call's arguments by name."""
    parameters = _PARAMETERS.get(procedure, ())
    found: dict[str, Value] = {}
    for place, part in enumerate(split(text, ",")):
        argument = _ARGUMENT.match(part)
        assert argument is not None
        name = (argument[1] or (parameters[place] if place < len(parameters) else str(place))).upper()
        found[name] = names.value(argument[2])
    return found


def split(text: str, separator: str) -> list[str]:
    """Parts between separators that stand in no quotes and no parentheses; none is empty."""
    parts, depth, begin, quote = [], 0, 0, ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == separator and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return _filled([*parts, text[begin:]])


def _filled(parts: Iterable[str]) -> list[str]:
    return [part for part in parts if part.strip()]
