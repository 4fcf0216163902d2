"""``headwater setup``."""

import click

from libs.cli.answer import answer, json_option
from libs.cli.terminal import is_json
from libs.errors import InvalidSettings
from libs.setup.cache import cache_dir
from libs.setup.run import EXIT_INTERRUPTED, main


@click.command()
@json_option
def setup() -> None:
    """Download what the embedded stack and the demo need, into a cache, and verify it.

    These are the jars of Kafka and Spark, MySQL and PostgreSQL. `headwater up` and `headwater demo` do their parts of this by
    themselves. It installs nothing into the machine. The cache is ~/.cache/headwater, or the folder in HEADWATER_CACHE.

    \b
    Examples:
      headwater setup
      HEADWATER_CACHE=/srv/cache headwater setup
    """
    exit_code = main()
    if exit_code and is_json() and exit_code != EXIT_INTERRUPTED:
        raise InvalidSettings("setup", ["the lines above name each step that failed, with its remedy"])
    if exit_code:
        raise click.exceptions.Exit(exit_code)
    answer({"cache": cache_dir(), "is_complete": True})
