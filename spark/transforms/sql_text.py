"""Names and texts as Spark SQL writes them."""


def quoted(name: str) -> str:
    """A name that Spark takes as it is, dots and backticks too.

    >>> quoted("a`b.c")
    '`a``b.c`'
    """
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    r"""A string constant.

    >>> literal("it's")
    "'it\\'s'"
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
