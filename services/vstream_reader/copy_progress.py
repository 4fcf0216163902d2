"""How far vtgate's copy of the tables has come in a stream, by shard."""

from collections.abc import Iterable

from libs.source.vitess.vgtid import EMPTY, ShardGtid, TableLastKey
from services.vstream_reader.position import VitessPosition


class CopyProgress:
    """A copy that vtgate's VGTIDs and COPY_COMPLETED events carry on (Vitess, ``vstream_manager.go``)."""

    def __init__(self, position: VitessPosition, *, is_copying: bool) -> None:
        self._shards = copying_shards(position) if is_copying else set()
        self.is_running = bool(self._shards)
        """Tables are still being copied."""
        self.current_table = ""
        """The table of the newest key; empty: none."""
        self.cut_short: dict[str, frozenset[str]] = {}
        """Shards that a reshard ended before their copy was, with the tables that were finished there: nobody sends their other
        rows any more."""
        self._last_keys: dict[str, dict[str, TableLastKey]] = {
            shard: {table.table_name: table for table in tables if table.lastpk is not None}
            for shard, tables in position.copied.items()
        }
        self._begun: dict[str, set[str]] = {
            shard: {table.table_name for table in tables} for shard, tables in position.copied.items()
        }
        """By shard the tables that its copy has come to. Of one that was empty then there is no last key."""
        self._advanced: set[str] = set()

    @property
    def shards(self) -> frozenset[str]:
        """Those that vtgate still copies; "" stands for all. A reshard's new shards are not among them."""
        return frozenset(self._shards)

    def is_of(self, shard: str) -> bool:
        """vtgate still copies the shard."""
        return shard in self._shards

    def is_advanced(self, shard: str) -> bool:
        """The copy of the shard went on with the newest VGTID."""
        return shard in self._advanced

    def has_rows(self, shard: str) -> bool:
        """Some row of the shard has come."""
        return bool(self._last_keys.get(shard))

    def last_keys(self) -> dict[str, tuple[TableLastKey, ...]]:
        """As a position has them: of a shard of which a row has come, each table that its copy has come to."""
        return {
            shard: (
                *tables.values(),
                *(
                    TableLastKey(table_name=name)
                    for name in sorted(self._begun.get(shard, set()) - tables.keys())
                    if tables
                ),
            )
            for shard, tables in self._last_keys.items()
        }

    def finished_tables(self, place: ShardGtid) -> frozenset[str]:
        """The tables whose copy the shard at ``place`` has finished."""
        unfinished = {table.table_name for table in place.table_p_ks}
        return frozenset(self._last_keys.get(place.shard, {}).keys() - unfinished)

    def finished_everywhere(self, places: Iterable[ShardGtid]) -> frozenset[str]:
        """The tables whose copy is finished in every shard that still copies any."""
        finished = [self.finished_tables(place) for place in places if place.shard in self._shards]
        return frozenset.intersection(*finished) if finished else frozenset()

    def begin_table(self, shard: str, table: str) -> None:
        """The copy of the shard came to the table: vtgate sent its columns."""
        if self._shards & {shard, ""}:  # of all shards, before the first VGTID
            self._begun.setdefault(shard, set()).add(table)

    def begin_vgtid(self) -> None:
        """Another VGTID is put into force."""
        self._advanced.clear()

    def advance(self, before: ShardGtid, after: ShardGtid) -> None:
        """The shard's place in the new VGTID, with the last keys of its tables."""
        if after.shard not in self._shards:  # of one that is finished a note would have it copied again
            return
        if after.table_p_ks and after.table_p_ks != before.table_p_ks:
            self._advanced.add(after.shard)
        known = self._last_keys.setdefault(after.shard, {})
        here = {table.table_name: table for table in after.table_p_ks if table.lastpk is not None}
        known.update(here)
        if here:
            self.current_table = max(here)

    def name_shards(self, shards: Iterable[str]) -> None:
        """The keyspace's shards, which the first VGTID names: a copy of all of them is one of these."""
        if "" in self._shards:
            self._shards = set(shards)

    def leave(self, gone: Iterable[ShardGtid]) -> None:
        """A reshard ended these shards, copied or not."""
        for place in gone:
            if place.shard in self._shards:
                self.cut_short[place.shard] = self.finished_tables(place)
            self._forget(place.shard)
        if self.is_running and not self._shards:
            self._finish()

    def end(self, shard: str) -> None:
        """The shard is copied; "" ends the copy of all.

        The end of all does not come when a reshard has replaced a shard: then the last one's is the end.
        """
        self._forget(shard)  # a stream that is opened again only follows its log
        if not shard or not self._shards:
            self._finish()

    def _forget(self, shard: str) -> None:
        self._shards.discard(shard)
        self._last_keys.pop(shard, None)
        self._begun.pop(shard, None)

    def _finish(self) -> None:
        self.is_running = False
        self._shards.clear()
        self._last_keys.clear()
        self._begun.clear()
        self.current_table = ""


def copying_shards(position: VitessPosition) -> set[str]:
    """The shards that vtgate copies in a stream from ``position``; "" stands for all."""
    return {
        entry.shard
        for entry in position.vgtid
        if entry.gtid == EMPTY or entry.table_p_ks or entry.shard in position.copied
    }
