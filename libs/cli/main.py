"""The ``headwater`` command: its subcommands, and how their errors are shown.

Each subcommand stands in a module of its own that reads its arguments, calls ``libs.local`` and prints; nothing is
decided here. An error that Headwater raises on purpose becomes one message and an exit code; anything else is a
fault of the program and keeps its traceback.
"""

import sys

import click

from libs.cli.check import check_command
from libs.cli.dead_letter import dead_letter
from libs.cli.demo import demo
from libs.cli.dts import dts
from libs.cli.erase import erase
from libs.cli.lifecycle import down, init, up, validate, version
from libs.cli.migrate import migrate_command
from libs.cli.query import query
from libs.cli.rebuild import rebuild
from libs.cli.resync import resync
from libs.cli.schema import schema_command
from libs.cli.signal import signal
from libs.cli.status import status
from libs.cli.tail import tail
from libs.cli.tenant import tenant_command
from libs.errors import HeadwaterError, InvalidSettings

EXIT_FAILED = 1
EXIT_MISTAKE = 2
"""The user can mend it: wrong arguments or documents; click's own errors have this code too."""

HELP = """Follow databases' change logs into each tenant's topics and tables.

\b
The embedded stack runs in a home folder (--home, else $HEADWATER_HOME, else ./.headwater):
  headwater init                                  write commented examples
  headwater migrate debezium connector.json       write a source's document from a Debezium connector
  headwater validate                              list every mistake in sources/ and tenants/
  headwater validate shop                         ask the source's server too: log, grants, settings
  headwater up --detach                           start Kafka, Valkey, all services and Spark
  headwater status                                what runs, how far each tenant got
  headwater tail acme orders                      live events, readable
  headwater query acme "SELECT count(*) FROM orders"   the Iceberg tables; needs no running stack
  headwater signal shop execute-snapshot shop.orders   read a table again while changes go on
  headwater schema plan shop "ALTER TABLE …"      what a DDL would do to the tenants' tables
  headwater tenant plan acme.yaml                 what a tenant's document would change; then: tenant apply
  headwater tenant explain acme orders            why a table or column does or does not come
  headwater dead-letter list acme                 events that could not be delivered, and their replay
  headwater check                                 compare source and tables, row by row
  headwater resync acme orders                    build a doubted table anew, and swap it in
  headwater rebuild log orders --as-of TIME --into orders_then   a table as it was, from its log
  headwater erase acme --dry-run                  what would go, were everything of a tenant removed
  headwater down                                  stop everything
\b
To see all of it at work in under four minutes:  headwater demo
"""


@click.group(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def headwater() -> None:
    """Hold the subcommands."""


for command in (
    init,
    migrate_command,
    validate,
    up,
    down,
    status,
    tail,
    query,
    signal,
    schema_command,
    tenant_command,
    check_command,
    dead_letter,
    resync,
    rebuild,
    erase,
    demo,
    dts,
    version,
):
    headwater.add_command(command)


def error_text(error: HeadwaterError) -> str:
    """The message; of a single mistake in one line."""
    if isinstance(error, InvalidSettings) and len(error.mistakes) == 1:
        return f"{error.subject}: {error.mistakes[0]}"
    return str(error)


def run() -> None:
    """Run the command line and exit: 0 done, 1 failed or differences found, 2 a mistake of the user's, 130 Ctrl-C."""
    try:
        code = headwater.main(prog_name="headwater", standalone_mode=False)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        code = 130
    except HeadwaterError as error:
        click.echo(f"headwater: {error_text(error)}", err=True)
        code = EXIT_MISTAKE if isinstance(error, InvalidSettings) else EXIT_FAILED
    except BrokenPipeError:
        # ``headwater tail … | head``: whoever read has had enough.
        sys.stderr.close()
        code = 0
    sys.exit(code or 0)
