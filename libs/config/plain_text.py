"""Text that somebody else wrote, on a terminal or in a file of lines: without anything that either would obey.

A name at a source may hold ESC, with which a terminal's title, its clipboard and the lines above are written, or a line break,
which begins a line of its own in a document.
"""

import re
from typing import Final

_OBEYED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters but tab and line feed, the other line breaks of YAML, and characters that turn the direction of a line."""


def printable(text: str) -> str:
    """A text that a terminal shows and does not obey. Tabs and line feeds stay.

    >>> printable("a\x1b]0;owned\x07b")
    'a\\\\x1b]0;owned\\\\x07b'
    """
    return _OBEYED.sub(_escaped, text)


def one_line(text: str) -> str:
    """As ``printable``, on one line.

    >>> one_line("a\\nb: c")
    'a\\\\nb: c'
    """
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _escaped(match: "re.Match[str]") -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= _BYTE else f"\\u{code:04x}"


_BYTE: Final = 0xFF
