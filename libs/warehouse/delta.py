"""Delta's types are Spark's; here is which of them a table may be changed between (Delta documentation, "Type widening")."""

import re
from typing import Final

_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_WIDENINGS: Final = frozenset({("int", "bigint"), ("float", "double")})
_INTEGER_DIGITS: Final = {"int": 10, "bigint": 20}


def is_wider(new: str, old: str) -> bool:
    """Whether every value of ``old`` fits ``new``, and Delta can turn the one into the other in place.

    >>> is_wider("decimal(20,0)", "bigint"), is_wider("decimal(12,4)", "decimal(10,2)"), is_wider("int", "bigint")
    (True, True, False)
    """
    if (old, new) in _WIDENINGS:
        return True
    wide, narrow = _DECIMAL.fullmatch(new), _DECIMAL.fullmatch(old)
    if wide is None or new == old:
        return False
    whole = int(wide[1]) - int(wide[2])
    if old in _INTEGER_DIGITS:
        return whole >= _INTEGER_DIGITS[old]
    return narrow is not None and whole >= int(narrow[1]) - int(narrow[2]) and int(wide[2]) >= int(narrow[2])
