"""``headwater setup``."""

import click

from libs.setup.run import main


@click.command()
def setup() -> None:
    """Download what the embedded stack and the demo need, into a cache, and verify it.

    These are the jars of Kafka and Spark, MySQL and PostgreSQL. `headwater up` and `headwater demo` do their parts of this by
    themselves. It installs nothing into the machine. The cache is ~/.cache/headwater, or the folder in HEADWATER_CACHE.

    \b
    Examples:
      headwater setup
      HEADWATER_CACHE=/srv/cache headwater setup
    """
    raise click.exceptions.Exit(main())
