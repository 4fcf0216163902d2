# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""JSON payloads as Avro's or Protobuf's binary form, read once and written as they are read: no Python object a value.

The schema is a Connect schema (``connect_schema``), whose Avro form ``avro_schema`` gives, and ``protobuf_schema`` that of
Protobuf. Payloads as our readers write them have their members in its order; others are put into it. A member that is missing
is null where it may be; one that the schema does not know is refused, never left out. ``_Writer`` reads the JSON; ``AvroWriter``
and ``ProtobufWriter`` say how a part of it is written:
https://avro.apache.org/docs/1.12.0/specification/#binary-encoding, https://protobuf.dev/programming-guides/encoding/.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport INFINITY, NAN, isinf
from libc.stdint cimport INT32_MAX, INT32_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove

from libs.events.run_rows cimport Bytes, reserve

from libs.errors import InvalidEvent
from libs.types.value import UNAVAILABLE_VALUE

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, object overflow) except? -1.0

cdef enum:
    _BOOLEAN
    _INT
    _LONG
    _FLOAT
    _DOUBLE
    _STRING
    _BYTES
    _ARRAY
    _STRUCT

cdef enum:
    _LONGEST_VARINT = 10
    _LONGEST_NUMBER = 400  # JSON has longer ones, our readers write none
    _KEPT_BYTES = 4_000_000
    _NO_DIGIT = 255  # of base64

cdef enum:  # wire types of Protobuf
    _VARINT = 0
    _EIGHT_BYTES = 1
    _SIZED = 2
    _FOUR_BYTES = 5

_KINDS = {
    "boolean": _BOOLEAN,
    "int8": _INT,
    "int16": _INT,
    "int32": _INT,
    "int64": _LONG,
    "float": _FLOAT,
    "double": _DOUBLE,
    "string": _STRING,
    "bytes": _BYTES,
    "array": _ARRAY,
    "struct": _STRUCT,
}
_WIRE_TYPES = {
    "boolean": _VARINT,
    "int8": _VARINT,
    "int16": _VARINT,
    "int32": _VARINT,
    "int64": _VARINT,
    "float": _FOUR_BYTES,
    "double": _EIGHT_BYTES,
}
cdef bytes _UNAVAILABLE = UNAVAILABLE_VALUE.encode()
cdef uint8_t[256] _BASE64_DIGITS


cdef void _fill_base64_digits() noexcept:
    cdef int nth
    cdef const char* digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for nth in range(256):
        _BASE64_DIGITS[nth] = _NO_DIGIT
    for nth in range(64):
        _BASE64_DIGITS[<uint8_t>digits[nth]] = <uint8_t>nth


_fill_base64_digits()


cdef struct Place:
    Py_ssize_t begin  # 0: there is none, because a member never begins a payload


cdef class _Node:
    """A part of the schema."""

    cdef int kind
    cdef bint is_optional
    cdef str name
    cdef bytes opening  # the field's name as JSON text
    cdef bytes before  # the bytes before a value that is not null: the branch of Avro's union, the tag of Protobuf
    cdef bytes null  # the bytes in the place of null
    cdef bytes behind  # of Protobuf's Decimal: the bytes after the value in its message
    cdef tuple fields
    cdef _Node items


cdef _Node _node(connect, str name):
    """Without its content."""
    cdef _Node node = _Node.__new__(_Node)
    node.kind = _KINDS[connect["type"]]
    node.is_optional = connect.get("optional", False)
    node.name = connect.get("field", name)
    node.opening = b'"' + node.name.encode() + b'"'
    node.before = node.null = b""
    node.fields = ()
    return node


