"""A reader's own position as the token that everybody else carries (``libs.types.position``), and back."""

from typing import Generic, TypeVar

import msgspec

from libs.errors import PipelineHalted
from libs.types.position import SourcePosition

_Position = TypeVar("_Position", bound=msgspec.Struct)


class PositionCodec(Generic[_Position]):
    """The tokens of one kind of source: JSON of one record."""

    def __init__(self, source_kind: str, record: type[_Position]) -> None:
        self._source_kind = source_kind
        self._decoder = msgspec.json.Decoder(record)

    def encode(self, position: _Position) -> SourcePosition:
        """The position as everybody else carries it."""
        return self.of_token(msgspec.json.encode(position))

    def of_token(self, token: bytes) -> SourcePosition:
        """The same of a token that is JSON already."""
        return SourcePosition(source_kind=self._source_kind, token=token)

    def decode(self, position: SourcePosition) -> _Position:
        """What ``encode`` wrote.

        Raises:
            PipelineHalted: another kind of reader wrote it, or a newer release; reset the source or upgrade.
        """
        if position.source_kind != self._source_kind:
            raise PipelineHalted(
                f"the checkpoint belongs to a {position.source_kind!r} source, not to {self._source_kind!r}: "
                "give this source another name, or copy it again with headwater reset SOURCE"
            )
        try:
            return self._decoder.decode(position.token)
        except msgspec.DecodeError as error:
            raise PipelineHalted(
                f"the checkpoint's position cannot be read ({error}): install the release that wrote it, or copy the source "
                "again with headwater reset SOURCE"
            ) from error
