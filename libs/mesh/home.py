"""The home folder of an embedded stack: its files, and the documents that its owner edits.

    <home>/
      sources/<source>.yaml   a database to follow            edited by the owner
      tenants/<tenant>.yaml   one tenant's share of it        edited by the owner, reloaded while the stack runs
      keys/<tenant>/<name>    keys of its masks            edited by the owner; cannot be rebuilt
      tenant.schema.json      JSON Schema of those, for editors     written by ``headwater init``
      warehouses.yaml         where PostgreSQL, ClickHouse are  optional, edited by the owner
      kafka.yaml              where your Kafka is             optional, edited by the owner
      schema_registry.yaml    where your schema registry is   optional, edited by the owner
      topic_quotas.yaml       how many topics tenants may have   optional, edited by the owner
      openlineage.yaml        the receiver of lineage         optional, edited by the owner
      warehouse/ catalog.db   the Iceberg tables and their catalog
      delta/                  the Delta tables
      data/                   Kafka's log, Valkey's dump, Spark's checkpoints, PostgreSQL, the demo's databases
      logs/<process>.log      each process's log
      run/                    generated: settings of each service, ports, state, lock

Deleting ``data/``, ``run/`` and the warehouse makes a stack start over; ``sources/`` and ``tenants/`` are all that
cannot be rebuilt. The folder may be moved while the stack is down, except for the warehouse: Iceberg writes
absolute paths into its metadata.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.tenants.schema import SCHEMA_FILE

DEFAULT_HOME: Final = ".headwater"
HOME_VARIABLE: Final = "HEADWATER_HOME"


@dataclass(frozen=True, slots=True)
class Home:
    """Paths within one home folder."""

    root: Path

    @property
    def sources_dir(self) -> Path:
        return self.root / "sources"

    @property
    def tenants_dir(self) -> Path:
        return self.root / "tenants"

    @property
    def keys_dir(self) -> Path:
        """Keys of tenants' masks, ``<tenant>/<name>``."""
        return self.root / "keys"

    @property
    def tenant_schema_file(self) -> Path:
        """The schema of the tenants' documents, for editors."""
        return self.root / "tenant.schema.json"

    @property
    def warehouses_file(self) -> Path:
        """Warehouses that the stack does not run itself."""
        return self.root / "warehouses.yaml"

    @property
    def kafka_file(self) -> Path:
        """The owner's Kafka, which the stack uses instead of one of its own."""
        return self.root / "kafka.yaml"

    @property
    def schema_registry_file(self) -> Path:
        """The schema registry of tenants with Avro or Protobuf."""
        return self.root / "schema_registry.yaml"

    @property
    def topic_quotas_file(self) -> Path:
        """How many topics each tenant may have."""
        return self.root / "topic_quotas.yaml"

    @property
    def openlineage_file(self) -> Path:
        """The receiver of lineage: which topics go into which tables."""
        return self.root / "openlineage.yaml"

    @property
    def warehouse_dir(self) -> Path:
        return self.root / "warehouse"

    @property
    def catalog_file(self) -> Path:
        """SQLite file of the Iceberg catalog, shared by Spark's JDBC catalog and pyiceberg."""
        return self.root / "catalog.db"

    @property
    def delta_dir(self) -> Path:
        """The Delta tables, each in a folder of its own."""
        return self.root / "delta"

    @property
    def data_dir(self) -> Path:
        return self.root / "data"

    @property
    def sink_dir(self) -> Path:
        """State of the Spark job: checkpoints and progress files."""
        return self.data_dir / "sink"

    @property
    def own_servers_file(self) -> Path:
        """Which database servers the stack itself runs (``own_servers``), the demo's; without the file there are none."""
        return self.root / "own-servers.json"

    @property
    def own_servers_filled_file(self) -> Path:
        """Its presence says that the demo filled the databases; until then nothing that reads them is started."""
        return self.run_dir / "own-servers-filled"

    @property
    def logs_dir(self) -> Path:
        return self.root / "logs"

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    @property
    def tls_dir(self) -> Path:
        """Certificates of the stack's processes, and their keys (``libs.stack.certificates``)."""
        return self.run_dir / "tls"

    @property
    def ports_file(self) -> Path:
        return self.run_dir / "ports.json"

    @property
    def state_file(self) -> Path:
        return self.run_dir / "state.json"

    @property
    def taken_over_file(self) -> Path:
        """The documents with which the running stack was started (``taken_over``); readable by its owner only."""
        return self.run_dir / "documents.json"

    @property
    def lock_file(self) -> Path:
        return self.run_dir / "lock"

    def settings_file(self, process: str) -> Path:
        """Generated settings of one process; may hold secrets, so readable by its owner only."""
        return self.run_dir / f"{process}.yaml"

    def log_file(self, process: str) -> Path:
        return self.logs_dir / f"{process}.log"


