"""From documents and ports to processes: each service accepts the settings that are generated for it."""

import datetime
from pathlib import Path

import pytest
import yaml

from libs.config.connections import LineageSettings, SchemaRegistrySettings
from libs.config.load import Secret, convert_document, load_settings
from libs.errors import InvalidSettings
from libs.mesh.documents import DOCUMENT_OF_KIND, Documents, read_documents
from libs.mesh.home import Home, home_at, write_examples
from libs.mesh.processes import SINK
from libs.mesh.reader_tasks import planned_generations, store_generations
from libs.setup.spark_toolchain import SparkToolchain
from libs.source.kinds import READER_OF_KIND
from libs.source.mysql.settings import TlsMode
from libs.source.oracle.settings import OracleDatabaseSettings, OracleSourceSettings
from libs.source.vitess.settings import EventSettings, KeyspaceSettings, StreamSettings, VtgateSettings
from libs.stack.certificates import renew_certificates
from libs.stack.plan import PlannedProcess, certified_processes, choose_ports, plan_processes, port_names, supervised
from libs.tenants.topic_quotas import NO_TOPIC_QUOTAS, TopicQuotaSettings
from services.binlog_reader.settings import BinlogReaderSettings
from services.checkpoint_committer.settings import CheckpointCommitterSettings
from services.dts_decoder.settings import DtsDecoderSettings
from services.logminer_reader.settings import LogminerReaderSettings
from services.router.settings import RouterSettings
from services.schema_history.settings import SchemaHistorySettings
from services.vstream_reader import settings as vstream_settings
from services.vstream_reader.settings import VstreamReaderSettings
from spark.settings import SinkJobSettings
from spark.sinks.registry import open_sinks

