"""Protobuf schemas of Debezium's events, made from their Connect schemas as Confluent's ProtobufConverter makes them.

A record is a message, its namespace the file's package, the records in it nested messages; types, imports and ``field_meta``
are those of ``ProtobufData`` of Confluent's Schema Registry. A column that may be NULL is ``optional``, as its option
``optional.for.nullables`` has it: without that NULL would read as zero. Moments are the integers that Debezium has, and not
``google.type``'s messages.

A field's number is for ever: ``numbered`` gives a new version of a schema the numbers of all older ones.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from libs.formats.avro_schema import avro_full_name
from libs.formats.connect_schema import ConnectSchema

_SCALARS: Final[Mapping[str, str]] = {
    "boolean": "bool",
    "int8": "int32",
    "int16": "int32",
    "int32": "int32",
    "int64": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}
_CONNECT_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_DECIMAL: Final = "confluent.type.Decimal"
_META: Final = "(confluent.field_meta)"
_NOT_FOR_USE: Final = range(19_000, 20_000)
"""Numbers that Protobuf keeps for itself."""
LARGEST_NUMBER: Final = 2**29 - 1
_MOST_RESERVED: Final = 100_000
"""In a message; each is kept by itself."""
_MOST_CHARACTERS: Final = 4_000_000
_MOST_TOKENS: Final = 400_000
"""Of a schema that is read. One of 4,000 columns has a quarter of that."""
_DEEPEST: Final = 32


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message."""

    name: str
    type: str
    """A scalar's name, ``confluent.type.Decimal``, or the name of a nested message."""
    number: int
    label: str = ""
    """optional, repeated, or empty."""
    meta: tuple[tuple[str, str], ...] = ()
    """``field_meta``'s parameters, sorted."""
    json_name: str = ""
    """Where it is not the one that Protobuf makes of the name."""

    @property
    def is_decimal(self) -> bool:
        """Its values are messages ``confluent.type.Decimal``."""
        return self.type == _DECIMAL


@dataclass(frozen=True, slots=True)
class Message:
    """A message and those nested in it."""

    name: str
    fields: tuple[Field, ...]
    messages: tuple["Message", ...] = ()
    reserved_numbers: frozenset[int] = frozenset()
    reserved_names: frozenset[str] = frozenset()

    def message(self, name: str) -> "Message":
        """The nested one of that name. Raises KeyError."""
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found

    def find(self, name: str) -> "Message | None":
        """The nested one of that name."""
        return next((each for each in self.messages if each.name == name), None)


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A file with one message, in which all others are nested."""

    package: str
    message: Message

    def __str__(self) -> str:
        """The text that is registered: one for one schema, so that a registry gives one id."""
        lines = (
            ['syntax = "proto3";', "", f"package {self.package};", ""] if self.package else ['syntax = "proto3";', ""]
        )
        fields = list(_all_fields(self.message))
        if any(field.meta for field in fields):
            lines.append('import "confluent/meta.proto";')
        if any(field.is_decimal for field in fields):
            lines.append('import "confluent/type/decimal.proto";')
        if lines[-1]:
            lines.append("")
        return "\n".join([*lines, *_message_lines(self.message, ""), ""])


def protobuf_schema(connect_schema: ConnectSchema) -> ProtobufSchema:
    """The schema of a whole key or value, its fields numbered from 1 in their order.

    >>> print(protobuf_schema({"type": "struct", "name": "shop.Key", "fields": [{"type": "int32", "field": "id"}]}))
    syntax = "proto3";
    <BLANKLINE>
    package shop;
    <BLANKLINE>
    message Key {
      int32 id = 1;
    }
    <BLANKLINE>
    """
    package, _, name = avro_full_name(connect_schema["name"]).rpartition(".")
    return ProtobufSchema(package, _message(connect_schema, name))


def numbered(schema: ProtobufSchema, earlier: Sequence[ProtobufSchema]) -> ProtobufSchema:
    """The schema with the numbers of its earlier versions (oldest first).

    A field of the same name and type has the number that it ever had, also if it was gone in between, and no other gets that
    number. An INT that became a BIGINT keeps its own: the bytes are the same. Numbers and names that are no longer in use are
    reserved.

    Raises:
        ValueError: there are no numbers left.
    """
    return replace(schema, message=_numbered(schema.message, [each.message for each in earlier]))


def find_version(schema: ProtobufSchema, earlier: Sequence[ProtobufSchema]) -> int | None:
    """Which of the earlier versions has the same fields, with any numbers and in any order: the newest one's index."""
    wanted = _plain(schema.message)
    for index in reversed(range(len(earlier))):
        if earlier[index].package == schema.package and _plain(earlier[index].message) == wanted:
            return index
    return None


