"""``headwater pause`` and ``resume``: hold a source's readers."""

import click

from libs.cli.answer import answer, json_option
from libs.cli.mesh import mesh_options
from libs.cli.terminal import echo
from libs.mesh.mesh import Mesh
from libs.operations import reader_control


@click.command()
@click.argument("source")
@json_option
@mesh_options
def pause(source: str, mesh: Mesh) -> None:
    """Hold SOURCE's readers: they publish nothing more until `headwater resume`.

    A paused reader keeps its position and its connection; the server keeps the log that is unread. Pause only as long
    as the server keeps its log. The pause ends when the reader's process ends.

    \b
    Examples:
      headwater pause shop
      headwater pause shop --mesh mesh.yaml
    """
    readers = reader_control.readers_of(mesh, source)
    reader_control.pause(readers)
    echo(f"paused {', '.join(each.name for each in readers)}; `headwater resume {source}` continues")
    answer({"source": source, "paused": [each.name for each in readers]})


@click.command()
@click.argument("source")
@json_option
@mesh_options
def resume(source: str, mesh: Mesh) -> None:
    """Have SOURCE's readers continue where `headwater pause` held them.

    \b
    Examples:
      headwater resume shop
      headwater resume shop --mesh mesh.yaml
    """
    readers = reader_control.readers_of(mesh, source)
    reader_control.resume(readers)
    echo(f"resumed {', '.join(each.name for each in readers)}")
    answer({"source": source, "resumed": [each.name for each in readers]})