def home_at(root: Path) -> Home:
    """The home at ``root``, as an absolute path: services run in folders of their own."""
    return Home(root.resolve())


def is_initialised(home: Home) -> bool:
    """Whether somebody ran ``headwater init`` here."""
    return home.sources_dir.is_dir() and home.tenants_dir.is_dir()


EXAMPLE_SOURCE: Final = """\
# A database to follow. The file's name is the source's name: it stands in topic names and in the events.
# Remove the "#" in front of a line to set it; lines show the default, unless said otherwise.
kind: mysql                  # or dts (docs/dts.md), vitess: a keyspace (docs/vitess.md), oracle (docs/oracle.md)
database:
  host: 127.0.0.1
  port: 3306
  user: headwater            # `headwater init mysql://headwater@host/shop` prints its CREATE USER and GRANT statements
  password: change-me                # or password_from: {env: NAME}, {file: PATH} or {command: LINE}
  # failover_servers: ['db2:3306']   # with the same data, tried in this order; they need GTIDs and the same user
  # tls_mode: verify_identity        # or disabled, preferred, required, verify_ca; the default where there is a tls_ca_file
  # tls_ca_file: /etc/headwater/mysql-ca.pem    # absolute paths; tls_certificate_file and tls_key_file for REQUIRE X509

# Regular expressions, each matched against the whole "database.table".
include_tables: ['shop\\..*']
# exclude_tables: []

# Each replica of a MySQL server has an id of its own; by default one is derived from this file's place.
# replica_server_id: 5401

# snapshot:
#   mode: initial            # copy the tables first, then follow the log
#   chunk_rows: 20000        # rows read at once
#   lock: minimal            # commits are held back for a moment; none: never
#   max_replica_lag_s: 30    # no chunk is read while the source, or one of lag_replicas, lags by more
#   lag_replicas: [{host: db3, user: headwater, password: change-me}]

# values:                        # Debezium's handling modes: docs/debezium-properties.md
#   time_precision: adaptive_time_microseconds   # or adaptive, connect, isostring, microseconds, nanoseconds
#   decimal: precise             # or double, string
#   unsigned_bigint: long        # or precise
#   binary: bytes                # or base64, base64-url-safe, hex

# key_columns:                   # keys of events other than the tables' own; regular expressions, the first that fits counts
#   - {tables: 'shop\\.orders', columns: 'region|id'}

# failure_handling: dead-letter  # of a row that cannot be decoded; or fail, warn, skip

# on_unseen_change:              # rows that a statement changed without an event: warn (the default), resync, halt
#   - {tables: 'shop\\.orders', action: resync}

# heartbeat_interval_s: 10        # a record to __debezium-heartbeat.<source> while nothing captured changes
# transaction_metadata: false   # BEGIN/END events and a "transaction" block in each event
# metric_tags: {team: shop}     # labels on every metric of the reader
"""

