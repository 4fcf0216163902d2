"""``headwater reset``: copy a source again from its beginning."""

from typing import Final

import click

from libs.cli.answer import answer, json_option
from libs.cli.mesh import mesh_options
from libs.cli.on_the_way import shown_on_the_way
from libs.cli.terminal import echo
from libs.errors import Fenced
from libs.mesh.mesh import Mesh, require_source
from libs.operations.reset import checkpoints_of, copies_rows
from libs.operations.reset import reset as reset_source
from libs.types.checkpoint import Checkpoint

_SHOWN_CHARACTERS: Final = 200


@click.command()
@click.argument("source")
@click.option("--yes", "is_confirmed", is_flag=True, help="Do not ask.")
@click.option("--reason", default="headwater reset", show_default=True, help="Text for the audit record.")
@json_option
@mesh_options
def reset(source: str, is_confirmed: bool, reason: str, mesh: Mesh) -> None:
    """Forget the place in SOURCE's log: its reader copies all tables again, and then follows the log from there.

    For a log that cannot be followed from its checkpoint: the server has purged it, was restored from a backup, or has other
    transactions. If a table alone is wrong, `headwater resync` or `headwater signal` is enough.

    Works for MySQL, Vitess, Tencent DTS and Oracle. If several readers share a source, all of them begin again.

    Forgotten: the place in the log, and the progress of an unfinished copy. Changes between that place and the copy come to
    nobody as events. Kept: topics, tables, the history of schemas, and signals that wait. Every tenant of the source gets all
    of its rows again, as reads, in a new epoch: they win over every earlier event. Rows that were deleted meanwhile stay in
    tenants' tables until `headwater check TENANT --repair` or `headwater resync` removes them.

    `snapshot.mode` counts as at a first start: with `no_data` no row is copied.

    The command names this and asks. It stops the readers of an embedded stack, which start again by themselves. In Kubernetes
    stop them first: `kubectl scale deployment/headwater-reader-SOURCE --replicas=0`; scale it to 1 afterwards.

    \b
    Examples:
      headwater reset shop
      headwater reset shop --yes --reason "restored from the backup of Monday"
    """
    require_source(mesh, source)
    found = checkpoints_of(mesh, source)
    if not found:
        echo(f"{source}: has no checkpoint: its reader copies all tables when it starts")
        answer({"source": source, "reset": []})
        return
    for each in found:
        echo(f"{each.partition}: forgets {_shown(each)}")
    copies = copies_rows(mesh, source)
    for line in _consequences(copies):
        echo(line)
    if not is_confirmed:
        question = f"follow {source} from now on?" if copies is False else f"copy all tables of {source} again?"
        click.confirm(question, abort=True, err=True)
    for each in found:
        try:
            with shown_on_the_way() as show:
                reset_source(mesh, source, each, reason=reason, on_progress=show)
        except Fenced as error:
            where = "in Kubernetes scale its deployments to 0" if mesh.home is None else "look at `headwater status`"
            raise Fenced(f"{error}: stop the reader first ({where}), then run the same command again") from error
    echo(f"{source}: reset; `headwater status --source {source}` shows the copy")
    echo("when it is done: headwater check TENANT --repair")
    answer(
        {
            "source": source,
            "reset": [
                {"source_partition": each.partition.name, "position": each.position.token.decode(errors="replace")}
                for each in found
            ],
        }
    )


def _shown(checkpoint: Checkpoint) -> str:
    """The place; of a long one its beginning, the whole is in --json and in the audit record."""
    token = checkpoint.position.token.decode(errors="replace")
    return token if len(token) <= _SHOWN_CHARACTERS else f"{token[:_SHOWN_CHARACTERS]}…"


def _consequences(copies: bool | None) -> list[str]:
    lost = "lost as events: changes since that place"
    if copies is False:
        return [lost, "not copied: any row, because snapshot.mode says so; resync tables afterwards"]
    again = "comes again: every row, for every tenant of the source"
    return [
        lost,
        again if copies else f"{again} (unless snapshot.mode is no_data)",
        "stays wrong: rows deleted since that place, until check --repair or resync",
        "kept: topics, tables, history of schemas, waiting signals",
    ]