def _plain(message: Message) -> Message:
    """All but numbers and order."""
    fields = sorted((replace(field, number=0) for field in message.fields), key=lambda field: field.name)
    messages = sorted((_plain(each) for each in message.messages), key=lambda each: each.name)
    return Message(message.name, tuple(fields), tuple(messages))


# --- from Connect -----------------------------------------------------------------------------------------------------


def _message(connect: ConnectSchema, name: str) -> Message:
    names = {field["field"] for field in connect["fields"]}
    json_names = [_json_name(each) for each in names]
    fields: list[Field] = []
    messages: dict[str, Message] = {}
    for number, each in enumerate(connect["fields"], 1):
        items = each["items"] if each["type"] == "array" else each
        if items["type"] == "struct":
            type_name = _nested_name(items["name"], names)
            messages.setdefault(type_name, _message(items, type_name))
        else:
            type_name = _DECIMAL if items.get("name") == _CONNECT_DECIMAL else _SCALARS[items["type"]]
        fields.append(
            Field(
                each["field"],
                type_name,
                number,
                _label(each, type_name),
                _meta(items),
                each["field"] if json_names.count(_json_name(each["field"])) > 1 else "",
            )
        )
    return Message(name, tuple(fields), tuple(messages.values()))


def _nested_name(full_name: str, taken: Iterable[str]) -> str:
    """The last part; a field of that name would hide it."""
    name = avro_full_name(full_name).rpartition(".")[2]
    while name in taken:
        name += "_"
    return name


def _label(connect: ConnectSchema, type_name: str) -> str:
    if connect["type"] == "array":
        return "repeated"
    is_scalar = type_name in _SCALARS.values()
    return "optional" if is_scalar and connect.get("optional", False) else ""  # whether a message is there shows anyway


def _meta(connect: ConnectSchema) -> tuple[tuple[str, str], ...]:
    if connect["type"] in ("int8", "int16"):
        return (("connect.type", connect["type"]),)
    if connect.get("name") != _CONNECT_DECIMAL:
        return ()
    parameters = connect["parameters"]
    named = {"precision": parameters.get("connect.decimal.precision"), "scale": parameters["scale"]}
    return tuple((name, value) for name, value in named.items() if value is not None)


def _json_name(name: str) -> str:
    """As Protobuf makes it; of two fields of a message it must not be the same."""
    return re.sub("_+(.?)", lambda found: found[1].upper(), name)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _numbered(message: Message, earlier: Sequence[Message]) -> Message:
    used = {field.number for each in earlier for field in each.fields}
    used.update(*(each.reserved_numbers for each in earlier))
    names = {field.name for each in earlier for field in each.fields}.union(*(each.reserved_names for each in earlier))
    known: dict[str, list[Field]] = {}
    for field in (field for each in reversed(earlier) for field in each.fields):
        known.setdefault(field.name, []).append(field)
    numbers = [_known_number(field, known.get(field.name, ())) for field in message.fields]
    fresh = _fresh_numbers(used)
    fields = tuple(
        replace(field, number=next(fresh) if number is None else number)
        for field, number in zip(message.fields, numbers, strict=True)
    )
    nested = tuple(
        _numbered(each, [found for older in earlier if (found := older.find(each.name)) is not None])
        for each in message.messages
    )
    return Message(
        message.name,
        fields,
        nested,
        frozenset(used - {field.number for field in fields}),
        frozenset(names - {field.name for field in fields}),
    )


