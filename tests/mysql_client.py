"""A ``mysql`` of the tests' own: set-up brings MySQL's server, not its client.

It takes the options that the pages type, and runs the statements of its standard input.
"""

import argparse
import stat
import sys
from pathlib import Path

import pymysql

REPOSITORY = Path(__file__).parents[1]


def put_into(folder: Path) -> None:
    """Write the program ``mysql`` into ``folder``, for a PATH."""
    program = folder / "mysql"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -P -m tests.mysql_client "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def main() -> None:
    """Run the statements on standard input. ``-p`` asks nobody: the tests' root has no password."""
    parser = argparse.ArgumentParser(add_help=False)
    for option in ("-h", "-P", "-u"):
        parser.add_argument(option, required=True)
    parser.add_argument("-p", action="store_true")
    given = vars(parser.parse_args())
    text = "\n".join(line for line in sys.stdin.read().splitlines() if not line.startswith("--"))
    with (
        pymysql.connect(host=given["h"], port=int(given["P"]), user=given["u"], autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        for statement in text.split(";\n"):
            if statement.strip("; \n"):
                cursor.execute(statement)


if __name__ == "__main__":
    main()
