"""Which shards of a stream have begun, and which have come to the journal of a reshard."""

from collections.abc import Iterable, Set

from libs.source.vitess.vgtid import ShardGtid
from services.vstream_reader.copy_progress import CopyProgress
from services.vstream_reader.position import VitessPosition


class ShardBeginnings:
    """The beginnings and ends of a stream's shards, from a position on."""

    def __init__(self, position: VitessPosition, copy: CopyProgress) -> None:
        """``copy``: the stream's, which is asked whether rows of a shard have come."""
        self._copy = copy
        self._only_followed = {
            entry.shard
            for entry in position.vgtid
            if entry.is_place and copy.is_of(entry.shard) and not (entry.table_p_ks or position.copied[entry.shard])
        }
        """Shards of which nothing is copied, because a reshard ends them (``position.followed_to_its_end``)."""
        self.unconfirmed = frozenset(entry.shard for entry in position.vgtid if not entry.is_place)
        """Shards that begin with this stream, until it is known that no reshard had ended them before."""
        self._held: set[str] = set()
        self._not_begun: set[str] = set()
        self.look(position.vgtid)

    @property
    def held(self) -> frozenset[str]:
        """Those that have come to the journal of a reshard."""
        return frozenset(self._held)

    @property
    def are_all(self) -> bool:
        """Every shard has begun, and none could have been ended by a reshard before that (``confirm``)."""
        return not self._not_begun and not self.unconfirmed

    @property
    def to_begin_again(self) -> frozenset[str]:
        """Those that another stream begins again: neither their place has come (or rows of them, where they are copied), nor
        the journal that ends them."""
        return frozenset(self._not_begun - self._only_followed - self._held)

    def is_held(self, shard: str) -> bool:
        """Whether the shard is among ``held``."""
        return shard in self._held

    def hold(self, shard: str) -> None:
        """The shard came to the journal of a reshard. Its position stays before the journal until the new shards have taken
        over: a reader that resumes has to meet the journal again."""
        self._held.add(shard)

    def confirm(self, shards: Set[str]) -> None:
        """These have begun before the journals that end them, if any does."""
        self.unconfirmed -= shards

    def look(self, shards: Iterable[ShardGtid]) -> None:
        """Judge each shard by its place and its copy."""
        self._not_begun = {entry.shard for entry in shards if not self._has_begun(entry)}

    def look_again(self, shards: Iterable[ShardGtid]) -> None:
        """The same where a shard had not begun: one that has begun stays so."""
        if self._not_begun:
            self.look(shards)

    def reshard(self, names: Set[str], gone: Iterable[str]) -> None:
        """The stream reads ``names`` from here on, and ``gone`` no longer; ``look`` is to follow."""
        if "" in self.unconfirmed:  # a request for all shards: these are they
            self.unconfirmed = frozenset(names)
        self.unconfirmed -= set(gone)
        self._held &= names

    def _has_begun(self, entry: ShardGtid) -> bool:
        """The shard has sent its place, and some of its rows if they are copied."""
        return entry.is_place and (not self._copy.is_of(entry.shard) or self._copy.has_rows(entry.shard))
