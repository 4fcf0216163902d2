from libs.events.connect_schema import ConnectSchema

class AvroWriter:
    """Writes JSON payloads of one Connect schema as Avro."""

    def __init__(self, connect_schema: ConnectSchema, prefix: bytes = b"") -> None:
        """``prefix``: what stands before each, as the schema's id."""
    def write(self, payload: bytes) -> bytes:
        """``payload`` in Avro's binary form, behind the prefix.

        Raises:
            InvalidEvent: the payload is not of the schema, or holds what Avro's type cannot.
        """
