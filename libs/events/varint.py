"""Numbers of seven bits a byte, as protobuf and Kafka write lengths."""


def varint(number: int) -> bytes:
    """A number that is not negative, the lowest bits first; a byte's eighth bit says that more follow.

    Protocol Buffers, "Encoding"; Kafka's varints are the same, of zigzag numbers.
    """
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
