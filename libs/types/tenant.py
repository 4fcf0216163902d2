"""Tenants: the owners of delivered data, and each one's share (design: Tenants)."""

import enum
from typing import Annotated, Final, NewType

import msgspec

from libs.types.bounds import bounds
from libs.types.patterns import matches_table
from libs.types.table_layout import TableLayout

TenantId = NewType("TenantId", str)

TENANT_NAME: Final = "[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?"
"""Regular expression of a tenant's whole name."""


Characters = Annotated[int | None, bounds(1, 1_000_000)]


class EventFormat(enum.Enum):
    """How a tenant's events are written."""

    JSON = "json"
    """Debezium's JSON."""
    AVRO = "avro"
    """Avro, its schemas in the schema registry that the router's settings name; only without a sink."""
    PROTOBUF = "protobuf"
    """Protobuf, in the same way."""


class HeaderForm(enum.Enum):
    """How the values of records' headers are written."""

    TEXT = "text"
    """Plain text, and a changed key as its JSON: the form of Connect's default, SimpleHeaderConverter."""
    JSON = "json"
    """JSON with its Connect schema, as JsonConverter writes and reads; only with ``schemas``, and without a sink."""


class NameAdjustment(enum.Enum):
    """How names become such as Avro takes: letters, digits and ``_``, no digit first."""

    NONE = "none"
    """As they are."""
    AVRO = "avro"
    """Characters that Avro does not allow become ``_``."""
    AVRO_UNICODE = "avro_unicode"
    """Characters that Avro does not allow, and ``_`` itself, become ``_u`` and their number, so that names stay apart."""


class SinkMode(enum.Enum):
    """The content of a sink table."""

    MIRROR = "mirror"
    """The current rows."""
    APPEND = "append"
    """Every change, in order."""
    HISTORY = "history"
    """Every version of every row, from when to when (slowly changing dimension, type 2)."""


class Deletes(enum.Enum):
    """A mirror's treatment of a row that the source deletes."""

    HARD = "hard"
    """It goes."""
    SOFT = "soft"
    """It stays, marked in ``_headwater_deleted`` and ``_headwater_deleted_at``."""


class Operation(enum.Enum):
    """The change of a row, or of a table; an event's ``op``."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    TRUNCATE = "t"


class HashMask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replace a value by the hex of a salted hash: the same value gives the same text."""

    salt: str
    """Put before each value: nobody without it can guess values by hashing them."""
    algorithm: str = "sha256"
    """sha256 or sha512."""


