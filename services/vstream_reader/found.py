"""A decoder's yields to its caller: a new table, a new form of one, a statement, a journal."""

from dataclasses import dataclass

from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import TableSchema
from protos.vitess import binlogdata_pb2


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table of a FIELD event, in a form that has no version yet. The caller answers with ``StreamDecoder.learn``."""

    schema: TableSchema
    order: EventOrder
    position: SourcePosition
    committed_at_us: int


@dataclass(frozen=True, slots=True)
class NewForm:
    """A FIELD event that describes a shard's table otherwise than before; it comes once the form has its version."""

    before: TableSchema
    after: TableSchema
    shard: str


@dataclass(frozen=True, slots=True)
class DdlStatement:
    """A statement that a shard executed. It says nothing of columns: the next FIELD event does."""

    statement: str
    shard: str
    order: EventOrder
    position: SourcePosition
    committed_at_us: int
    vgtid: bytes
    """As JSON text."""


@dataclass(frozen=True, slots=True)
class Reshard:
    """A journal: the shards named in it have ended, others go on."""

    journal: binlogdata_pb2.Journal


Found = NewTable | NewForm | DdlStatement | Reshard