def _known_number(field: Field, named_so: Iterable[Field]) -> int | None:
    """The newest version's, which is the first; of the same type before one that was widened."""
    same = [other for other in named_so if (other.label == "repeated") == (field.label == "repeated")]
    for type_name in (field.type, "int32") if field.type == "int64" else (field.type,):
        for other in same:
            if other.type == type_name:
                return other.number
    return None


def _fresh_numbers(used: Iterable[int]) -> Iterator[int]:
    number = max(used, default=0)
    while number < LARGEST_NUMBER:
        number = number + 1 if number + 1 not in _NOT_FOR_USE else _NOT_FOR_USE.stop
        yield number
    raise ValueError("there are no field numbers left")


# --- text -------------------------------------------------------------------------------------------------------------


def _all_fields(message: Message) -> Iterator[Field]:
    yield from message.fields
    for each in message.messages:
        yield from _all_fields(each)


def _message_lines(message: Message, indent: str) -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    if any(field.json_name for field in message.fields):
        yield f"{indent}  option deprecated_legacy_json_field_conflicts = true;"  # protoc looks at the default names, too
    if message.reserved_numbers:
        yield f"{indent}  reserved {', '.join(map(str, sorted(message.reserved_numbers)))};"
    if message.reserved_names:
        yield f"{indent}  reserved {', '.join(map(_quoted, sorted(message.reserved_names)))};"
    for field in message.fields:
        yield f"{indent}  {_field_text(field)}"
    for each in message.messages:
        yield ""
        yield from _message_lines(each, f"{indent}  ")
    yield f"{indent}}}"


def _field_text(field: Field) -> str:
    options = [f"json_name = {_quoted(field.json_name)}"] if field.json_name else []
    if field.meta:
        parameters = ", ".join(f"{{key: {_quoted(name)}, value: {_quoted(value)}}}" for name, value in field.meta)
        options.append(f"{_META} = {{params: [{parameters}]}}")
    # From the root: a column, or a part of the package, may be called confluent.
    type_name = f".{field.type}" if field.is_decimal else field.type
    behind = f" [{', '.join(options)}]" if options else ""
    return f"{field.label} {type_name} {field.name} = {field.number}{behind};".lstrip()


def _quoted(text: str) -> str:
    return f'"{text}"'  # names and digits: nothing to escape


# --- and back ---------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    # An unclosed one ends with the text: else each begin of such would be looked at to there.
    r"//[^\n]*|/\*.*?(?:\*/|\Z)|\s+"
    r'|("(?:\\(?:.|\Z)|[^"\\])*(?:"|\Z)|\'(?:\\(?:.|\Z)|[^\'\\])*(?:\'|\Z)|[\w.]+|-?\d+|[^\s\w])',
    re.DOTALL,
)
_Tokens = list[str]