cdef class _Writer:
    """Reads a payload's JSON; how it is written is in the classes below."""

    cdef _Node _root
    cdef bytes _prefix
    cdef Bytes _out
    cdef Bytes _text  # of a string that has escapes
    cdef const char* _data
    cdef Py_ssize_t _place
    cdef Py_ssize_t _end
    cdef str _form
    cdef bint _is_zigzag  # integers and sizes

    def __dealloc__(self):
        free(self._out.data)
        free(self._text.data)

    def write(self, bytes payload not None) -> bytes:
        self._data = PyBytes_AS_STRING(payload)
        self._place, self._end = 0, PyBytes_GET_SIZE(payload)
        self._out.size = 0
        self._put(PyBytes_AS_STRING(self._prefix), PyBytes_GET_SIZE(self._prefix))
        self._skip_space()
        self._write(self._root)
        self._skip_space()
        if self._place != self._end:
            raise InvalidEvent("something follows the event's JSON")
        written = PyBytes_FromStringAndSize(self._out.data, self._out.size)
        if self._out.capacity > _KEPT_BYTES:  # a single large row should not stay in memory
            free(self._out.data)
            self._out.data = NULL
            self._out.size = self._out.capacity = 0
        return written

    # --- values

    cdef int _write(self, _Node node) except -1:
        if self._is_next(b"null", 4):
            if not node.is_optional:
                raise InvalidEvent(f"{node.name!r} is null, and its schema does not allow that")
            self._place += 4
            return self._put_short(node.null)
        self._put_short(node.before)
        if node.kind == _STRING:
            return self._write_string(node)
        if node.kind == _INT or node.kind == _LONG:
            return self._write_integer(node)
        if node.kind == _STRUCT:
            return self._write_struct(node)
        if node.kind == _BYTES:
            return self._write_bytes(node)
        if node.kind == _BOOLEAN:
            return _write_boolean(self, node)
        if node.kind == _ARRAY:
            return self._write_array(node)
        return self._write_floating(node)

    cdef int _write_integer(self, _Node node) except -1:
        cdef Py_ssize_t place = self._place
        cdef bint is_negative = place < self._end and self._data[place] == b"-"
        cdef uint64_t number = 0, digit
        place += is_negative
        cdef Py_ssize_t begin = place
        while place < self._end and 48 <= self._data[place] <= 57:
            digit = self._data[place] - 48
            if number > (<uint64_t>1 << 63) // 10:
                self._refuse(node, "a 64-bit integer")
            number = 10 * number + digit
            place += 1
        if place == begin or (place < self._end and self._data[place] in b".eE"):
            self._refuse(node, "an integer")
        if number > (<uint64_t>1 << 63) - 1 + is_negative:
            self._refuse(node, "a 64-bit integer")
        cdef int64_t signed_number = <int64_t>(0 - number) if is_negative else <int64_t>number
        if node.kind == _INT and not INT32_MIN <= signed_number <= INT32_MAX:
            self._refuse(node, "a 32-bit integer")
        self._place = place
        return self._put_integer(signed_number)

    cdef int _write_floating(self, _Node node) except -1:
        cdef char[_LONGEST_NUMBER] text
        cdef Py_ssize_t size = 0
        cdef char* end = NULL
        cdef double number
        cdef float single
        if self._is_next(b'"', 1):
            return _write_named_number(self, node)
        while self._place + size < self._end and self._data[self._place + size] in b"+-.0123456789eE":
            size += 1
        if size == 0 or size >= _LONGEST_NUMBER:
            self._refuse(node, "a number")
        memcpy(text, self._data + self._place, size)
        text[size] = 0
        try:
            number = PyOS_string_to_double(text, &end, OverflowError)
        except ValueError:
            number = 0.0
        except OverflowError:
            self._refuse(node, "a number that a double holds")
        if end != text + size:
            self._refuse(node, "a number")
        self._place += size
        if node.kind == _DOUBLE:
            return self._put(<char*>&number, sizeof(number))  # little-endian, as every machine that this is built for
        single = <float>number
        if isinf(single):
            self._refuse(node, "a number that a float holds")
        return self._put(<char*>&single, sizeof(single))

    cdef int _write_string(self, _Node node) except -1:
        cdef const char* text = NULL
        cdef Py_ssize_t size = self._read_string(node, &text)
        self._put_integer(size)
        return self._put(text, size)

    cdef int _write_bytes(self, _Node node) except -1:
        """base64 (JsonConverter); the placeholder of a value that the log does not hold is its characters, as Debezium has it."""
        cdef const char* text = NULL
        cdef Py_ssize_t size = self._read_string(node, &text)
        if size == PyBytes_GET_SIZE(_UNAVAILABLE) and memcmp(text, PyBytes_AS_STRING(_UNAVAILABLE), size) == 0:
            self._put_integer(size)
            return self._put(text, size)
        cdef Py_ssize_t padding = 0
        while padding < 2 and size - padding > 0 and text[size - padding - 1] == b"=":
            padding += 1
        if size % 4:
            raise InvalidEvent(f"{node.name!r} is not base64, in which JSON holds bytes")
        cdef Py_ssize_t written = size // 4 * 3 - padding, nth, digits = size - padding
        self._put_integer(written)
        reserve(&self._out, written + 3)
        cdef uint8_t* to = <uint8_t*>self._out.data + self._out.size
        cdef uint32_t bits = 0
        cdef uint8_t digit, odd = 0
        for nth in range(digits):
            digit = _BASE64_DIGITS[<uint8_t>text[nth]]
            odd |= digit
            bits = bits << 6 | (digit & 63)
            if nth & 3 == 3:
                to[0], to[1], to[2] = <uint8_t>(bits >> 16), <uint8_t>(bits >> 8), <uint8_t>bits
                to += 3
        if padding == 1:
            to[0], to[1] = <uint8_t>(bits >> 10), <uint8_t>(bits >> 2)
        elif padding == 2:
            to[0] = <uint8_t>(bits >> 4)
        if odd > 63:
            raise InvalidEvent(f"{node.name!r} is not base64, in which JSON holds bytes")
        self._out.size += written
        return 0

    # --- structs

    cdef int _write_struct(self, _Node node) except -1:
        cdef Py_ssize_t begin = self._place, written = self._out.size
        if self._write_in_order(node):
            return 0
        self._place, self._out.size = begin, written
        return self._write_by_name(node)

    cdef bint _write_in_order(self, _Node node) except -1:
        """False: the members are others, or in another order; the written bytes are to be taken back."""
        cdef Py_ssize_t nth, count = len(node.fields)
        cdef _Node field
        self._open(node, b"{", "an object")
        for nth in range(count):
            field = <_Node>node.fields[nth]
            if not self._is_next(PyBytes_AS_STRING(field.opening), PyBytes_GET_SIZE(field.opening)):
                return False
            self._place += PyBytes_GET_SIZE(field.opening)
            self._expect(b":")
            self._write(field)
            if self._has_ended(b"}"):
                return nth == count - 1
        return False  # one more, or none of nothing

    cdef int _write_by_name(self, _Node node) except -1:
        cdef Py_ssize_t nth, end, count = len(node.fields)
        cdef Place* places = <Place*>calloc(max(1, count), sizeof(Place))
        if places == NULL:
            raise MemoryError
        try:
            self._find_members(node, places)
            end = self._place
            for nth in range(count):
                if places[nth].begin:
                    self._place = places[nth].begin
                    self._write(<_Node>node.fields[nth])
                else:
                    self._write_missing(<_Node>node.fields[nth])
            self._place = end
        finally:
            free(places)
        return 0

    cdef int _find_members(self, _Node node, Place* places) except -1:
        cdef Py_ssize_t nth
        cdef _Node field
        self._open(node, b"{", "an object")
        if self._is_next(b"}", 1):
            self._place += 1
            return 0
        while True:
            for nth in range(len(node.fields)):
                field = <_Node>node.fields[nth]
                if self._is_next(PyBytes_AS_STRING(field.opening), PyBytes_GET_SIZE(field.opening)):
                    break
            else:
                raise InvalidEvent(f"{node.name!r} has a member that its schema does not have")
            self._place += PyBytes_GET_SIZE(field.opening)
            self._expect(b":")
            places[nth].begin = self._place
            self._skip_value()
            if self._has_ended(b"}"):
                return 0

    cdef int _write_missing(self, _Node field) except -1:
        if not field.is_optional:
            raise InvalidEvent(f"the event lacks {field.name!r}")
        return self._put_short(field.null)

    cdef int _write_array(self, _Node node) except -1:
        raise NotImplementedError

    # --- JSON

    cdef inline bint _is_next(self, const char* text, Py_ssize_t size) noexcept:
        return self._end - self._place >= size and memcmp(self._data + self._place, text, size) == 0

    cdef inline void _skip_space(self) noexcept:
        while self._place < self._end and self._data[self._place] in b" \n\r\t":
            self._place += 1

    cdef int _open(self, _Node node, const char* brace, str what) except -1:
        if not self._is_next(brace, 1):
            self._refuse(node, what)
        self._place += 1
        self._skip_space()
        return 0

    cdef int _expect(self, const char* mark) except -1:
        self._skip_space()
        if not self._is_next(mark, 1):
            raise InvalidEvent("the event is not JSON")
        self._place += 1
        self._skip_space()
        return 0

    cdef bint _has_ended(self, const char* brace) except -1:
        """After an item or a member; the place is at the next one, or after the end."""
        self._skip_space()
        if self._is_next(brace, 1):
            self._place += 1
            return True
        self._expect(b",")
        return False

    cdef int _skip_value(self) except -1:
        """Over one value; whether it is JSON shows when it is written."""
        cdef Py_ssize_t depth = 0
        cdef char byte
        while self._place < self._end:
            byte = self._data[self._place]
            if byte == b'"':
                self._place = self._end_of_string(self._place + 1) + 1
            elif byte == b"{" or byte == b"[":
                depth += 1
                self._place += 1
                continue
            elif byte == b"}" or byte == b"]":
                if depth == 0:
                    return 0
                depth -= 1
                self._place += 1
            elif byte == b",":
                if depth == 0:
                    return 0
                self._place += 1
                continue
            else:
                self._place += 1
                continue
            if depth == 0:
                return 0
        return 0

    cdef Py_ssize_t _end_of_string(self, Py_ssize_t place) except -1:
        """The closing quote of the string that begins at ``place``."""
        while place < self._end:
            if self._data[place] == b'"':
                return place
            place += 2 if self._data[place] == b"\\" else 1
        raise InvalidEvent("the event is not JSON: a text does not end")

    cdef Py_ssize_t _read_string(self, _Node node, const char** text) except -1:
        """Its size; ``text`` is good until the next one is read."""
        cdef Py_ssize_t begin, place
        if not self._is_next(b'"', 1):
            self._refuse(node, "a text")
        begin = place = self._place + 1
        while place < self._end and self._data[place] != b'"' and self._data[place] != b"\\":
            place += 1
        if place < self._end and self._data[place] == b'"':
            self._place = place + 1
            text[0] = self._data + begin
            return place - begin
        place = self._end_of_string(place)
        self._place = place + 1
        self._unescape(begin, place)
        text[0] = self._text.data
        return self._text.size

    cdef int _unescape(self, Py_ssize_t place, Py_ssize_t end) except -1:
        cdef char byte
        cdef uint32_t code, low
        self._text.size = 0
        reserve(&self._text, end - place + 1)  # no escape is shorter than its character
        while place < end:
            byte = self._data[place]
            place += 1
            if byte != b"\\":
                self._add_byte(byte)
                continue
            byte = self._data[place]
            place += 1
            if byte == b"u":
                code = self._hex(place, end)
                place += 4
                if 0xD800 <= code < 0xDC00 and end - place >= 6 and memcmp(self._data + place, b"\\u", 2) == 0:
                    low = self._hex(place + 2, end)
                    if 0xDC00 <= low < 0xE000:
                        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                        place += 6
                if 0xD800 <= code < 0xE000:
                    raise InvalidEvent("the event has half a character, which UTF-8 cannot hold")
                self._add_code(code)
            elif byte == b"n":
                self._add_byte(b"\n")
            elif byte == b"t":
                self._add_byte(b"\t")
            elif byte == b"r":
                self._add_byte(b"\r")
            elif byte == b"b":
                self._add_byte(b"\b")
            elif byte == b"f":
                self._add_byte(b"\f")
            else:
                self._add_byte(byte)
        return 0

    cdef uint32_t _hex(self, Py_ssize_t place, Py_ssize_t end) except? 0xFFFFFFFF:
        cdef uint32_t code = 0
        cdef int nth, digit
        for nth in range(4):
            digit = self._data[place + nth] if place + nth < end else 0
            if 48 <= digit <= 57:
                digit -= 48
            elif 97 <= digit | 0x20 <= 102:
                digit = (digit | 0x20) - 87
            else:
                raise InvalidEvent("the event is not JSON: an escape has no number")
            code = code << 4 | <uint32_t>digit
        return code

    cdef inline void _add_byte(self, char byte) noexcept:
        self._text.data[self._text.size] = byte
        self._text.size += 1

    cdef void _add_code(self, uint32_t code) noexcept:
        """In UTF-8."""
        if code < 0x80:
            self._add_byte(<char>code)
            return
        if code < 0x800:
            self._add_byte(<char>(0xC0 | code >> 6))
        else:
            if code < 0x10000:
                self._add_byte(<char>(0xE0 | code >> 12))
            else:
                self._add_byte(<char>(0xF0 | code >> 18))
                self._add_byte(<char>(0x80 | code >> 12 & 0x3F))
            self._add_byte(<char>(0x80 | code >> 6 & 0x3F))
        self._add_byte(<char>(0x80 | code & 0x3F))

    cdef int _refuse(self, _Node node, str what) except -1:
        if self._is_next(b'"' + _UNAVAILABLE + b'"', PyBytes_GET_SIZE(_UNAVAILABLE) + 2):
            raise InvalidEvent(f"the log does not hold {node.name!r} of this row, and {self._form} has no word for that where it wants {what}")
        raise InvalidEvent(f"{node.name!r} is not {what}, as its schema has it")

    # --- bytes

    cdef inline int _put(self, const char* data, Py_ssize_t size) except -1:
        reserve(&self._out, size)
        memcpy(self._out.data + self._out.size, data, size)
        self._out.size += size
        return 0

    cdef inline int _put_short(self, bytes data) except -1:
        """Mostly one byte, or none."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        if size != 1:
            return self._put(PyBytes_AS_STRING(data), size) if size else 0
        reserve(&self._out, 1)
        self._out.data[self._out.size] = PyBytes_AS_STRING(data)[0]
        self._out.size += 1
        return 0

    cdef inline int _put_integer(self, int64_t number) except -1:
        if self._is_zigzag:
            return self._put_varint((<uint64_t>number << 1) ^ <uint64_t>(number >> 63))
        return self._put_varint(<uint64_t>number)  # a negative one takes ten bytes, of 32 bits too

    cdef inline int _put_varint(self, uint64_t rest) except -1:
        """Seven bits a byte, the lowest first."""
        reserve(&self._out, _LONGEST_VARINT)
        while rest > 0x7F:
            self._out.data[self._out.size] = <char>(rest & 0x7F | 0x80)
            self._out.size += 1
            rest >>= 7
        self._out.data[self._out.size] = <char>rest
        self._out.size += 1
        return 0


cdef _Node _avro_node(connect, str name):
    cdef _Node node = _node(connect, name)
    if node.is_optional:
        node.null, node.before = (b"\0", b"\x02") if connect.get("default") is None else (b"\x02", b"\0")
    node.fields = tuple([_avro_node(field, node.name) for field in connect.get("fields", ())])
    node.items = _avro_node(connect["items"], node.name) if "items" in connect else None
    return node


cdef int _write_boolean(_Writer writer, _Node node) except -1:
    if writer._is_next(b"true", 4):
        writer._place += 4
        return writer._put(b"\x01", 1)
    if writer._is_next(b"false", 5):
        writer._place += 5
        return writer._put(b"\x00", 1)
    writer._refuse(node, "a boolean")


cdef int _write_named_number(_Writer writer, _Node node) except -1:
    """A number that JSON has no digits for, as Connect's JsonConverter writes it."""
    cdef const char* text = NULL
    cdef Py_ssize_t size = writer._read_string(node, &text)
    cdef double number = 0.0
    cdef float single
    if size == 3 and memcmp(text, b"NaN", 3) == 0:
        number = NAN
    elif size == 8 and memcmp(text, b"Infinity", 8) == 0:
        number = INFINITY
    elif size == 9 and memcmp(text, b"-Infinity", 9) == 0:
        number = -INFINITY
    else:
        writer._refuse(node, "a number")
    if node.kind == _DOUBLE:
        return writer._put(<char*>&number, sizeof(number))
    single = <float>number
    return writer._put(<char*>&single, sizeof(single))