TOOLCHAIN = SparkToolchain(java_home=Path("/java"), jars_dir=Path("/jars"), class_archive=Path("/classes"))
SETTINGS = {
    "schema_history": SchemaHistorySettings,
    "checkpoint_committer": CheckpointCommitterSettings,
    "reader-shop": BinlogReaderSettings,
    "reader-crm": DtsDecoderSettings,
    "reader-web": VstreamReaderSettings,
    "reader-erp": LogminerReaderSettings,
    "router": RouterSettings,
    "sink": SinkJobSettings,
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with a MySQL, a subscription of another, a keyspace, an Oracle database, and one tenant of all."""
    made = home_at(tmp_path)
    write_examples(made)
    database = "database: {user: reader, password: s3cret}\n"
    (made.sources_dir / "shop.yaml").write_text(database)
    subscription = "{bootstrap_servers: '10.0.0.5:9092', topic: t, group_id: g, username: u, password: p, partition: 1}"
    (made.sources_dir / "crm.yaml").write_text(f"kind: dts\n{database}subscription: {subscription}\n")
    vtgate = "{host: v, port: 15999, user: u, password: p}"
    (made.sources_dir / "web.yaml").write_text(f"kind: vitess\nvtgate: {vtgate}\nkeyspace: commerce\n")
    oracle = "{host: o, port: 1522, service_name: ORCLCDB, pdb_name: ERP, user: c##u, password: s3cret}"
    (made.sources_dir / "erp.yaml").write_text(f"kind: oracle\ndatabase: {oracle}\nmetric_tags: {{team: erp}}\n")
    (made.tenants_dir / "acme.yaml").write_text(
        "tenant: acme\nsources: [{name: shop}, {name: crm}, {name: web}, {name: erp}]\n"
    )
    return made


def plan(home: Home, documents: Documents | None = None) -> dict[str, PlannedProcess]:
    documents = documents or read_documents(home)
    names = port_names(documents)
    ports = dict(zip(names, range(20_000, 20_000 + len(names)), strict=True))
    generations = planned_generations(home, documents)
    return {each.name: each for each in plan_processes(home, documents, ports, TOOLCHAIN, generations)}


@pytest.mark.parametrize("name", list(SETTINGS))
def test_each_service_accepts_its_generated_settings(home: Home, name: str) -> None:
    """Every name, every type: the service's own loader finds no mistake in the file."""
    path = home.run_dir / f"{name}.yaml"
    path.write_text(yaml.safe_dump(plan(home)[name].settings))

    settings = load_settings(SETTINGS[name], path=path, environ={}, subject=name)

    assert settings.telemetry.http_port == plan(home)[name].http_port  # type: ignore[attr-defined]


def test_every_call_between_processes_is_by_mutual_tls(home: Home) -> None:
    """Each server asks for a certificate, and each caller shows its own."""
    documents = read_documents(home)
    renew_certificates(home, certified_processes(documents), datetime.datetime.now(datetime.UTC))

    planned = plan(home, documents)

    for name in set(planned) - {SINK}:
        settings = planned[name].settings
        assert Path(settings["grpc"]["tls_client_ca_file"]).exists()
        for service in {"schema_history", "checkpoint_committer"} & settings.keys():
            assert settings[service]["tls_ca_file"] == settings["grpc"]["tls_client_ca_file"]
        for files in [settings["grpc"], *(settings[service] for service in settings if service in planned)]:
            assert Path(files["tls_certificate_file"]).name == f"{name}.pem"
            assert Path(files["tls_key_file"]).exists()


def test_every_process_has_ports_of_its_own(home: Home) -> None:
    """No two processes get the same port."""
    planned = plan(home).values()
    ports = [port for each in planned for port in (each.http_port, each.grpc_port) if port is not None]

    assert len(ports) == len(set(ports)) == 14


def test_each_kind_is_read_by_its_own_service(home: Home) -> None:
    """A kind that no service reads cannot be planned."""
    modules = {name: planned.module for name, planned in plan(home).items() if name.startswith("reader-")}

    assert modules == {
        "reader-shop": "services.binlog_reader",
        "reader-crm": "services.dts_decoder",
        "reader-web": "services.vstream_reader",
        "reader-erp": "services.logminer_reader",
    }
    assert DOCUMENT_OF_KIND.keys() == READER_OF_KIND.keys()


def test_several_readers_of_a_keyspace_are_told_their_part(home: Home) -> None:
    """Each has a number, settings that the service takes, and ports of its own."""
    _with_tasks(home, 3)

    planned = plan(home)

    readers = [planned[f"reader-web.{number}"] for number in range(3)]
    assert [reader.settings["tasks"]["number"] for reader in readers] == [0, 1, 2]
    assert "reader-web" not in planned
    assert len({port for reader in readers for port in (reader.http_port, reader.grpc_port)}) == 6
    for reader in readers:
        path = home.run_dir / f"{reader.name}.yaml"
        path.write_text(yaml.safe_dump(reader.settings))
        settings = load_settings(VstreamReaderSettings, path=path, environ={}, subject=reader.name)
        assert not vstream_settings.mistakes_in(settings)


def test_a_change_of_the_number_of_readers_is_counted_by_the_stack(home: Home) -> None:
    """Each start knows its generation and those that ran before; as many as before are the same generation."""
    told = []
    for number in (1, 2, 2, 3, 1):
        _with_tasks(home, number)
        planned = plan(home)
        store_generations(home, planned_generations(home, read_documents(home)))
        readers = [each for name, each in planned.items() if name.startswith("reader-web")]
        assert len(readers) == number
        told.append(readers[0].settings.get("tasks"))

    assert told == [
        None,
        {"number": 0, "of": 2, "generation": 0, "previous_tasks": 1},
        {"number": 0, "of": 2, "generation": 0, "previous_tasks": 1},
        {"number": 0, "of": 3, "generation": 1, "previous_tasks": 2},
        {"number": 0, "of": 1, "generation": 2, "previous_tasks": 3},
    ]


def _with_tasks(home: Home, number: int) -> None:
    (home.sources_dir / "web.yaml").write_text(
        f"kind: vitess\nvtgate: {{user: u, password: p}}\nkeyspace: commerce\ntasks: {number}\n"
    )


def test_a_mysql_reader_is_told_all_that_its_document_says(home: Home, tmp_path: Path) -> None:
    """How the server and its replicas are reached, passwords included, and the labels of its metrics."""
    authority = tmp_path / "ca.pem"
    authority.touch()
    (home.sources_dir / "shop.yaml").write_text(
        f"database: {{user: u, password: s3cret, failover_servers: ['db2:3307'], tls_mode: verify_ca, "
        f"tls_ca_file: {authority}, connect_timeout_s: 3}}\nmetric_tags: {{team: shop}}\n"
        "snapshot: {max_replica_lag_s: 30, lag_replicas: [{host: db3, user: r, password: 0ther}]}\n"
    )
    path = home.run_dir / "reader-shop.yaml"
    path.write_text(yaml.safe_dump(plan(home)["reader-shop"].settings))

    told = load_settings(BinlogReaderSettings, path=path, environ={}, subject="reader-shop")

    database, (replica,) = told.database, told.snapshot.lag_replicas
    assert (database.password.reveal(), database.failover_servers) == ("s3cret", ("db2:3307",))
    assert (database.tls_mode, database.tls_ca_file) == (TlsMode.VERIFY_CA, str(authority))
    assert (database.connect_timeout_s, told.snapshot.max_replica_lag_s) == (3.0, 30.0)
    assert (replica.host, replica.user, replica.password.reveal()) == ("db3", "r", "0ther")
    assert told.telemetry.tags == {"team": "shop"}


EVERY_SETTING_OF_A_KEYSPACE = """\
kind: vitess
vtgate: {host: v, port: 15999, user: u, password: s3cret, headers: {x-region: eu}, max_message_bytes: 9000000, keepalive_s: 30,
  timeout_s: 5}
keyspace: commerce
shards: ['-80']
start_vgtid: 'MySQL56/11111111-1111-1111-1111-111111111111:1-9'
stream: {tablet_type: replica, cells: [zone1, zone2], cell_preference: onlyspecified, tablet_order: inorder,
  heartbeat_interval_s: 5, stop_on_reshard: true, include_reshard_journal_events: true, stream_keyspace_heartbeats: true,
  minimize_skew: true, exclude_keyspace_from_table_name: true}
include_tables: ['commerce\\.o.*']
exclude_tables: ['commerce\\.old']
events: {transaction_metadata: ordered, filter_transaction_topic: true, use_local_vgtid: true, remove_fields: [ts_ns]}
values: {binary: hex}
key_columns: [{tables: 'commerce\\.orders', columns: region|id}]
failure_handling: skip
on_unseen_change: [{tables: ".*", action: halt}]
heartbeat_interval_s: 7
snapshot: {mode: when_needed, include_tables: ['commerce\\.orders']}
metric_tags: {team: shop}
"""


def told_of_a_keyspace(home: Home, document: str) -> VstreamReaderSettings:
    """The reader's settings, by its own loader, which finds no mistake."""
    (home.sources_dir / "web.yaml").write_text(document)
    assert not read_documents(home).source_mistakes
    path = home.run_dir / "reader-web.yaml"
    path.write_text(yaml.safe_dump(plan(home)["reader-web"].settings))
    settings = load_settings(VstreamReaderSettings, path=path, environ={}, subject="reader-web")
    assert not vstream_settings.mistakes_in(settings)
    return settings


def test_a_keyspace_is_told_all_that_its_document_says(home: Home) -> None:
    """Every setting of a keyspace, each another than its default: none is forgotten on the way."""
    told = told_of_a_keyspace(home, EVERY_SETTING_OF_A_KEYSPACE)

    default = KeyspaceSettings(vtgate=VtgateSettings(host=""), keyspace="")
    for name in KeyspaceSettings.__struct_fields__:
        assert getattr(told, name) != getattr(default, name), name
    assert all(
        getattr(told.stream, name) != getattr(StreamSettings(), name) for name in StreamSettings.__struct_fields__
    )
    assert all(getattr(told.events, name) != getattr(EventSettings(), name) for name in EventSettings.__struct_fields__)
    assert (told.vtgate.password.reveal(), dict(told.vtgate.headers)) == ("s3cret", {"x-region": "eu"})
    assert (told.vtgate.max_message_bytes, told.vtgate.keepalive_s, told.vtgate.timeout_s) == (9_000_000, 30.0, 5.0)
    assert told.snapshot.mode is vstream_settings.SnapshotMode.WHEN_NEEDED
    assert told.snapshot.include_tables == (r"commerce\.orders",)
    assert told.telemetry.tags == {"team": "shop"}


def test_a_keyspace_that_says_little_is_told_the_readers_defaults(home: Home) -> None:
    """The document has no defaults of its own, but for the host."""
    told = told_of_a_keyspace(home, "kind: vitess\nvtgate: {}\nkeyspace: commerce\n")

    assert told.vtgate == VtgateSettings(host="127.0.0.1")
    assert (told.stream, told.events, told.start_vgtid) == (StreamSettings(), EventSettings(), "")


@pytest.mark.parametrize(
    ("written", "mode"), [("on", "on"), ("off", "off"), ("true", "on"), ("'on'", "on"), ("ordered", "ordered")]
)
def test_transaction_metadata_is_a_mode_however_yaml_reads_it(home: Home, written: str, mode: str) -> None:
    """Without quotes ``on`` and ``off`` are booleans to YAML."""
    told = told_of_a_keyspace(
        home, f"kind: vitess\nvtgate: {{}}\nkeyspace: k\nevents: {{transaction_metadata: {written}}}\n"
    )

    assert told.events.transaction_metadata.value == mode


EVERY_SETTING_OF_ORACLE = """\
kind: oracle
database: {host: o, port: 1522, service_name: ORCLCDB, pdb_name: ERP, user: c##u, password: s3cret, connect_timeout_s: 3}
include_tables: ['ERP\\.O.*']
exclude_tables: ['ERP\\.OLD']
mining: {window_redo_mb: 99, min_pause_s: 1, session_max_s: 60, connection_max_s: 61, archive_destinations: [2, 1],
  transaction_memory_mb: 9, users: {include: [APP]}, client_ids: {exclude: [batch]}}
snapshot: {mode: when_needed, range_mb: 9, chunk_rows: 10, incremental_chunk_rows: 11, select_overrides: {ERP.ORDERS: A > 0}}
signal_table: ERP.SIGNALS
values: {binary: hex, interval: string}
key_columns: [{tables: 'ERP\\.ORDERS', columns: REGION|ID}]
lacking_values: unavailable
failure_handling: fail
on_unseen_change: [{tables: ".*", action: halt}]
transaction_metadata: true
heartbeat_interval_s: 7
metric_tags: {team: erp}
"""


def test_an_oracle_reader_is_told_all_that_its_document_says(home: Home) -> None:
    """Every setting that the document has, by the service's own loader; none is at its default."""
    (home.sources_dir / "erp.yaml").write_text(EVERY_SETTING_OF_ORACLE)
    path = home.run_dir / "reader-erp.yaml"
    path.write_text(yaml.safe_dump(plan(home)["reader-erp"].settings))

    told = load_settings(LogminerReaderSettings, path=path, environ={}, subject="reader-erp")

    plain = OracleSourceSettings(database=OracleDatabaseSettings(host="h", service_name="s", user="u"))
    for record, default in ((told, plain), (told.mining, plain.mining), (told.snapshot, plain.snapshot)):
        for name in default.__struct_fields__:
            assert getattr(record, name) != getattr(default, name), name
    assert told.database == OracleDatabaseSettings(
        host="o",
        port=1522,
        service_name="ORCLCDB",
        pdb_name="ERP",
        user="c##u",
        password=Secret("s3cret"),
        connect_timeout_s=3,
    )
    assert told.telemetry.tags == {"team": "erp"}


def test_a_subscription_without_an_address_is_in_the_stacks_own_kafka(home: Home) -> None:
    """Where a recording was played back, or a stand-in writes."""
    database = "database: {user: reader}\n"
    (home.sources_dir / "crm.yaml").write_text(f"kind: dts\n{database}subscription: {{topic: t, group_id: g}}\n")

    planned = plan(home)["reader-crm"].settings

    assert planned["subscription"]["bootstrap_servers"] == planned["kafka"]["bootstrap_servers"]


def test_without_a_sink_there_is_no_spark(home: Home) -> None:
    """A session costs a gigabyte: topics alone need none."""
    (home.tenants_dir / "acme.yaml").write_text("tenant: acme\nsources: [{name: shop}]\nsink: null\n")

    assert SINK not in plan(home)


def test_spark_holds_nobody_up(home: Home) -> None:
    """The readers start while Spark does."""
    planned = plan(home)

    assert not supervised(home, planned[SINK]).blocks_next_stage
    assert supervised(home, planned["schema_history"]).blocks_next_stage


@pytest.mark.parametrize("folder", ["sources", "tenants"])
def test_an_empty_home_is_told_what_to_do(home: Home, folder: str) -> None:
    """No source, or no tenant: the message names the example to copy."""
    for path in (home.root / folder).glob("*.yaml"):
        path.unlink()
    if folder == "sources":
        (home.tenants_dir / "acme.yaml").unlink()

    with pytest.raises(InvalidSettings, match="example"):
        plan(home)


def test_kept_ports_stay_unless_somebody_took_them() -> None:
    """Addresses are the same after a restart; a port that another program holds is replaced."""
    chosen = choose_ports(
        ["a", "b", "c"],
        {"a": 1, "b": 2, "gone": 9},
        is_free=lambda port: port != 2,
        free_ports=lambda count: range(1, count + 1),
    )

    assert chosen["a"] == 1
    assert chosen.keys() == {"a", "b", "c"}
    assert len(set(chosen.values())) == 3


def test_too_few_ports_is_an_error() -> None:
    """Rather than two servers on one port."""
    with pytest.raises(OSError, match="2 free ports"):
        choose_ports(["a", "b"], {}, is_free=lambda _: True, free_ports=lambda _: [7])


def test_the_sink_is_told_where_postgresql_is(home: Home) -> None:
    """The stack's own by its port, the owner's as ``warehouses.yaml`` has it; the sink accepts both."""
    tenant = "tenant: acme\nsources: [{name: shop}]\nsink: {warehouse: postgresql}\n"
    (home.tenants_dir / "acme.yaml").write_text(tenant)
    own = plan(home)["sink"].settings["warehouses"]
    home.warehouses_file.write_text(
        "postgresql: {host: db, user: u, database: d, password: s3, schema: 'x_{tenant}'}\n"
    )
    owners = plan(home)["sink"].settings["warehouses"]

    assert own["postgresql"]["port"] == 20_000 + list(port_names(without_warehouses(home))).index("postgresql")
    assert (owners["postgresql"]["host"], owners["postgresql"]["password"]) == ("db", "s3")
    for warehouses in (own, owners):
        mistakes: list[str] = []
        document = yaml.safe_load(yaml.safe_dump(dict(warehouses)))
        assert set(open_sinks(document, mistakes=mistakes)) == {"iceberg", "postgresql"}, mistakes


def test_the_router_is_told_where_the_schema_registry_is(home: Home) -> None:
    """As ``schema_registry.yaml`` has it, its password too; the router's settings accept it. Without the file there is none."""
    without = plan(home)["router"].settings
    home.schema_registry_file.write_text("{url: 'http://registry:8081', username: ann, password: s3}\n")

    told = plan(home)["router"].settings["schema_registry"]

    assert "schema_registry" not in without
    settings = convert_document(SchemaRegistrySettings, dict(told), place="", mistakes=(mistakes := []))
    assert not mistakes
    assert settings is not None
    assert (settings.url, settings.username, settings.password.reveal()) == ("http://registry:8081", "ann", "s3")


KAFKA_YAML = """\
bootstrap_servers: kafka.example:9093
security_protocol: SASL_SSL
sasl_mechanism: OAUTHBEARER
oauth: {token_url: 'https://idp.example/token', client_id: headwater, client_secret: s3, scope: kafka}
replication_factor: 3
"""


@pytest.mark.parametrize("name", list(SETTINGS))
def test_each_service_uses_the_owners_kafka(home: Home, name: str) -> None:
    """As ``kafka.yaml`` has it, its secret too; the service accepts it. The stack starts none then."""
    home.kafka_file.write_text(KAFKA_YAML)
    path = home.run_dir / f"{name}.yaml"
    path.write_text(yaml.safe_dump(plan(home)[name].settings))

    kafka = load_settings(SETTINGS[name], path=path, environ={}, subject=name).kafka

    assert kafka.oauth is not None
    assert (kafka.bootstrap_servers, kafka.replication_factor) == ("kafka.example:9093", 3)
    assert (kafka.oauth.client_secret.reveal(), kafka.oauth.scope) == ("s3", "kafka")
    assert not {"kafka", "kafka-controller"} & set(port_names(read_documents(home)))


def test_the_router_is_told_how_many_topics_tenants_may_have(home: Home) -> None:
    """As ``topic_quotas.yaml`` has it; the router's settings accept it. Without the file there is no limit."""
    without = plan(home)["router"].settings["topic_quotas"]
    home.topic_quotas_file.write_text("{per_tenant: 20, tenants: {acme: 30}}\n")

    told = plan(home)["router"].settings["topic_quotas"]

    of = [convert_document(TopicQuotaSettings, dict(each), place="", mistakes=[]) for each in (without, told)]
    assert of == [NO_TOPIC_QUOTAS, TopicQuotaSettings(per_tenant=20, tenants={"acme": 30})]


def test_the_sink_is_told_who_wants_lineage(home: Home) -> None:
    """As ``openlineage.yaml`` has it, its key too; the sink's settings accept it. Without the file they lack it."""
    without = plan(home)["sink"].settings
    home.openlineage_file.write_text("{url: 'http://marquez:5000', namespace: prod, api_key: s3}\n")

    told = plan(home)["sink"].settings["openlineage"]

    assert "openlineage" not in without
    settings = convert_document(LineageSettings, dict(told), place="", mistakes=(mistakes := []))
    assert not mistakes
    assert settings is not None
    assert settings.api_key is not None
    assert (settings.url, settings.namespace, settings.api_key.reveal()) == ("http://marquez:5000", "prod", "s3")


def test_new_iceberg_tables_are_of_a_format_with_variant_where_a_tenant_wants_it(home: Home) -> None:
    """A tenant of another warehouse changes nothing."""
    formats = []
    for sink in ("{warehouse: iceberg}", "{warehouse: delta, json_as_variant: ['.*']}", "{json_as_variant: ['.*']}"):
        (home.tenants_dir / "acme.yaml").write_text(f"tenant: acme\nsources: [{{name: shop}}]\nsink: {sink}\n")
        formats.append(plan(home)["sink"].settings["warehouses"]["iceberg"].get("format_version"))

    assert formats == [None, None, 3]


def test_the_sink_has_delta_where_a_tenant_wants_it(home: Home) -> None:
    """And not otherwise: Delta's extension would have a part in every plan."""
    without = plan(home)["sink"].settings["warehouses"]
    (home.tenants_dir / "acme.yaml").write_text(
        "tenant: acme\nsources: [{name: shop}]\nsink: {warehouse: delta, mode: history}\n"
    )
    warehouses = plan(home)["sink"].settings["warehouses"]

    assert "delta" not in without
    assert warehouses["delta"] == {"warehouse_dir": str(home.delta_dir)}
    mistakes: list[str] = []
    assert set(open_sinks(dict(warehouses), mistakes=mistakes)) == {"delta", "iceberg"}, mistakes


def without_warehouses(home: Home) -> Documents:
    """With the stack's own PostgreSQL."""
    home.warehouses_file.unlink()
    return read_documents(home)
