"""Names in the header of an entry."""

from libs.errors import UndecodableMessage


def text_of(raw: bytes) -> str:
    """A name as text.

    Raises:
        UndecodableMessage: it is not UTF-8.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UndecodableMessage("a name in the header is not UTF-8") from error
