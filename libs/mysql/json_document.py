"""A JSON text that a statement writes, as the events have the document that the server makes of it.

The server keeps numbers as integers of 64 bits or doubles, members by the length and bytes of their names, and of members of
one name the last (manual, "Normalization, Merging, and Autowrapping of JSON Values"; ``tests/integration/test_defaults.py``
asks it).
"""

import json
import math
from typing import Any, Final, NoReturn

import orjson

from libs.mysql.json_binary import double_text

_INTEGERS: Final = range(-(1 << 63), 1 << 64)


def written_document(text: str) -> str | None:
    """The document in the form of the events; None: the text is no JSON.

    >>> written_document('{"bb": 1.50, "a": [1e2, 18446744073709551616], "a": [1]}')
    '{"a":[1],"bb":1.5}'
    """
    try:
        return _printed(json.loads(text, parse_constant=_refused, object_pairs_hook=dict))
    except (ValueError, TypeError, RecursionError):
        return None


def _refused(word: str) -> NoReturn:
    """NaN, for example, which only Python takes."""
    raise ValueError(word)


def _printed(value: Any) -> str:
    match value:
        case dict():
            members = sorted(value.items(), key=lambda member: (len(member[0].encode()), member[0].encode()))
            return "{" + ",".join(f"{_printed(name)}:{_printed(member)}" for name, member in members) + "}"
        case list():
            return "[" + ",".join(map(_printed, value)) + "]"
        case float() if math.isinf(value):
            _refused("a number beyond a double")
        case float():
            return double_text(value)
        case int() if value is not True and value is not False and value not in _INTEGERS:
            return double_text(float(value))
        case _:
            return orjson.dumps(value).decode()
