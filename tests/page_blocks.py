"""The command blocks of a documentation page: each is run by a test, or says why not.

A comment in front of a block, which no reader sees, says so:

    <!-- run -->                          the page's test runs it, in the page's order
    <!-- not run: it needs a cluster -->  nobody does
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(
    r"(?:<!-- (?P<mark>run|not run: [^\n]+?) -->\n+)?^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"^\$ |^(?:\./)?headwater |^make |^mysql |^kubectl |^helm |^docker ", re.MULTILINE)
_SHELLS = ("bash", "sh", "console")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block that holds commands."""

    page: str
    line: int
    text: str
    """Of a ``console`` block the typed commands alone, without the output."""
    mark: str | None
    """``run``, or ``not run: …``."""

    @property
    def is_run(self) -> bool:
        return self.mark == "run"


def blocks_of(page: Path) -> Iterator[Block]:
    """The page's command blocks, in its order."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        body = found["text"]
        if found["language"] not in _SHELLS and (found["language"] or not _COMMAND.search(body)):
            continue
        if found["language"] == "console":
            body = "".join(f"{line[2:]}\n" for line in body.splitlines() if line.startswith(("$ ", "> ")))
        line = text.count("\n", 0, found.start("text"))
        yield Block(str(page.relative_to(ROOT)), line, body, found["mark"])


@dataclass(frozen=True, slots=True)
class Reader:
    """A person with a shell in ``folder``, whose MySQL is another than the pages'."""

    folder: Path
    environ: Mapping[str, str]
    host: str
    port: int

    def types(self, commands: str, *, timeout_s: float) -> str:
        """Run ``commands`` word by word but for the server's address; returns their output. A command that fails fails the
        test."""
        here = commands.replace("127.0.0.1:3306", f"{self.host}:{self.port}")
        here = here.replace("-h 127.0.0.1 -P 3306", f"-h {self.host} -P {self.port}")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", here],
            cwd=self.folder,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"exit code {done.returncode} of\n{here}\n{done.stdout}"
        return done.stdout


def reader_in(folder: Path, host: str, port: int, environ: Mapping[str, str]) -> Reader:
    """A reader in an empty ``folder`` that has the command ``./headwater``, also on the PATH."""
    folder.mkdir()
    (folder / "headwater").symlink_to(ROOT / "headwater")
    programs = folder.parent / f"{folder.name}-programs"
    programs.mkdir()
    (programs / "headwater").symlink_to(ROOT / "headwater")
    path = f"{programs}:{environ['PATH']}"
    clean = {name: value for name, value in environ.items() if not name.startswith("HEADWATER_")}
    return Reader(folder, {**clean, "PATH": path, "COLUMNS": "100"}, host, port)
