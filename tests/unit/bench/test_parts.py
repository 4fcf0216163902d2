"""``python -m bench``: every part can be loaded and is listed in the help."""

import sys

import pytest

from bench.__main__ import PARTS, main


def test_help_tells_of_each_part(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A part whose module does not load any more would be found out when it is wanted."""
    monkeypatch.setattr(sys, "argv", ["bench", "--help"])

    with pytest.raises(SystemExit) as ended:
        main()

    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(f"  {part} " in said and what in said for part, what in PARTS.items())