def read_protobuf_schema(text: str) -> ProtobufSchema:
    """A registered schema: ours, as a registry may have set it again, or one that another converter made.

    Fields of a ``oneof`` are the message's; of options, ``field_meta``'s parameters and ``json_name`` are read. Other parts
    of proto3 are read over. Of several messages the first counts, which is the one that our events name.

    Raises:
        ValueError: it is not Protobuf's language, has no message, or is larger or deeper than any of a table.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, and {_MOST_CHARACTERS} are read")
    found = (each[1] for each in _TOKEN.finditer(text) if each[1])
    tokens = list(itertools.islice(found, _MOST_TOKENS + 1))[::-1]
    if len(tokens) > _MOST_TOKENS:
        raise ValueError(f"it has more than {_MOST_TOKENS} words and signs")
    try:
        return _read_schema(tokens)
    except IndexError as error:
        raise ValueError("it is not Protobuf's language") from error


def _read_schema(tokens: _Tokens) -> ProtobufSchema:
    package, messages = "", []
    while tokens:
        words, opens = _statement(tokens)
        if opens and words[:1] == ["message"]:
            messages.append(_read_message(words[1], tokens, depth=1))
        elif opens:
            _skip_block(tokens)
        elif words[:1] == ["package"]:
            package = words[1]
    if not messages:
        raise ValueError("there is no message in it")
    return ProtobufSchema(package, messages[0])


def _statement(tokens: _Tokens) -> tuple[_Tokens, bool]:
    """The words up to ``;``, or up to the brace that opens a block."""
    words: _Tokens = []
    depth = 0
    while tokens:
        word = tokens.pop()
        if depth == 0 and word == ";":
            return words, False
        if depth == 0 and word == "{" and "=" not in words:  # else it is an option's value
            return words, True
        depth += (word in "[{") - (word in "]}")
        words.append(word)
    raise ValueError(f"it breaks off after {' '.join(words[-3:])!r}")


def _skip_block(tokens: _Tokens) -> None:
    depth = 1
    while depth:
        if not tokens:
            raise ValueError("a block is not closed")
        word = tokens.pop()
        depth += (word == "{") - (word == "}")


def _read_message(name: str, tokens: _Tokens, *, depth: int) -> Message:
    if depth > _DEEPEST:
        raise ValueError(f"it is nested in more than {_DEEPEST} levels")
    fields: list[Field] = []
    messages: list[Message] = []
    numbers: set[int] = set()
    names: set[str] = set()
    open_blocks = 1
    while open_blocks:
        if tokens and tokens[-1] == "}":
            tokens.pop()
            open_blocks -= 1
            continue
        words, opens = _statement(tokens)
        if opens and words[0] == "message":
            messages.append(_read_message(words[1], tokens, depth=depth + 1))
        elif opens and words[0] == "oneof":
            open_blocks += 1
        elif opens:
            _skip_block(tokens)
        elif words and words[0] == "reserved":
            _read_reserved(words[1:], numbers, names)
        elif "=" in words and words[0] != "option":
            fields.append(_read_field(words))
    return Message(name, tuple(fields), tuple(messages), frozenset(numbers), frozenset(names))


def _read_reserved(words: _Tokens, numbers: set[int], names: set[str]) -> None:
    parts = " ".join(words).split(",")
    for part in parts:
        first, _, last = part.strip().partition(" to ")
        if first[:1] in "\"'":
            names.add(first[1:-1])
        elif last == "max":
            raise ValueError("all further numbers are reserved")
        else:
            reserved = range(int(first), int(last or first) + 1)
            if len(numbers) + len(reserved) > _MOST_RESERVED:
                raise ValueError(f"more than {_MOST_RESERVED} numbers are reserved")
            numbers.update(reserved)


def _read_field(words: _Tokens) -> Field:
    at = words.index("=")
    if at < 2 or at + 1 >= len(words):
        raise ValueError(f"{' '.join(words)!r} is no field")
    label = words[0] if words[0] in ("optional", "repeated") and at > 2 else ""
    type_name = "".join(words[1 if label else 0 : at - 1]).lstrip(".")
    if type_name != _DECIMAL:
        type_name = type_name.rpartition(".")[2]
    options = words[at + 2 :]
    return Field(words[at - 1], type_name, int(words[at + 1], 0), label, _read_meta(options), _json_name_in(options))


def _read_meta(options: _Tokens) -> tuple[tuple[str, str], ...]:
    """Its pairs, with the two parts of each in any order."""
    named: dict[str, list[str]] = {"key": [], "value": []}
    for nth, word in enumerate(options[:-2]):
        if word in named and options[nth + 1] == ":":
            named[word].append(options[nth + 2][1:-1])
    return tuple(sorted(zip(named["key"], named["value"], strict=True)))


def _json_name_in(options: _Tokens) -> str:
    return options[options.index("json_name") + 2][1:-1] if "json_name" in options[:-2] else ""
