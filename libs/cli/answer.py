"""``--json``: every command has it, through ``json_option`` or as an option of its own (``tests/unit/cli/test_json.py``).

On standard output stands JSON alone: one document, or one a line from a command that goes on. Text for people goes to standard
error then, and an error is its last line (``libs.cli.main``).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click
import msgspec
import yaml

from libs.cli.terminal import JSON_ASKED, echo_lines, is_json

_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(command: _Command) -> _Command:
    """Give ``command`` the option ``--json``: its text goes to standard error then, and ``answer`` prints its document."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_note,
        help="For programs: one JSON document; text goes to standard error.",
    )(command)


def _note(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[JSON_ASKED] = value


def answer(document: Any, *, is_line: bool = False) -> None:
    """Print the command's document, with ``--json`` only. ``is_line``: one of several, on a line of its own."""
    if is_json():
        encoded = msgspec.json.encode(document, enc_hook=str)
        echo_lines(encoded if is_line else msgspec.json.format(encoded))


OUTPUTS: Final = ("table", "wide", "json", "yaml")


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``command`` the options ``-o`` and ``--json``; it is handed ``output``, one of ``OUTPUTS``."""

    @click.option(
        "-o",
        "--output",
        type=click.Choice(OUTPUTS),
        default=OUTPUTS[0],
        show_default=True,
        help="wide: a table with all columns, also where it is wider than the terminal.",
    )
    @click.option("--json", "as_json", is_flag=True, help="As -o json: for programs, one JSON document.")
    @functools.wraps(command)
    def with_output(*arguments: Any, output: str, as_json: bool, **options: Any) -> Any:
        return command(*arguments, output="json" if as_json else output, **options)

    return with_output


def print_document(document: Any, output: str) -> bool:
    """Print a document as ``-o json`` or ``-o yaml`` has it; False: ``output`` is a table's."""
    if output == "json":
        echo_lines(msgspec.json.format(msgspec.json.encode(document, enc_hook=str)))
    elif output == "yaml":
        text = yaml.safe_dump(msgspec.to_builtins(document, enc_hook=str), sort_keys=False, allow_unicode=True)
        echo_lines(text, nl=False)
    return output in ("json", "yaml")


def error_document(exit_code: int, message: str, mistakes: Sequence[str] = ()) -> bytes:
    """An error as every command with ``--json`` prints it, as the last line of standard error.

    >>> error_document(2, "shop.yaml: 1 mistake(s)", ["line 3: no"])
    b'{"error":{"exit_code":2,"message":"shop.yaml: 1 mistake(s)","mistakes":["line 3: no"]}}'
    """
    return msgspec.json.encode({"error": {"exit_code": exit_code, "message": message, "mistakes": list(mistakes)}})
