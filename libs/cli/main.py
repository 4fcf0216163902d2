"""The ``headwater`` command: its subcommands, and how their errors are shown.

Each subcommand has a module of its own that reads its arguments, calls ``libs.operations`` and prints; nothing is
decided here. An error that Headwater raises on purpose becomes one message and an exit code. So does an error of
the file system. Any other error is a fault of the program and keeps its traceback.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

import libs.telemetry.without_rich  # noqa: F401 - before structlog, which otherwise loads all of rich
from libs.cli.answer import error_document
from libs.cli.lazy_group import LazyGroup, Subcommand
from libs.cli.on_the_way import Interrupted
from libs.cli.terminal import echo, echo_lines
from libs.config.plain_text import printable
from libs.errors import HeadwaterError, InvalidSettings
from libs.operations.versions import project_version

EXIT_FAILED = 1
EXIT_MISTAKE = 2
"""The user can mend it: wrong arguments or documents; click's own errors have this code too."""
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


SUBCOMMANDS: Final = {
    "audit": Subcommand("audit", "audit", "Show who changed what by calls to services."),
    "check": Subcommand("check", "check_command", "Compare the source with tenants' tables, every row and column."),
    "completion": Subcommand("completion", "completion", "Print the script by which a shell completes commands."),
    "dead-letter": Subcommand("dead_letter", "dead_letter", "Show and replay events that could not be delivered."),
    "demo": Subcommand("demo", "demo", "Run the main job: MySQL into Iceberg tables, with kills, then a comparison."),
    "doctor": Subcommand("doctor", "doctor", "Look at everything that a stack needs, and name each remedy."),
    "down": Subcommand("lifecycle", "down", "Stop the embedded stack: Spark and the readers first, Kafka last."),
    "dts": Subcommand("dts", "dts", "Record a Tencent DTS subscription, and play a recording into a topic."),
    "erase": Subcommand("erase", "erase", "Remove everything that Headwater holds of a tenant, for good."),
    "init": Subcommand("init", "init", "Make a home folder; follow a database by its address."),
    "logs": Subcommand("logs", "logs", "Show the logs of the stack's processes, of one or of all."),
    "migrate": Subcommand(
        "migrate", "migrate_command", "Write Headwater's documents from another tool's configuration."
    ),
    "pause": Subcommand("pause", "pause", "Hold a source's readers: they publish nothing until `resume`."),
    "query": Subcommand("query", "query", "Run SQL on a tenant's tables; without SQL, list them."),
    "rebuild": Subcommand("rebuild", "rebuild", "Build a table as the source had it at a past moment."),
    "reset": Subcommand("reset", "reset", "Forget the place in a source's log, and copy all of its tables again."),
    "resume": Subcommand("pause", "resume", "Have a source's readers continue where `pause` held them."),
    "resync": Subcommand("resync", "resync", "Build a table again from the source's rows, and swap it in."),
    "retry": Subcommand("retry", "retry", "Try parked tables again now instead of when they are due."),
    "schema": Subcommand("schema", "schema_command", "Show the effect of a DDL statement on the tenants' tables."),
    "setup": Subcommand("setup", "setup", "Download what the embedded stack and the demo need, into a cache."),
    "signal": Subcommand("signal", "signal", "Copy tables again while changes go on; stop or pause a copy."),
    "status": Subcommand("status", "status", "Show faults, processes, and the progress of sources and tables."),
    "tail": Subcommand("tail", "tail", "Show a table's events as they come."),
    "tenant": Subcommand("tenant", "tenant_command", "Validate, plan, apply and explain tenants' documents."),
    "up": Subcommand("lifecycle", "up", "Start the embedded stack: Kafka, Valkey, the services, the readers, Spark."),
    "validate": Subcommand("documents", "validate", "List every mistake in the documents; ask a source's server too."),
    "version": Subcommand("version", "version", "Print the versions of Headwater and its main packages."),
}

HELP = """Deliver the changes of databases to each tenant's topics and tables.

The embedded stack runs in a home folder: --home, else $HEADWATER_HOME, else ./.headwater.

\b
Your own database, from nothing to a checked table:
  headwater init mysql://user@host/database   write a source and a tenant
  headwater up --detach                       start everything
  headwater check                             compare source and tables
  headwater query acme "SELECT …"             query a tenant's tables

\b
Later:
  headwater status                            show faults and progress
  headwater tail acme orders                  show events as they come
  headwater tenant plan acme.yaml             show a new document's effect
  headwater logs reader-shop -f               follow the log of a process
  headwater doctor                            look for faults of the set-up
  headwater down                              stop everything

\b
To see all of it in under four minutes:
  headwater demo

`headwater COMMAND --help` has the options of a command, with examples.
"""


@click.group(
    cls=LazyGroup,
    subcommands=SUBCOMMANDS,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(version=project_version(), message="headwater %(version)s")
def headwater() -> None:
    """Hold the subcommands."""


def error_text(error: HeadwaterError) -> str:
    """The message; of a single mistake in one line."""
    if isinstance(error, InvalidSettings) and len(error.mistakes) == 1:
        return f"{error.subject}: {error.mistakes[0]}"
    return str(error)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed or differences found, 2 a mistake of the user's, 130 Ctrl-C.

    ``arguments`` are those of the process where none are given. With ``--json`` among them an error is one line of JSON.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_json = "--json" in given[: given.index("--")] if "--" in given else "--json" in given
    try:
        code = headwater.main(args=arguments, prog_name="headwater", standalone_mode=False)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        code = error.exit_code
        if is_json:
            _show_json(code, error.format_message())
        else:
            error.message = printable(error.message)
            error.show()
    except Interrupted as error:
        code = 130
        text = f"interrupted; {error.goes_on}"
        _show_json(code, text) if is_json else echo(f"headwater: {text}", err=True)
    except (click.Abort, KeyboardInterrupt):
        code = 130
        _show_json(code, "stopped") if is_json else echo("stopped", err=True)
    except HeadwaterError as error:
        code = EXIT_MISTAKE if isinstance(error, InvalidSettings) else EXIT_FAILED
        if is_json:
            _show_json(code, error_text(error), error.mistakes if isinstance(error, InvalidSettings) else ())
        else:
            echo_lines(f"headwater: {error_text(error)}", err=True)
    except BrokenPipeError:
        # ``headwater tail … | head``: the reader has closed its end.
        sys.stderr.close()
        code = 0
    except OSError as error:
        if error.filename is None and error.errno not in _NO_ROOM:
            raise
        code = EXIT_FAILED
        _show_json(code, _file_text(error)) if is_json else echo(f"headwater: {_file_text(error)}", err=True)
        if error.filename is None:
            _drop_output()
    sys.exit(code or 0)


def _drop_output() -> None:
    """Of a full device: from Python 3.13 on the interpreter writes its buffer again at the end, and exits with 120."""
    with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


def _show_json(code: int, message: str, mistakes: Sequence[str] = ()) -> None:
    echo_lines(error_document(code, message, mistakes), err=True)


def _file_text(error: OSError) -> str:
    what = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error.strerror)
    if error.errno in _NO_ROOM:
        return f"{what}: free some disk space, and run the command again"
    return f"{what}: check the folder and this user's rights, or name another folder (--home)"
