"""``headwater check`` as a command that goes on."""

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import pytest
from click.testing import CliRunner

from libs.cli import check
from libs.cli.main import headwater
from libs.errors import SourceUnavailable


@pytest.fixture(autouse=True)
def _terminated_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def _lost(_tables: Sequence[str]) -> NoReturn:
    raise SourceUnavailable("the connection was lost")


def _ended_meanwhile(tables: Sequence[str]) -> NoReturn:
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        _lost(tables)


@pytest.mark.parametrize("options", [(), ("--share", "0.5")])
def test_sigterm_is_the_end_whatever_breaks_by_it(monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    """A connection that is closed in the midst of an answer, say, is an error of its own."""
    turns: list[Callable[[Sequence[str]], NoReturn]] = [_ended_meanwhile, _lost]
    monkeypatch.setattr(check, "_stack", lambda *_, **__: lambda tables: turns.pop()(tables))

    answer = CliRunner().invoke(headwater, ["check", "--every", "1", *options])

    assert answer.exit_code == 0, answer.output
    assert answer.output.count("not compared: the connection was lost") == 1
