from libs.formats.connect_schema import ConnectSchema
from libs.formats.protobuf_schema import ProtobufSchema

class AvroWriter:
    """Writes JSON payloads of one Connect schema as Avro."""

    def __init__(self, connect_schema: ConnectSchema, prefix: bytes = b"") -> None:
        """``prefix``: what stands before each, as the schema's id."""
    def write(self, payload: bytes) -> bytes:
        """``payload`` in Avro's binary form, behind the prefix.

        Raises:
            InvalidEvent: the payload is not of the schema, or holds what Avro's type cannot.
        """

class ProtobufWriter:
    """Writes JSON payloads of one Connect schema as a Protobuf message."""

    def __init__(self, connect_schema: ConnectSchema, schema: ProtobufSchema, prefix: bytes = b"") -> None:
        """``schema``: that Connect schema's Protobuf form, with the numbers that count. ``prefix``: what stands before each."""
    def write(self, payload: bytes) -> bytes:
        """``payload`` as the message, behind the prefix; null is a field that is not there, zero one that is.

        Raises:
            InvalidEvent: the payload is not of the schema, or holds what Protobuf's type cannot.
        """
