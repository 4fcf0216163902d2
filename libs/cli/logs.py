"""``headwater logs``: the logs of the stack's processes, one readable line for each line of JSON."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from libs.cli.home import home_option
from libs.cli.terminal import Coloured, echo_lines, line_of, styled
from libs.errors import InvalidSettings
from libs.mesh.home import Home
from libs.tenants.place import nearest

_FOLLOW_PAUSE_S: Final = 0.3
_FACTS_LAST: Final = ("exception",)
_HEAD: Final = ("at", "level", "event", "service")
_COLOURS: Final = {"warning": "yellow", "error": "red", "critical": "red", "debug": "bright_black"}
LEVELS: Final = ("debug", "info", "warning", "error", "critical")


@click.command()
@click.argument("process", required=False)
@click.option("-f", "--follow", is_flag=True, help="Show new lines as they are written, until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=50, show_default=True, help="Number of last lines to show."
)
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="Leave out lines below this level.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines as they were written.")
@home_option
def logs(process: str | None, follow: bool, lines: int, level: str, as_json: bool, home: Home) -> None:
    """Show the log of PROCESS, or of all processes in the order of time.

    The stack does not have to run. `headwater status` lists the names of the processes.

    \b
    Examples:
      headwater logs reader-shop
      headwater logs --level warning -n 20
      headwater logs router -f
    """
    paths = _paths(home, process)
    shown = [(line, path) for path in paths for line in _last_lines(path, lines)]
    shown = sorted(shown, key=lambda each: _moment(each[0]))[-lines:] if lines else []
    for line, path in shown:
        _show(line, path.stem, level, as_json)
    if follow:
        for line, path in _new_lines(paths):
            _show(line, path.stem, level, as_json)


def _paths(home: Home, process: str | None) -> list[Path]:
    """Raises InvalidSettings: no process of that name has written anything."""
    known = sorted(home.logs_dir.glob("*.log"))
    if not known:
        raise InvalidSettings(str(home.logs_dir), ["no log: nothing was started in this home; `headwater up` does"])
    if process is None:
        return known
    if found := [path for path in known if path.stem == process]:
        return found
    raise InvalidSettings(process, [f"no process of this name; {nearest(process, [path.stem for path in known])}"])


def _last_lines(path: Path, count: int) -> list[str]:
    with path.open("rb") as file:
        return [line.decode(errors="replace") for line in file.read().splitlines()[-count:]]


def _new_lines(paths: list[Path]) -> Iterator[tuple[str, Path]]:
    """Whole lines that are written from now on. A file that became shorter was moved away at its limit: reading begins at
    its start."""
    places = {path: path.stat().st_size for path in paths}
    while True:
        for path, place in places.items():
            if path.stat().st_size < place:
                place = 0
            with path.open("rb") as file:
                file.seek(place)
                found = file.read()
            whole = found[: found.rfind(b"\n") + 1]
            places[path] = place + len(whole)
            for line in whole.splitlines():
                yield line.decode(errors="replace"), path
        time.sleep(_FOLLOW_PAUSE_S)


def _show(line: str, process: str, level: str, as_json: bool) -> None:
    record = _record(line)
    if LEVELS.index(str(record.get("level", "info"))) < LEVELS.index(level):
        return
    echo_lines(line if as_json else readable(record, process) if record else line_of(f"{process}: {line}"))


def readable(record: Mapping[str, object], process: str) -> Coloured:
    """Time, process, level, event, then the facts; a traceback on lines of its own.

    >>> readable({"at": "2026-11-21T10:00:00.25Z", "level": "info", "event": "log_opened", "file": "b.1"}, "reader-shop")
    '10:00:00 reader-shop info log_opened file=b.1'
    """
    at = str(record.get("at", ""))[11:19]
    level = str(record.get("level", ""))
    shown_level = styled(level, fg=_COLOURS[level]) if level in _COLOURS else level
    head = [at, process, shown_level, str(record["event"])]
    facts = [f"{name}={_fact(value)}" for name, value in record.items() if name not in (*_HEAD, *_FACTS_LAST)]
    text = line_of(*(each for part in (*head, *facts) if part for each in (" ", part)))[1:]
    behind = (line_of(line) for name in _FACTS_LAST if name in record for line in _traceback(record[name]))
    return Coloured("\n".join((text, *behind)))


def _fact(value: object) -> str:
    """A text of one printable word as it is, anything else as JSON: a name at a source may hold a terminal's commands."""
    is_word = isinstance(value, str) and value.isprintable() and " " not in value
    return str(value) if is_word else json.dumps(value, ensure_ascii=False)


def _traceback(exception: object) -> Iterator[str]:
    """Structlog's records of an exception: a line each, then where it was raised."""
    if not isinstance(exception, list):
        yield f"  {_fact(exception)}"
        return
    for each in exception:
        yield f"  {each.get('exc_type')}: {each.get('exc_value')}"
        for frame in each.get("frames", ()):
            yield f"    {frame.get('filename')}:{frame.get('lineno')} in {frame.get('name')}"


def _record(line: str) -> Mapping[str, object]:
    """Empty where the line is none of ours: Kafka's, MySQL's, Spark's own."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    is_ours = isinstance(found, dict) and isinstance(found.get("event"), str) and found.get("level", "info") in LEVELS
    return found if is_ours else {}


def _moment(line: str) -> str:
    """Lines without a time stand before those with one."""
    return str(_record(line).get("at", ""))
