"""The shards that a stream reads: where each stands in its log, its epoch and rank, and the copy of its tables."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import msgspec
import orjson
import structlog

from libs.errors import PipelineHalted
from libs.source.vitess.vgtid import ShardGtid
from libs.types.position import SourcePosition
from protos.vitess import binlogdata_pb2
from services.vstream_reader.copy_progress import CopyProgress
from services.vstream_reader.position import LetGo, VitessPosition, encode_position
from services.vstream_reader.shard_beginnings import ShardBeginnings
from services.vstream_reader.vevents import shard_gtids
from services.vstream_reader.vgtid import inherited_epoch, parse_shard_position, shard_epoch, shard_gtid_from_proto

log = structlog.get_logger()


@dataclass(slots=True)
class Shard:
    """Where one shard stands."""

    gtid: ShardGtid
    epoch: int
    rank: int
    """Transactions."""
    hosts: frozenset[str]
    """Of its GTID set."""
    debezium_rank: int
    json: bytes
    """The ShardGtid as JSON."""
    quoted: bytes
    """The same inside a JSON string, without the quotes."""

    @property
    def name(self) -> str:
        """As the keyspace has it: a range of keyspace ids."""
        return self.gtid.shard


class ShardSet:
    """A stream's shards, in the order of its VGTIDs, from a position on."""

    def __init__(self, position: VitessPosition, *, is_copying: bool) -> None:
        self.copy = CopyProgress(position, is_copying=is_copying)
        self._epochs = dict(position.epochs)
        """Those of shards too that the first VGTID has not named yet."""
        self._raw_shards: list[bytes] = []
        self._shards: list[Shard] = []
        self._by_name: dict[str, Shard] = {}
        self._set([shard_at(entry, self._epochs.get(entry.shard, 0)) for entry in position.vgtid])
        self.begun = ShardBeginnings(position, self.copy)
        self._let_go, self._taken_up, self._deal = position.let_go, position.taken_up, position.deal
        self.places = 0
        """VGTIDs that were put into force: also after statements and other databases' writes, which are no transactions."""
        self.reshards = 0

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)

    def get(self, name: str) -> Shard | None:
        """The shard of that name, if the stream reads it."""
        return self._by_name.get(name)

    @property
    def names(self) -> Set[str]:
        """The shards that are read now."""
        return self._by_name.keys()

    @property
    def let_go(self) -> list[Shard]:
        """Those that wait for the task which takes them up."""
        return [shard_at(entry, part.epochs[entry.shard]) for part in self._let_go for entry in part.vgtid]

    @property
    def is_handing_over(self) -> bool:
        """The position says something of shards that tasks hand over."""
        return bool(self._let_go or self._taken_up)

    @property
    def position(self) -> SourcePosition:
        """Where the stream stands, which is after the last transaction that ended."""
        return encode_position(
            [shard.json for shard in self._shards],
            self._epochs,
            self.copy.last_keys() if self.copy.is_running else {},
            let_go=self._let_go,
            taken_up=self._taken_up,
            deal=self._deal,
        )

    @property
    def place(self) -> VitessPosition:
        """The same as a record."""
        return VitessPosition(
            vgtid=tuple(shard.gtid for shard in self._shards),
            epochs=dict(self._epochs),
            copied=self.copy.last_keys(),
            let_go=self._let_go,
            taken_up=self._taken_up,
            deal=self._deal,
        )

    @property
    def tables_copied(self) -> frozenset[str]:
        """The tables whose copy is finished in every shard that still copies any."""
        return self.copy.finished_everywhere(self._gtids())

    def finished_tables(self, name: str) -> frozenset[str]:
        """The tables whose copy the shard has finished."""
        return self.copy.finished_tables(self._by_name[name].gtid)

    def vgtid_json(self, shard: Shard | None = None) -> bytes:
        """The VGTID as JSON text: of one shard; None: of all."""
        if shard is not None:
            return b'"[%b]"' % shard.quoted
        return b'"[%b]"' % b",".join([each.quoted for each in self._shards])

    def note(self, let_go: tuple[LetGo, ...], taken_up: tuple[int, ...]) -> None:
        """Set the position's part about shards that tasks hand over (``reshard``): it is another place then."""
        self._let_go, self._taken_up = let_go, taken_up
        self.places += 1

    def end_copy(self, shard: str) -> None:
        """vtgate has copied the shard; "" stands for all."""
        self.copy.end(shard)
        self.begun.look_again(self._gtids())

    def advance(self, vgtid: bytes) -> bool:
        """Put a VGTID into force; whether other shards are read from here on.

        Raises:
            PipelineHalted: a shard's place cannot be read.
        """
        self.places += 1
        raw_shards, changed = shard_gtids(vgtid, self._raw_shards)
        self._raw_shards = raw_shards
        self.copy.begin_vgtid()
        arrived = {place: _shard_gtid(raw_shards[place]) for place in changed}
        if len(raw_shards) != len(self._shards) or any(
            self._shards[place].name != entry.shard for place, entry in arrived.items()
        ):
            self._reshard([_shard_gtid(raw) for raw in raw_shards])
            return True
        for place, entry in arrived.items():
            before = self._shards[place]
            if self.begun.is_held(entry.shard):
                continue
            self.copy.advance(before.gtid, entry)
            shard = self._shards[place] = shard_at(entry, before.epoch)
            if not before.hosts or not before.hosts <= shard.hosts:
                shard.epoch = shard_epoch(before.epoch, before.gtid.gtid, entry.gtid)
            self._by_name[entry.shard] = shard
            self._epochs[entry.shard] = shard.epoch
        self.begun.look_again(self._gtids())
        return False

    def _reshard(self, current: Sequence[ShardGtid]) -> None:
        """Shards came or went: those that stayed keep their epochs, the others inherit."""
        before, epochs = self._by_name, dict(self._epochs)
        after: list[Shard] = []
        for entry in current:
            known = before.get(entry.shard)
            if known is not None and self.begun.is_held(entry.shard):
                after.append(known)
                continue
            if known is not None:
                self.copy.advance(known.gtid, entry)
                epoch = shard_epoch(known.epoch, known.gtid.gtid, entry.gtid)
            else:
                # vtgate lists a keyspace's shards in its first VGTID: until then there is none to inherit from.
                epoch = inherited_epoch(entry.shard, epochs) if before else int(entry.is_place)
                log.info("shard_joined", shard=entry.shard, epoch=epoch)
            after.append(shard_at(entry, epoch))
        names = {entry.shard for entry in current}
        gone = sorted(set(before) - names)
        if gone:
            self.reshards += 1
            log.info("shards_left", shards=gone)
        self.begun.reshard(names, gone)
        self._epochs = {shard.name: shard.epoch for shard in after}
        self._set(after)
        self.copy.name_shards(names)
        self.copy.leave([before[shard].gtid for shard in gone])
        self.begun.look(self._gtids())

    def _gtids(self) -> Iterator[ShardGtid]:
        return (shard.gtid for shard in self._shards)

    def _set(self, shards: list[Shard]) -> None:
        self._shards = shards
        self._by_name = {shard.name: shard for shard in shards}


def shard_at(entry: ShardGtid, epoch: int) -> Shard:
    """A shard at its place in a VGTID.

    Raises:
        PipelineHalted: the place cannot be read.
    """
    transactions = debezium_rank = 0
    hosts: tuple[str, ...] = ()
    if entry.is_place:
        try:
            place = parse_shard_position(entry.gtid)
        except ValueError as error:
            raise PipelineHalted(f"shard {entry.shard} stands at a position that cannot be read: {error}") from error
        hosts, transactions, debezium_rank = place.hosts, place.transactions, place.debezium_rank
    text = msgspec.json.encode(entry)
    return Shard(entry, epoch, transactions, frozenset(hosts), debezium_rank, text, orjson.dumps(text.decode())[1:-1])


def _shard_gtid(raw: bytes) -> ShardGtid:
    return shard_gtid_from_proto(binlogdata_pb2.ShardGtid.FromString(raw))