cdef class AvroWriter(_Writer):

    def __init__(self, connect_schema, bytes prefix not None=b"") -> None:
        self._root = _avro_node(connect_schema, "payload")
        self._prefix = prefix
        self._form = "Avro"
        self._is_zigzag = True

    cdef int _write_array(self, _Node node) except -1:
        """One block of all items, if there are any, and the empty block that ends it."""
        cdef Py_ssize_t begin, count = 0
        self._open(node, b"[", "an array")
        begin = self._place
        if not self._is_next(b"]", 1):
            while True:
                self._skip_value()
                count += 1
                if self._has_ended(b"]"):
                    break
            self._place = begin
            self._put_integer(count)
            while True:
                self._write(node.items)
                if self._has_ended(b"]"):
                    break
        else:
            self._place += 1
        return self._put_integer(0)


cdef bytes _varint(number):
    """For a text that is written once; of a number that is not negative."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


cdef _Node _message_node(connect, message, str name):
    """A message without its tag: the root, or of a field that sets it."""
    cdef _Node node = _node(connect, name)
    fields = {field.name: field for field in message.fields}
    node.fields = tuple([_field_node(each, fields[each["field"]], message) for each in connect["fields"]])
    return node


cdef _Node _field_node(connect, field, message):
    cdef _Node node
    kind = connect["type"]
    if kind == "array":
        node = _node(connect, field.name)
        node.items = _field_node({**connect["items"], "field": field.name, "optional": False}, field, message)
        if connect["items"]["type"] in _WIRE_TYPES:  # packed: one tag and one size for all of them
            node.before, node.items.before = _tag(field, _SIZED), b""
        return node
    node = _message_node(connect, message.message(field.type), field.name) if kind == "struct" else _node(connect, field.name)
    node.before = _tag(field, _WIRE_TYPES.get(kind, _SIZED))
    if field.is_decimal:
        parameters = connect["parameters"]
        node.behind = b"\x10" + _varint(int(parameters.get("connect.decimal.precision", 0)))
        node.behind += b"\x18" + _varint(int(parameters["scale"]))
    return node


cdef bytes _tag(field, int wire_type):
    return _varint(field.number << 3 | wire_type)


cdef class ProtobufWriter(_Writer):

    def __init__(self, connect_schema, schema, bytes prefix not None=b"") -> None:
        self._root = _message_node(connect_schema, schema.message, "payload")
        self._prefix = prefix
        self._form = "Protobuf"

    cdef int _write_bytes(self, _Node node) except -1:
        if node.behind is None:
            return _Writer._write_bytes(self, node)
        cdef Py_ssize_t begin = self._begin_sized()
        self._put(b"\x0a", 1)
        _Writer._write_bytes(self, node)
        self._put(PyBytes_AS_STRING(node.behind), PyBytes_GET_SIZE(node.behind))
        return self._end_sized(begin)

    cdef int _write_struct(self, _Node node) except -1:
        if node is self._root:
            return _Writer._write_struct(self, node)
        cdef Py_ssize_t begin = self._begin_sized()
        _Writer._write_struct(self, node)
        return self._end_sized(begin)

    cdef int _write_array(self, _Node node) except -1:
        """Each item with its tag; numbers packed after one. Of no items nothing is left but an empty pack."""
        cdef Py_ssize_t begin = 0
        cdef bint is_packed = PyBytes_GET_SIZE(node.before) > 0
        if is_packed:
            begin = self._begin_sized()
        self._open(node, b"[", "an array")
        if self._is_next(b"]", 1):
            self._place += 1
        else:
            while True:
                self._write(node.items)
                if self._has_ended(b"]"):
                    break
        return self._end_sized(begin) if is_packed else 0

    cdef Py_ssize_t _begin_sized(self) except -1:
        """Room for the size of the next part, which is known after it."""
        self._put(b"\0", 1)
        return self._out.size

    cdef int _end_sized(self, Py_ssize_t begin) except -1:
        cdef Py_ssize_t size = self._out.size - begin, more = 0
        while size >> 7 * (more + 1):
            more += 1
        if more:
            reserve(&self._out, more)
            memmove(self._out.data + begin + more, self._out.data + begin, size)
        self._out.size = begin - 1
        self._put_varint(<uint64_t>size)
        self._out.size += size
        return 0
