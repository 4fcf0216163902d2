"""``headwater doctor``: look at everything that a stack or a mesh needs."""

import os
from pathlib import Path
from typing import Final

import click
import msgspec

from libs.cli.home import home_option
from libs.cli.mesh_file import mesh_file_option
from libs.cli.terminal import echo, echo_lines, line_of, styled
from libs.mesh.home import Home
from libs.mesh.mesh_settings import mesh_settings
from libs.operations.doctor.examine import examine_home, examine_mesh
from libs.operations.doctor.report import DoctorReport, Verdict

_COLOURS: Final = {Verdict.FAULT: "red", Verdict.WARNING: "yellow", Verdict.OK: "green"}
_WIDTH: Final = 8


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs and for a report: one JSON document.")
@home_option
@mesh_file_option
def doctor(as_json: bool, home: Home, mesh_file: Path | None) -> None:
    """Look at everything that a stack needs: machine, set-up, documents, ports, servers, processes. Changes nothing.

    The worst comes first. A fault keeps something from working; a warning may do so later. Each comes with its remedy. Exits
    with 1 if there is a fault.

    The command works before `headwater up`, while the stack runs, and, with --mesh, for a mesh elsewhere. Its output holds no
    password and no row, so you can attach it to a report.

    \b
    Examples:
      headwater doctor
      headwater doctor --json > report.json
      headwater doctor --mesh mesh.yaml
    """
    found = (
        examine_home(home) if mesh_file is None else examine_mesh(mesh_settings(mesh_file, os.environ), str(mesh_file))
    )
    if as_json:
        echo_lines(msgspec.json.format(msgspec.json.encode(found)))
    else:
        _print(found)
    if found.count(Verdict.FAULT):
        raise click.exceptions.Exit(1)


def _print(found: DoctorReport) -> None:
    counts = (
        f"{found.count(Verdict.FAULT)} fault(s)",
        f"{found.count(Verdict.WARNING)} warning(s)",
        f"{found.count(Verdict.OK)} ok",
    )
    echo(f"{found.place}: {', '.join(counts)}")
    for each in found.findings:
        verdict = styled(f"{each.verdict.value:<{_WIDTH}}", fg=_COLOURS[each.verdict])
        echo(line_of(verdict, f"{each.area}: {each.subject}: {each.said}"))
        if each.remedy:
            echo(f"{'':<{_WIDTH}}remedy: {each.remedy}")
    echo(", ".join(f"{name} {version}" for name, version in found.versions.items()))
