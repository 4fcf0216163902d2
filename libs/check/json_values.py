"""A JSON document as a canonical value: spaces and the order of names do not count; its null is not NULL."""

import enum
import json


class JsonLiteral(enum.Enum):
    """A document's member by name. One that is null is a value, and not NULL; ``true`` is another than the number 1, which
    Python takes for equal."""

    NULL = "null"
    TRUE = "true"
    FALSE = "false"

    def __repr__(self) -> str:
        return self.value


def parsed_document(text: str) -> object:
    """The value of a document's text."""
    return _with_literals(json.loads(text))


def _with_literals(document: object) -> object:
    match document:
        case None:
            return JsonLiteral.NULL
        case bool():
            return JsonLiteral.TRUE if document else JsonLiteral.FALSE
        case list():
            return [_with_literals(each) for each in document]
        case dict():
            return {name: _with_literals(each) for name, each in document.items()}
        case _:
            return document