EXAMPLE_TENANT: Final = """\
# yaml-language-server: $schema=../tenant.schema.json
# The tables and rows of one tenant. The file's name is the tenant's name. Saved changes are taken over while the stack runs;
# a document with a mistake is refused, and the last good one stays in force ("headwater validate" lists mistakes).
tenant: acme

sources:
  - name: shop                       # a file sources/shop.yaml
    include_tables: ['shop\\..*']     # regular expressions over "database.table"
    # exclude_tables: ['shop\\.audit_.*']

    # Only the rows that meet a condition:
    # row_filters:
    #   - tables: 'shop\\.orders'
    #     where: "tenant_code = 'acme'"

    # Columns that leave, and no others (key columns among them):
    # include_columns: ['shop\\.customers\\.(id|name|email)']

    # Columns that do not leave:
    # exclude_columns: ['shop\\.customers\\.notes']

    # Columns that leave masked:
    # masks:
    #   - columns: '.*\\.email'
    #     hash: {salt: 'a-secret-of-this-tenant', algorithm: sha256}
    #   - columns: '.*\\.phone'
    #     constant: '***'
    #   - columns: '.*\\.comment'
    #     truncate_chars: 100
    #   - columns: '.*\\.card'
    #     keep_last: 4
    #   - columns: '.*\\.birthday'
    #     set_null: true
    # with a key of this tenant's, keys/acme/pii (openssl rand -hex 32 makes one):
    #   - columns: '.*\\.tax_id'
    #     hmac: {key_from: {file: pii}}
    #   - columns: '.*\\.contact_email'
    #     format_preserving: {kind: email, key_from: {file: pii}}
    #   - columns: '.*\\.diagnosis'
    #     encrypt: {key_from: {file: pii}}

    # Columns under other names:
    # rename_columns:
    #   - {columns: 'shop\\.orders\\.cust', to: customer_id}

    # skip_operations: [t]             # c, u, d, t: not delivered
    # skip_unchanged_updates: true     # updates that change none of the tenant's columns

# format:
#   kind: json                       # avro, protobuf: by a registry, which ../schema_registry.yaml names; only without a sink
#   schemas: false                   # true: each key and value with its Connect schema
#   tombstones: true
#   schema_names: none               # avro, avro_unicode: with schemas, such names as Avro takes
#   field_names: none                # the same of columns, in keys, rows and the warehouse
#   source_types: {columns: ['shop\\.orders\\..*']}    # with schemas: fields with MySQL's type; or types: ['.*\\.DECIMAL']
# topics:
#   kafka_partitions: 1
#   schema_changes: true             # Debezium's schema-change events, in <tenant>.<source>
#   transactions: false              # BEGIN and END, in <tenant>.<source>.transaction
#   name: '{tenant}.{source}.{database}.{table}'    # of row topics, beginning with {tenant}.
#   layout: per_table                # per_tenant: all tables in the topic <tenant>.rows; only without a sink

# Where the rows go; "sink: null" means topics only.
sink:
  warehouse: iceberg                 # or clickhouse, delta, postgresql
  mode: mirror                       # mirror: the current rows; append: every change
  trigger_s: 5                       # how often rows are written, in seconds
  # schema_changes:                  # when the source's tables change: lenient, evolve, exception or ignore
  #   default: lenient
  #   rules: [{tables: 'shop\\.orders', changes: [column_dropped, type_changed], policy: exception}]
"""


def keep_private(home: Home) -> None:
    """Let nobody but the home's owner read it: sources' documents and generated settings hold passwords, tables hold rows.
    Folders of other users keep their modes."""
    folders = (home.root, home.sources_dir, home.run_dir, home.keys_dir, home.tls_dir)
    for path, mode in (
        *((folder, 0o700) for folder in folders),
        *((document, 0o600) for document in home.sources_dir.glob("*.yaml")),
    ):
        try:
            if path.stat().st_mode & 0o077:
                path.chmod(mode)
        except OSError:
            continue


def write_examples(home: Home) -> tuple[Path, ...]:
    """Create the folders, and a commented example of each document where its folder holds none.

    Examples end in ``.yaml.example``: nothing follows them until they are copied. The tenants' JSON Schema is written
    if it differs from this version's. Idempotent; returns the written files.
    """
    for folder in (home.sources_dir, home.tenants_dir, home.logs_dir, home.run_dir, home.data_dir, home.warehouse_dir):
        folder.mkdir(parents=True, exist_ok=True)
    home.keys_dir.mkdir(mode=0o700, exist_ok=True)
    keep_private(home)
    written = []
    for path, text in (
        (home.sources_dir / "shop.yaml.example", EXAMPLE_SOURCE),
        (home.tenants_dir / "acme.yaml.example", EXAMPLE_TENANT),
    ):
        if not path.exists():
            path.write_text(text, encoding="utf-8")
            written.append(path)
    schema = SCHEMA_FILE.read_text(encoding="utf-8")
    if not home.tenant_schema_file.exists() or home.tenant_schema_file.read_text(encoding="utf-8") != schema:
        home.tenant_schema_file.write_text(schema, encoding="utf-8")
        written.append(home.tenant_schema_file)
    return tuple(written)
