"""``make fuzz``: coverage-guided fuzzing of the DTS decoder, bounded in inputs and in seconds.

    python -m tests.fuzz [--inputs N] [--seconds S]
    python -m tests.fuzz --keep

atheris comes into the cache (requirements/fuzz.txt), and the compiled modules are built once more, with AddressSanitizer and
coverage counters. The corpus (``.fuzz/corpus``) begins with messages that a stand-in for DTS recorded
(``tests/golden/dts-stand-in``), inputs that ``tests.unit.dts_decoder.fuzz`` made up, and finds of earlier runs
(``dts_input.KEPT``).

Exit code 0: no input of so many made the decoder raise anything but an error of ours, touch memory that is not its own, take
``INPUT_TIMEOUT_S`` or more than ``MEMORY_MB``. Else the input lies in ``.fuzz/found-*``; ``.fuzz/run .fuzz/found-…`` takes it
alone again.
"""

import argparse
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

from libs.errors import HeadwaterError
from libs.setup import compiled_modules, python_packages
from libs.setup.cache import cache_dir, locked, staged_dir
from libs.setup.progress import Display
from libs.setup.step import Progress
from libs.stand_ins.dts.recording import read_recording
from tests.fuzz.dts_input import KEPT, KNOWN_TABLES, SET_ASIDE, SPILLED, kept_inputs, of_entries, of_messages
from tests.unit.dts_decoder.fuzz import seeds
from tests.unit.dts_decoder.topic import envelopes

REPOSITORY: Final = Path(__file__).resolve().parents[2]
RECORDING: Final = REPOSITORY / "tests" / "golden" / "dts-stand-in" / "recording.jsonl"
FOLDER: Final = REPOSITORY / ".fuzz"
SANITIZED_FOLDERS: Final = ("services/dts_decoder", "libs/events", "libs/formats")
MESSAGES_IN_AN_INPUT: Final = 6
LONGEST_INPUT_BYTES: Final = 8_192
INPUT_TIMEOUT_S: Final = 20
MEMORY_MB: Final = 600
"""Of the whole process; 160 are the sanitizer, the interpreter and the modules."""


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=3_600, help="end then, however many inputs there were")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="put the corpus as it is into tests/golden, for tests and later runs; fuzz nothing",
    )
    arguments = parser.parse_args()
    corpus = FOLDER / "corpus"
    if arguments.keep:
        return _keep(corpus)
    cache = cache_dir()
    try:
        with Display() as display, locked(cache / "setup.lock", on_wait=lambda: display.say("a set-up runs: waiting")):
            progress = display.begin("fuzzer")
            atheris = _atheris(cache, progress)
            compiled_modules.build_sanitized(cache, REPOSITORY, SANITIZED_FOLDERS, FOLDER / "modules", progress)
            display.end("fuzzer", "ready")
    except HeadwaterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    command = _command(atheris)
    _fill(corpus)
    bounds = _bounds(arguments.inputs, arguments.seconds)
    return subprocess.run([command, corpus, *bounds], check=False).returncode


def _command(atheris: Path) -> Path:
    """A program of its own, for a person who wants one input to be taken again."""
    environ = {
        "HEADWATER_FUZZ_MODULES": FOLDER / "modules",
        "PYTHONPATH": atheris,
        "LD_PRELOAD": atheris / "asan_with_fuzzer.so",
        # Python's own allocator would hide a read beyond the end of a small object.
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16",
    }
    settings = " ".join(shlex.quote(f"{name}={value}") for name, value in environ.items())
    command = FOLDER / "run"
    lines = (
        "#!/bin/sh",
        f"cd {shlex.quote(str(REPOSITORY))}",
        f'exec env {settings} {shlex.quote(sys.executable)} -m tests.fuzz.dts_target "$0" "$@"',
    )
    command.write_text("\n".join(lines) + "\n")
    command.chmod(0o755)
    return command


def _keep(corpus: Path) -> int:
    """Put the corpus, in which libFuzzer leaves an input that reached something and no smaller one did, where tests find
    it."""
    kept = sorted(corpus.iterdir(), key=lambda path: (path.stat().st_size, path.name))
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(KEPT, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for number, path in enumerate(kept):
            archive.writestr(zipfile.ZipInfo(f"{number:04}"), path.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=9)
    sys.stdout.write(f"{len(kept)} inputs in {KEPT}\n")
    return 0


def _bounds(inputs: int, seconds: int) -> list[str]:
    """libFuzzer's own (its manual, "Options")."""
    return [
        f"-runs={inputs}",
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST_INPUT_BYTES}",
        f"-timeout={INPUT_TIMEOUT_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-artifact_prefix={FOLDER}/found-",
        "-print_final_stats=1",
    ]


def _atheris(cache: Path, progress: Progress) -> Path:
    """Where it lies. Raises SetupFailed: it could not be had."""
    folder = cache / "fuzz"
    if not folder.exists():
        progress.now("downloading atheris")
        with staged_dir(folder) as staging:
            python_packages.install_beside(cache, REPOSITORY, "fuzz", staging)
    return folder


def _fill(corpus: Path) -> None:
    """The first inputs, beside those of earlier runs that were worth keeping. See ``dts_input`` for their form."""
    corpus.mkdir(parents=True, exist_ok=True)
    _, recorded = read_recording(RECORDING)
    values = [message.value for message in recorded]
    streams = [values[place : place + MESSAGES_IN_AN_INPUT] for place in range(0, len(values), MESSAGES_IN_AN_INPUT)]
    streams += [envelopes(seed, 2) for seed in seeds()]
    inputs = [of_messages(stream, choices) for stream in streams for choices in (0, SET_ASIDE | KNOWN_TABLES)]
    inputs += [of_entries(seed, choices) for seed in seeds() for choices in (0, SET_ASIDE | KNOWN_TABLES)]
    inputs += [of_entries(seed, SPILLED, parts=4) for seed in seeds()]
    for number, one in enumerate([*inputs, *kept_inputs()]):
        (corpus / f"seed-{number}").write_bytes(one)


if __name__ == "__main__":
    sys.exit(main())