class KeyFrom(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a mask's key is; never the key itself. Give one of the two."""

    file: str | None = None
    """A name: the file of that name in the tenant's own folder of the keys' folder (a mounted Secret, in Kubernetes)."""
    env: str | None = None
    """The router's environment variable ``HEADWATER_KEY__<TENANT>__<NAME>``, written out: ``HEADWATER_KEY__ACME__PII``."""


class HmacMask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replace a value by the hex of its HMAC: with the key, and only with it, the same value gives the same text."""

    key_from: KeyFrom
    """At least 16 bytes."""
    algorithm: str = "sha256"
    """sha256 or sha512."""


class PreservedFormat(enum.Enum):
    """The kind of a value whose shape a mask keeps."""

    EMAIL = "email"
    """Letters and digits become others; dots, the at sign and the last part of the domain stay."""
    PHONE = "phone"
    """Digits become others; plus, spaces and brackets stay."""


class FormatMask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replace a value by another of the same shape: different values become different ones, the same value always the same."""

    kind: PreservedFormat
    """A value of another shape becomes its HMAC instead."""
    key_from: KeyFrom
    """At least 16 bytes. The mask can be undone with it."""


class EncryptMask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replace a value by its encryption (AES-256-GCM): it can be read with the key, and never without it.

    The same value gives the same text, so that it can be joined and merged by; that two are equal, and how long one is, shows.
    """

    key_from: KeyFrom
    """At least 16 bytes. Destroying it erases every value that was encrypted with it."""


class ColumnMask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mask the columns whose ``database.table.column`` matches; give exactly one of the ways."""

    columns: str
    """Regular expression, matched against the whole name."""
    hash: HashMask | None = None
    """A salted hash. NULL stays NULL."""
    constant: str | None = None
    """This text, for NULL too."""
    truncate_chars: Characters = None
    """Keep so many characters of a text."""
    keep_last: Characters = None
    """Of a text, keep so many characters at its end, with ``*`` for each before; of one that is not longer nothing is kept."""
    set_null: bool = False
    """NULL for every value."""
    hmac: HmacMask | None = None
    """A keyed hash. NULL stays NULL."""
    format_preserving: FormatMask | None = None
    """A text of the same shape. NULL stays NULL."""
    encrypt: EncryptMask | None = None
    """Encrypted; ``headwater tenant decrypt`` reads it. NULL stays NULL."""

    @property
    def key_from(self) -> KeyFrom | None:
        """Where its key is; None: it needs none."""
        keyed = self.hmac or self.format_preserving or self.encrypt
        return None if keyed is None else keyed.key_from


class ColumnRename(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another name for a column, at this tenant."""

    columns: str
    """Regular expression, matched against the whole ``database.table.column``."""
    to: str
    """Letters, digits, ``_``, ``$`` and ``-``, at most 64, beginning with a letter or ``_``."""


class RowFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deliver only rows that meet a condition."""

    tables: str
    """Regular expression, matched against the whole ``database.table``."""
    where: str
    """Condition in SQL over the table's columns: ``region = 'EU' AND total >= 10``."""


class UnknownColumns(enum.Enum):
    """Treatment of a column that comes to a table later, and that the document does not name."""

    DELIVER = "deliver"
    """It is delivered, as any other."""
    REFUSE = "refuse"
    """It is withheld and reported, until the document names it."""


class SourceSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant's share of one source. Regular expressions match whole names."""

    name: str
    """Name of the source."""
    include_tables: tuple[str, ...] = (".*",)
    """``database.table``: the tables that the tenant gets."""
    exclude_tables: tuple[str, ...] = ()
    """``database.table``: of those, the ones that it does not get."""
    row_filters: tuple[RowFilter, ...] = ()
    """Which rows it gets; of a table that several match, all must hold."""
    include_columns: tuple[str, ...] = (".*",)
    """``database.table.column``: the columns that the tenant gets, of every table; a key column must be among them."""
    exclude_columns: tuple[str, ...] = ()
    """``database.table.column``: of those, the ones that it does not get; a key column cannot be excluded."""
    unknown_columns: UnknownColumns = UnknownColumns.DELIVER
    """Of columns that a table lacked when Headwater first saw it. ``masks``, ``rename_columns`` and ``include_columns`` name
    one, except by a pattern that is for any column of the table."""
    masks: tuple[ColumnMask, ...] = ()
    """Replacements of values; of a column that several match, the first counts."""
    rename_columns: tuple[ColumnRename, ...] = ()
    """Names that the tenant reads instead of the source's; the first that matches counts. All else in this document names
    columns as the source does."""
    show_renamed: tuple[str, ...] = ()
    """``database.table`` or ``database.table.column``: of these, by the names that they have now, former names count no more.
    Else a rename hides as much as before: the rules of ``exclude_tables``, ``row_filters``, ``exclude_columns`` and
    ``masks`` for a former name holds."""
    may_match_nothing: tuple[str, ...] = ()
    """Patterns of this source, word for word, that match no table or column yet: their tables or columns come later.
    Any other that matches nothing is a mistake, because it holds nothing back."""
    skip_operations: tuple[Operation, ...] = ()
    """Operations that are not delivered. A mirror without some of them is no copy of its source any more."""
    skip_unchanged_updates: bool = False
    """Leave out an update that changes none of the tenant's columns. Needs the row before in the log."""


class SourceTypes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Columns whose Connect schema has the source's type, length and scale, as parameters of the field."""

    columns: tuple[str, ...] = ()
    """Regular expressions, matched against the whole ``database.table.column``, in upper or lower case."""
    types: tuple[str, ...] = ()
    """Regular expressions, matched against the whole ``database.table.TYPE``, in upper or lower case: ``.*\\.INT UNSIGNED``."""


class FormatSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How events are written."""

    kind: EventFormat = EventFormat.JSON
    """json, avro or protobuf."""
    schemas: bool = False
    """Each key and value carries its Connect schema, as JsonConverter with ``schemas.enable`` does."""
    tombstones: bool = True
    """A null value follows each delete, so that a compacted topic forgets the key."""
    headers: HeaderForm = HeaderForm.TEXT
    """Of all headers, Headwater's own too."""
    schema_names: NameAdjustment = NameAdjustment.NONE
    """Of schemas; only with ``schemas`` or ``kind: avro`` or ``protobuf``, where ``none`` is ``avro``."""
    field_names: NameAdjustment = NameAdjustment.NONE
    """Of columns in keys and rows, in their schemas, and in a sink's tables; of ``kind: avro`` and
    ``protobuf``, ``none`` is ``avro``."""
    source_types: SourceTypes = SourceTypes()
    """Fields whose schemas have the source's type; with ``schemas`` or ``kind: avro``. Masked columns and keys never have
    it."""

    @property
    def names_of_schemas(self) -> NameAdjustment:
        """How schemas' names are made: Avro and Protobuf take no others."""
        return self._adjusted(self.schema_names)

    @property
    def names_of_fields(self) -> NameAdjustment:
        """How columns' names are made: Avro and Protobuf take no others."""
        return self._adjusted(self.field_names)

    def _adjusted(self, names: NameAdjustment) -> NameAdjustment:
        return NameAdjustment.AVRO if self.kind is not EventFormat.JSON and names is NameAdjustment.NONE else names


class TopicLayout(enum.Enum):
    """Which rows share a topic."""

    PER_TABLE = "per_table"
    """Each table has its own."""
    PER_TENANT = "per_tenant"
    """All tables of the tenant share one; only without a sink."""


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How topics are named and made."""

    layout: TopicLayout = TopicLayout.PER_TABLE
    """Which rows share a topic."""
    name: str | None = None
    """Names of row topics: ``{tenant}``, ``{source}``, ``{database}``, ``{table}`` between letters, digits and ``._-``,
    beginning with ``{tenant}.``; null: ``{tenant}.{source}.{database}.{table}``, or ``{tenant}.rows`` of layout per_tenant."""
    kafka_partitions: Annotated[int, bounds(1, 1_000)] = 1
    """Of each row topic, when it is made. All changes of one row come in one of them, in order."""
    replication_factor: Annotated[int, bounds(1, 50)] = 1
    """Copies of each topic, on as many brokers."""
    schema_changes: bool = True
    """Write Debezium's schema-change events of the tenant's tables to ``<tenant>.<prefix>``."""
    transactions: bool = False
    """Write BEGIN and END of source transactions to ``<tenant>.<prefix>.transaction``."""


class Images(enum.Enum):
    """Which images of a row a log of changes holds."""

    AFTER = "after"
    """One row a change: the row after it, of a delete the row before it."""
    BEFORE_AND_AFTER = "before_and_after"
    """Of an update two rows."""


class Consistency(enum.Enum):
    """The consistency of a query over several tables of a tenant."""

    TABLE = "table"
    """Each table as it is; one may be ahead of another."""
    TRANSACTION = "transaction"
    """All tables at the end of the same transaction of the source."""


class ChangePolicy(enum.Enum):
    """The effect on a sink's table of a change of its source table."""

    EVOLVE = "evolve"
    """It changes in place; a change that would lose values parks the table."""
    LENIENT = "lenient"
    """As ``evolve``; where a column cannot take its new type in place, it stays, and one of that type comes beside it."""
    EXCEPTION = "exception"
    """The table is parked, until a person has chosen another policy."""
    IGNORE = "ignore"
    """The table stays as it is, without new columns."""


class ChangeKind(enum.Enum):
    """The kinds of changes of a table."""

    TABLE_CREATED = "table_created"
    """The tenant receives a table for the first time."""
    COLUMN_ADDED = "column_added"
    COLUMN_DROPPED = "column_dropped"
    COLUMN_RENAMED = "column_renamed"
    COLUMN_WIDENED = "column_widened"
    """Its type holds all that the old one held, and the warehouse can change the one into the other in place."""
    COLUMN_NARROWED = "column_narrowed"
    """The old type holds all that the new one holds."""
    TYPE_CHANGED = "type_changed"
    """Neither of the two."""
    NULLABILITY_CHANGED = "nullability_changed"
    """NOT NULL came or went."""


class ChangeRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy for some changes of some tables."""

    policy: ChangePolicy
    """The effect on the sink's table."""
    tables: str = ".*"
    """Regular expression, matched against the whole ``database.table`` of the source."""
    changes: tuple[ChangeKind, ...] = ()
    """Empty: all of them."""


class ChangePolicies(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which policy is for which change: the first rule that fits, else ``default``."""

    default: ChangePolicy = ChangePolicy.LENIENT
    """For every change that no rule fits."""
    rules: tuple[ChangeRule, ...] = ()
    """The first that fits counts."""

    def policy(self, table: str, change: ChangeKind) -> ChangePolicy:
        """The policy for a change of ``database.table``."""
        for rule in self.rules:
            if (not rule.changes or change in rule.changes) and matches_table(rule.tables, table):
                return rule.policy
        return self.default


class SinkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a tenant's rows go, and how."""

    warehouse: str = "iceberg"
    """``iceberg``, ``postgresql``, ``delta`` or ``clickhouse``, as far as the installation has them."""
    mode: SinkMode = SinkMode.MIRROR
    """The content of the tables."""
    deletes: Deletes = Deletes.HARD
    """Of a mirror."""
    images: Images = Images.AFTER
    """Of a log of changes (mode append)."""
    tracked_columns: tuple[str, ...] = (".*",)
    """Of a history: regular expressions of ``database.table.column``. A change of these opens a new version of the row; one of
    other columns rewrites the version that is there."""
    json_as_variant: tuple[str, ...] = ()
    """Regular expressions of ``database.table.column``, as the tenant reads it: JSON columns that are VARIANT in the tables, of
    Delta, and of Iceberg from format 3 on. Others are the document's text."""
    layouts: tuple[TableLayout, ...] = ()
    """How the tables lie in files; a table that none matches is as the warehouse has it."""
    schema_changes: ChangePolicies = ChangePolicies()
    """Policies for changes of the source's tables."""
    consistency: Consistency = Consistency.TABLE
    """``transaction``: the tables move together, from the end of one transaction of the source to that of another."""
    trigger_s: Annotated[float, bounds(0.1, 86_400)] = 5.0
    """How often a micro-batch starts, in seconds: shorter is fresher, longer makes larger files."""
    trigger_max_s: Annotated[float | None, bounds(0.1, 86_400)] = None
    """Where micro-batches are small, up to so many seconds from one to the next; null: always ``trigger_s``."""
    trigger_rows: Annotated[int, bounds(1, 1_000_000_000)] = 10_000
    """A micro-batch with so many events is large enough: the next ones start sooner, those after smaller ones later."""
    max_batch_rows: Annotated[int | None, bounds(5, 1_000_000_000)] = None
    """At most so many events in a micro-batch, and a quarter of that of tables that hardly lag; null: as many as the job
    takes. The job's own limit holds too."""
    max_rows_per_s: Annotated[float | None, bounds(0.001, 1_000_000_000)] = None
    """At most so many events a second, over a micro-batch and the pause after it; null: as fast as can be."""


class TenantLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of the router a tenant takes. Above a limit it lags alone, and loses nothing.

    Kafka's quotas of the tenant's user are another thing: they hold back its consumers.
    """

    events_per_s: Annotated[float | None, bounds(0.1, 1_000_000_000)] = None
    """At most so many row events a second, over a few seconds; null: no limit. Each router process counts by itself."""
    bytes_per_s: Annotated[float | None, bounds(1, 1_000_000_000_000)] = None
    """At most so many bytes of keys and values a second, before compression; null: no limit."""
    weight: Annotated[float, bounds(0.01, 1_000)] = 1.0
    """Its share of the router among the tenants that lag: one of 2 catches up twice as fast as one of 1."""


class TenantSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rows that tables have already when a tenant begins to get them."""

    on_joining: bool = False
    """A tenant that is new, or that sees further tables from now on, is sent the rows they have, by an incremental snapshot for
    it alone. False: it gets later changes; ``headwater tenant snapshot`` asks for the rows by hand."""


class TenantSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tenant's document (``tenant.yaml``)."""

    tenant: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{TENANT_NAME}$"})]
    """Lower-case letters, digits and ``-``, at most 40: it stands at the front of topic names."""
    sources: tuple[SourceSelection, ...]
    """The tenant's share, source by source."""
    format: FormatSettings = FormatSettings()
    """How its events are written."""
    topics: TopicSettings = TopicSettings()
    """How its topics are made."""
    sink: SinkSettings | None = SinkSettings()
    """Where its rows go, and how; null: topics only."""
    limits: TenantLimits = TenantLimits()
    """How much of the router it takes."""
    snapshot: TenantSnapshot = TenantSnapshot()
    """The rows that its tables have already."""
