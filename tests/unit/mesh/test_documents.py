"""The documents of a home: the good ones, and every mistake of the others."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
import yaml

from libs.config.bounds import bounds_of
from libs.errors import InvalidSettings
from libs.mesh.documents import (
    DOCUMENT_OF_KIND,
    OracleDocument,
    VitessDocument,
    read_documents,
    replica_server_id,
)
from libs.mesh.home import Home, home_at, write_examples
from libs.mesh.processes import warehouse_settings
from libs.source.vitess.settings import EventSettings, StreamSettings, VtgateSettings
from libs.stack.lifecycle import load_documents
from libs.tenants.place import nearest

GOOD_SOURCE = "database: {host: db, port: 3307, user: reader, password: secret}\ninclude_tables: ['shop\\..*']\n"
GOOD_TENANT = "tenant: acme\nsources: [{name: shop}]\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with examples only."""
    made = home_at(tmp_path)
    write_examples(made)
    return made


def put(home: Home, *, source: str = GOOD_SOURCE, tenant: str = GOOD_TENANT) -> None:
    (home.sources_dir / "shop.yaml").write_text(source)
    (home.tenants_dir / "acme.yaml").write_text(tenant)


def test_examples_are_not_documents(home: Home) -> None:
    """The files that `init` writes follow nothing until they are copied."""
    found = read_documents(home)

    assert (found.sources, found.tenants) == ({}, {})


def test_a_source_of_too_many_patterns_is_told(home: Home) -> None:
    """The list that has the most is named."""
    tables = ", ".join(f"shop.t{number}" for number in range(1_000))
    put(home, source=f"{GOOD_SOURCE}exclude_tables: [{tables}]\n")

    with pytest.raises(InvalidSettings) as error:
        load_documents(home)

    assert "exclude_tables: the document has 1,001 regular expressions, 1,000 of them here" in str(error.value)


def test_examples_are_good_once_copied(home: Home) -> None:
    """`init`, two copies, no edit: no mistake."""
    for example in (home.sources_dir / "shop.yaml.example", home.tenants_dir / "acme.yaml.example"):
        example.with_suffix("").write_text(example.read_text())

    found = read_documents(home)

    assert (found.source_mistakes, found.tenant_mistakes) == ((), ())
    assert (list(found.sources), list(found.tenants)) == (["shop"], ["acme"])


def test_init_does_not_overwrite(home: Home) -> None:
    """A second `init` leaves an edited example alone."""
    example = home.sources_dir / "shop.yaml.example"
    example.write_text("mine")

    assert write_examples(home) == ()
    assert example.read_text() == "mine"


def test_every_mistake_of_a_source_is_listed(home: Home) -> None:
    """One look shows everything: unknown names with the nearest right one, wrong values, patterns."""
    put(
        home,
        source="kind: postgres\ndatabase: {hots: db, user: u, port: 70000}\ninclude_tables: ['shop(']\n"
        "snapshot: {mode: intial, chunk_rows: 0}\n",
    )

    text = "\n".join(read_documents(home).source_mistakes)

    assert "did you mean 'host'" in text
    put(
        home,
        source="kind: postgres\ndatabase: {user: u, port: 70000}\ninclude_tables: ['shop(']\n"
        "snapshot: {mode: intial, chunk_rows: 0}\n",
    )
    text = "\n".join(read_documents(home).source_mistakes)
    for part in (
        "postgres",
        "database.port: must be from 1 to 65,535",
        "include_tables[0]",
        "did you mean 'initial'",
        "chunk_rows",
    ):
        assert part in text


def test_mistakes_in_what_only_mysql_has_are_told_with_their_place(home: Home) -> None:
    """Servers by uuid, heartbeats."""
    put(home, source="database: {user: u}\ngtid_source_includes: ['a.*', '(']\nheartbeat_interval_s: -1\n")

    text = "\n".join(read_documents(home).source_mistakes)

    for part in ("gtid_source_includes[1]", "heartbeat_interval_s: must be from 0 to 86,400"):
        assert part in text


def test_mistakes_in_how_a_database_is_reached_are_told_with_their_place(home: Home) -> None:
    """Files that the reader could not open, times, replicas, labels."""
    put(
        home,
        source="database: {user: u, tls_mode: verify-ca, tls_ca_file: ca.pem, connect_timeout_s: 0}\n",
    )
    assert "tls_mode" in "\n".join(read_documents(home).source_mistakes)
    put(
        home,
        source="database: {user: u, tls_ca_file: ca.pem, tls_key_file: /no/such.pem, connect_timeout_s: 0}\n"
        "snapshot: {lag_replicas: [{user: u, port: 0}]}\nmetric_tags: {source: s}\n",
    )

    text = "\n".join(read_documents(home).source_mistakes)

    for part in (
        "database.tls_ca_file: 'ca.pem' is no absolute path",
        "database.tls_key_file: there is no file '/no/such.pem'",
        "tls_certificate_file and tls_key_file need each other",
        "database.connect_timeout_s: must be from 0.1 to 3,600",
        "snapshot.lag_replicas[0].port: must be from 1 to 65,535",
        "no effect without snapshot.max_replica_lag_s",
        "metric_tags.source: metrics have a label",
    ):
        assert part in text


@pytest.mark.parametrize("kind", ["database: {user: u}\n", "kind: vitess\nvtgate: {}\nkeyspace: k\n"])
def test_mistakes_in_chosen_keys_are_told_with_their_place(home: Home, kind: str) -> None:
    """Of both kinds of sources that have them."""
    put(
        home,
        source=kind
        + "key_columns: [{tables: 'a(', columns: id}, {table: t, columns: id}, {tables: t, columns: '*'}]\n",
    )

    text = "\n".join(read_documents(home).source_mistakes)

    for part in ("key_columns[0].tables: is no regular", "key_columns[1].table", "'tables'", "key_columns[2].columns"):
        assert part in text


@pytest.mark.parametrize(
    ("source", "mistake"),
    [
        ("kind: dts\ndatabase: {user: u}\n", "subscription: is missing"),
        ("database: {user: u}\nsubscription: {bootstrap_servers: b, topic: t, group_id: g}\n", "is for kind 'dts'"),
        ("kind: dts\ndatabase: {user: u}\nsubscription: {bootstrap_servers: b, topc: t, group_id: g}\n", "'topic'"),
    ],
)
def test_a_subscription_belongs_to_a_dts_source(home: Home, source: str, mistake: str) -> None:
    """And to no other."""
    put(home, source=source)

    assert mistake in "".join(read_documents(home).source_mistakes)


@pytest.mark.parametrize("content", ["[1, 2", "- a\n- b\n", "", "database: 3", "\x00"])
def test_what_is_no_document_is_a_mistake(home: Home, content: str) -> None:
    """Broken YAML, a list, an empty file: reported with the file's name, never a traceback."""
    put(home, source=content, tenant=content)

    found = read_documents(home)

    assert any("shop.yaml" in mistake for mistake in found.source_mistakes)
    assert any("acme.yaml" in mistake for mistake in found.tenant_mistakes)


def test_a_source_name_must_fit_into_topics(home: Home) -> None:
    """The file's name becomes part of topic names."""
    (home.sources_dir / "My Shop.yaml").write_text(GOOD_SOURCE)

    assert "My Shop.yaml" in "".join(read_documents(home).source_mistakes)


def test_a_tenant_of_an_unknown_source_is_told_the_nearest(home: Home) -> None:
    """A name that is nearly right is named."""
    put(home, tenant="tenant: acme\nsources: [{name: shp}]\n")

    assert "did you mean 'shop'" in "".join(read_documents(home).tenant_mistakes)


def test_a_bad_tenant_stops_no_other(home: Home) -> None:
    """The stack starts with the good ones (design: Tenants)."""
    put(home)
    (home.tenants_dir / "globex.yaml").write_text("tenant: globex\nsourcs: []\n")

    documents = load_documents(home)

    assert list(documents.tenants) == ["acme"]
    assert documents.tenant_mistakes


def test_a_bad_source_stops_up(home: Home) -> None:
    """Nothing could follow it, so nothing is started."""
    put(home, source="database: {}\n")

    with pytest.raises(InvalidSettings, match=r"database\.user: is missing"):
        load_documents(home)


def test_a_folder_that_is_no_home_is_told_apart(tmp_path: Path) -> None:
    """The remedy is `init`, or another --home."""
    with pytest.raises(InvalidSettings, match="headwater init"):
        load_documents(home_at(tmp_path / "elsewhere"))


def test_replica_ids_differ_between_stacks_and_stay(home: Home) -> None:
    """Two stacks on one MySQL must not evict each other's connection; a restart must be the same replica."""
    put(home)
    document = read_documents(home).sources["shop"]
    ids = {replica_server_id(Path(f"/homes/{name}/sources/shop.yaml"), document) for name in "abcdefgh"}

    assert len(ids) == 8
    assert all(0 < server_id < 2**32 for server_id in ids)
    assert replica_server_id(Path("/a"), document) == replica_server_id(Path("/a"), document)


def test_two_readers_of_one_server_need_two_ids(home: Home) -> None:
    """The server would cut each off whenever the other connects; of another server the same id is another one."""
    with_id = f"{GOOD_SOURCE}replica_server_id: 7\n"
    put(home, source=with_id)
    (home.sources_dir / "again.yaml").write_text(with_id)
    (home.sources_dir / "elsewhere.yaml").write_text(with_id.replace("host: db", "host: other"))
    (home.sources_dir / "derived.yaml").write_text(GOOD_SOURCE)

    (mistake,) = read_documents(home).source_mistakes

    assert "shop.yaml: replica_server_id: 7 is that of source 'again' too" in mistake


def test_secrets_do_not_print(home: Home) -> None:
    """A password shows as *** wherever the document is printed."""
    put(home)

    assert "secret" not in repr(read_documents(home).sources["shop"])


@pytest.mark.parametrize(
    ("name", "known", "clause"),
    [("ordrs", ["orders"], "did you mean 'orders'?"), ("x", ["b", "a"], "known: a, b"), ("x", [], "there is none yet")],
)
def test_nearest_names_what_there_is(name: str, known: list[str], clause: str) -> None:
    """The clause that every such error ends with."""
    assert nearest(name, known) == clause


def test_a_subscription_is_told_what_is_for_mysql_alone(home: Home) -> None:
    """Settings that would have no effect are mistakes, all of them at once."""
    put(
        home,
        source="kind: dts\ndatabase: {user: u}\nsubscription: {bootstrap_servers: b, topic: t, group_id: g}\n"
        "signal_table: a.signals\nsnapshot: {mode: always, readers: 3}\n",
    )

    mistakes = {mistake.split(": ")[1] for mistake in read_documents(home).source_mistakes}

    assert mistakes == {"snapshot.mode", "snapshot.readers", "signal_table"}


def test_a_keyspace_is_told_what_is_for_other_kinds(home: Home) -> None:
    """A setting of MySQL's has no effect on vtgate: it is named with the kind that has it."""
    put(
        home,
        source="kind: vitess\nvtgate: {host: v, port: 0}\nkeyspace: shop\nsignal_table: a.b\n"
        "snapshot: {mode: schema_only, chunk_rows: 5, include_tables: ['shop(']}\n",
    )

    text = "\n".join(read_documents(home).source_mistakes)

    for part in (
        "vtgate.port: must be from 1 to 65,535",
        "signal_table: is for kind 'mysql' or 'oracle', and kind is 'vitess'",
        "snapshot.chunk_rows: is for kind 'mysql' or 'dts'",
        "snapshot.mode: 'schema_only' is unknown to kind 'vitess'",
        "snapshot.include_tables[0]",
    ):
        assert part in text


def test_every_mistake_in_a_keyspace_is_told_with_its_line_and_what_was_meant(home: Home) -> None:
    """Misspelt names and values by the nearest right one, at every depth; contradictions with their remedy; all at once."""
    put(
        home,
        source="kind: vitess\nkeyspace: shop\nvtgate:\n  hots: v\n  max_mesage_bytes: 5\nstream:\n  tablet_type: replca\n"
        "  celss: [a]\n  cell_preference: onlyspecifed\nevents:\n  transaction_metadata: orderd\nshard: ['-80']\n",
    )
    misspelt = "\n".join(read_documents(home).source_mistakes)
    put(
        home,
        source="kind: vitess\nkeyspace: shop\nvtgate:\n  keepalive_s: 0\n  headers: {X-Region: eu, grpc-tags: a, ok: ä}\n"
        "stream:\n  heartbeat_interval_s: 0\n  cells: ['a,b']\nevents:\n  remove_fields: [ts_nss]\n"
        "  filter_transaction_topic: true\nstart_vgtid: earlist\nheartbeat_interval_s: -1\n",
    )
    wrong = "\n".join(read_documents(home).source_mistakes)

    for part in (
        "shop.yaml:4: vtgate.hots: unknown name; did you mean 'host'?",
        "shop.yaml:5: vtgate.max_mesage_bytes: unknown name; did you mean 'max_message_bytes'?",
        "shop.yaml:7: stream.tablet_type: unknown value 'replca'; did you mean 'replica'?",
        "shop.yaml:8: stream.celss: unknown name; did you mean 'cells'?",
        "shop.yaml:9: stream.cell_preference: unknown value 'onlyspecifed'; did you mean 'onlyspecified'?",
        "shop.yaml:11: events.transaction_metadata: unknown value 'orderd'; did you mean 'ordered'?",
        "shop.yaml:12: shard: unknown name; did you mean 'shards'?",
    ):
        assert part in misspelt
    for part in (
        "shop.yaml:4: vtgate.keepalive_s: must be from 0.001 to 86,400",
        "shop.yaml:5: vtgate.headers.X-Region: a header's name has lower-case letters, digits, '-', '_' and '.' only; write",
        "shop.yaml:5: vtgate.headers.grpc-tags: names that begin with 'grpc-'",
        "shop.yaml:5: vtgate.headers.ok: a header's value is printable ASCII",
        "shop.yaml:7: stream.heartbeat_interval_s: must be from 1 to 3,600",
        "shop.yaml:8: stream.cells[0]: 'a,b' is no cell",
        "shop.yaml:10: events.remove_fields[0]: 'ts_nss' cannot be removed; did you mean 'ts_ns'?",
        "shop.yaml:11: events.filter_transaction_topic: has no effect without",
        "shop.yaml:12: start_vgtid: 'earlist' is no place; did you mean 'earliest'?",
        "shop.yaml:13: heartbeat_interval_s: must be from 0 to 86,400",
    ):
        assert part in wrong


def test_the_pages_example_of_a_keyspace_holds(home: Home) -> None:
    """docs/vitess.md names every setting, and with all of them set it is a document without a mistake."""
    page = (Path(__file__).parents[3] / "docs" / "vitess.md").read_text(encoding="utf-8")
    example = re.search(r"```yaml\n(kind: vitess\n.*?)```", page, re.DOTALL)
    assert example is not None
    is_prose = re.compile(r"\s*# tls_")
    lines = [re.sub(r"^(\s*)# ?", r"\1", line) for line in example[1].splitlines() if not is_prose.match(line)]
    told = yaml.safe_load("\n".join(lines))

    put(home, source="\n".join(lines))

    assert not read_documents(home).source_mistakes
    assert told.keys() == set(VitessDocument.__struct_fields__)
    assert told["stream"].keys() == set(StreamSettings.__struct_fields__)
    assert told["events"].keys() == set(EventSettings.__struct_fields__)
    assert told["vtgate"].keys() == {name for name in VtgateSettings.__struct_fields__ if not name.startswith("tls_")}


def test_what_a_keyspace_has_elsewhere_is_told(home: Home) -> None:
    """Other kinds call it so, or the reader by itself does."""
    put(
        home, source="kind: vitess\nvtgate: {}\nkeyspace: shop\ntransaction_metadata: true\ntasks: {number: 0, of: 2}\n"
    )

    text = "\n".join(read_documents(home).source_mistakes)

    assert (
        "shop.yaml:4: transaction_metadata: a keyspace has three ways; say events: {transaction_metadata: on}" in text
    )
    assert "shop.yaml:5: tasks: is the number of readers, as in 'tasks: 2'" in text


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        ("0", "tasks: must be 1 or more, is 0"),
        ("-2", "tasks: must be 1 or more, is -2"),
        ("3", "tasks: 3 readers, and 'shards' names 2: one without a shard has nothing to read; at most 2"),
        ("5000", "tasks: 5000 readers are as many processes of this machine; at most 64"),
        ("two", "tasks: "),
    ],
)
def test_a_number_of_readers_that_cannot_be_is_told(home: Home, tasks: str, told: str) -> None:
    """Before anything is started, with the possible numbers."""
    put(home, source=f"kind: vitess\nvtgate: {{}}\nkeyspace: shop\nshards: ['-80', '80-']\ntasks: {tasks}\n")

    assert f"shop.yaml:5: {told}" in "\n".join(read_documents(home).source_mistakes)


def test_transactions_are_not_promised_across_tasks(home: Home) -> None:
    """Each task's transactions have an order, and there is none between two."""
    put(home, source="kind: vitess\nvtgate: {}\nkeyspace: shop\ntasks: 2\n")
    (home.tenants_dir / "acme.yaml").write_text(
        "tenant: acme\nsources: [{name: shop}]\nsink: {consistency: transaction}\ntopics: {transactions: true}\n"
    )

    assert "sink.consistency: transaction: source 'shop' is read by several tasks" in "\n".join(
        read_documents(home).tenant_mistakes
    )


def test_only_a_keyspace_is_read_by_several(home: Home) -> None:
    put(home, source="database: {user: u}\ntasks: 2\n")

    assert "tasks: is for kind 'vitess'" in "\n".join(read_documents(home).source_mistakes)


def test_a_misspelt_kind_is_judged_as_the_nearest(home: Home) -> None:
    """So that its settings are not called unknown."""
    put(home, source="kind: vites\nvtgate: {host: v}\nkeyspac: shop\n")

    text = "\n".join(read_documents(home).source_mistakes)

    assert "kind: 'vites' cannot be followed; did you mean 'vitess'?" in text
    assert "did you mean 'keyspace'?" in text
    assert "vtgate" not in text.replace(str(home.root), "").replace("did you mean", "")


def test_a_misspelt_warehouse_is_told_the_nearest(home: Home) -> None:
    """In a tenant's document, in ``warehouses.yaml``, and in the settings there."""
    put(home, tenant=GOOD_TENANT + "sink: {warehouse: postgres}\n")
    home.warehouses_file.write_text("postgresq: {}\npostgresql: {hots: db, user: u, database: d, tls_mode: full}\n")

    found = read_documents(home)

    assert any(
        "sink.warehouse: 'postgres' is no warehouse; did you mean 'postgresql'?" in m for m in found.tenant_mistakes
    )
    said = "\n".join(found.warehouse_mistakes)
    assert "postgresq: is no warehouse that can be elsewhere; did you mean 'postgresql'?" in said
    assert "postgresql.hots: unknown name; did you mean 'host'?" in said
    assert "postgresql.tls_mode: unknown value 'full'" in said
    with pytest.raises(InvalidSettings, match="did you mean 'host'"):
        load_documents(home)


def test_a_clickhouse_has_to_be_named_by_the_home(home: Home) -> None:
    put(home, tenant=GOOD_TENANT + "sink: {warehouse: clickhouse}\n")

    [said] = read_documents(home).tenant_mistakes
    home.warehouses_file.write_text("clickhouse: {host: ch.example.org, password: secret}\n")
    found = read_documents(home)

    assert "sink.warehouse: a stack of one machine has no clickhouse of its own; say where yours is in " in said
    assert (found.tenant_mistakes, found.warehouse_mistakes) == ((), ())
    told = warehouse_settings(home, found, {})["clickhouse"]
    assert (told["host"], told["password"]) == ("ch.example.org", "secret")


def test_mistakes_of_a_clickhouse_are_told_by_name(home: Home) -> None:
    """Each by its place; the entries beside it are read."""
    home.warehouses_file.write_text(
        "clickhouse: {prot: 1}\npostgresql: {host: db, database: w, user: u}\nclickhose: {}\n"
    )

    found = read_documents(home)

    said = "\n".join(found.warehouse_mistakes)
    assert "clickhouse.prot: unknown name; did you mean 'port'?" in said
    assert "clickhose: is no warehouse that can be elsewhere; did you mean 'clickhouse'?" in said
    assert found.servers.postgresql is not None


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_a_binary_form_needs_to_know_where_the_registry_is(home: Home, kind: str) -> None:
    """Said of the tenant's document by its line, and of the file itself by name; a mistake there stops the start."""
    put(home, tenant=GOOD_TENANT + f"format: {{kind: {kind}}}\nsink: null\n")
    (mistake,) = read_documents(home).tenant_mistakes
    assert f"format.kind: {kind} needs a schema registry; say where it is in schema_registry.yaml" in mistake

    home.schema_registry_file.write_text("urk: 'http://registry'\n")
    said = "\n".join(read_documents(home).schema_registry_mistakes)
    assert "urk: unknown name; did you mean 'url'?" in said
    home.schema_registry_file.write_text("url: 'https://registry'\ntls_ca_file: ca.pem\n")
    said = "\n".join(read_documents(home).schema_registry_mistakes)
    assert "schema_registry.yaml:2: tls_ca_file: 'ca.pem' is no absolute path" in said
    with pytest.raises(InvalidSettings, match="no absolute path"):
        load_documents(home)

    home.schema_registry_file.write_text("url: 'http://registry'\n")
    documents = read_documents(home)
    assert (documents.tenant_mistakes, documents.schema_registry_mistakes) == ((), ())


def test_how_many_topics_tenants_may_have_is_judged_by_line(home: Home) -> None:
    """A mistake there stops the start; every one is named. Without the file there is no limit."""
    assert read_documents(home).topic_quotas.of("acme") is None
    home.topic_quotas_file.write_text("per_tenant: 0\ntenants: {acme: 0}\n")
    said = "\n".join(read_documents(home).topic_quotas_mistakes)
    assert "topic_quotas.yaml:1: per_tenant: must be at least 1; leave it out for no limit" in said
    assert "topic_quotas.yaml:2: tenants.acme: must be at least 1" in said
    home.topic_quotas_file.write_text("per_tennant: 5\n")
    with pytest.raises(InvalidSettings, match="did you mean 'per_tenant'"):
        load_documents(home)

    home.topic_quotas_file.write_text("per_tenant: 5\ntenants: {acme: 7}\n")
    documents = load_documents(home)
    assert (documents.topic_quotas.of("acme"), documents.topic_quotas.of("globex")) == (7, 5)


def test_who_is_told_of_lineage_is_judged_by_line(home: Home) -> None:
    """A mistake there stops the start; every one is named."""
    put(home, tenant=GOOD_TENANT)
    home.openlineage_file.write_text("namespace: prod\ntimeout_s: 0\n")
    said = "\n".join(read_documents(home).openlineage_mistakes)
    assert "url: give either url or file" in said
    assert "openlineage.yaml:2: timeout_s: must be above 0" in said
    home.openlineage_file.write_text("file: lineage.jsonl\n")
    with pytest.raises(InvalidSettings, match=r"lineage\.jsonl' is no absolute path"):
        load_documents(home)

    home.openlineage_file.write_text(f"file: {home.root}/lineage.jsonl\n")
    assert load_documents(home).openlineage is not None


def test_the_stack_runs_a_postgresql_only_where_one_is_wanted(home: Home) -> None:
    """Not for Iceberg, and not where the owner says where it is."""
    put(home)
    assert not read_documents(home).has_own_postgresql

    put(home, tenant=GOOD_TENANT + "sink: {warehouse: postgresql}\n")
    assert read_documents(home).has_own_postgresql

    home.warehouses_file.write_text("postgresql: {host: db, user: u, database: d, password: secret}\n")
    documents = read_documents(home)
    assert not documents.has_own_postgresql
    assert "secret" not in repr(documents)


def test_a_tenant_that_has_no_document_is_told_the_nearest(home: Home) -> None:
    put(home)
    found = read_documents(home)

    assert found.require_tenant("acme") == found.tenants["acme"]
    with pytest.raises(InvalidSettings, match=r"tenants/; did you mean 'acme'\?"):
        found.require_tenant("amce")


def numbers_of(record: type[msgspec.Struct], place: str = "") -> Iterator[tuple[str, Any]]:
    """Every number that a document of this shape may have, and its type."""
    hints = get_type_hints(record, include_extras=True)
    for field in msgspec.structs.fields(record):
        kinds = (field.type, *get_args(field.type))
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                yield from numbers_of(kind, f"{place}{field.name}.")
        if {int, float} & {kind for kind in kinds if isinstance(kind, type)}:
            yield f"{place}{field.name}", hints[field.name]


@pytest.mark.parametrize("record", DOCUMENT_OF_KIND.values(), ids=DOCUMENT_OF_KIND)
def test_every_number_of_a_source_has_bounds(record: type[msgspec.Struct]) -> None:
    """``tasks`` has words of its own, by the shards."""
    numbers = dict(numbers_of(record))

    assert len(numbers) >= 5
    assert [name for name, hint in numbers.items() if bounds_of(hint) is None and name != "tasks"] == []


def test_a_number_out_of_its_bounds_is_a_mistake_before_a_reader_starts(home: Home) -> None:
    """A server id that MySQL does not take would end the reader after the whole copy, again and again."""
    source = "database: {user: u}\nreplica_server_id: 99999999999\nsnapshot: {chunk_rows: 0}\n"
    put(home, source=source)

    said = "\n".join(read_documents(home).source_mistakes)
    assert "shop.yaml:2: replica_server_id: must be from 1 to 4,294,967,295" in said
    assert "shop.yaml:3: snapshot.chunk_rows: must be from 1 to 10,000,000" in said


def test_mistakes_of_the_owners_kafka_stop_the_start(home: Home) -> None:
    """By the file's lines; files by absolute paths, because each process runs in a folder of its own."""
    put(home)
    home.kafka_file.write_text("bootstrap_servers: 'k:9093'\nsecurity_protocol: SSL\nssl_ca_file: ca.pem\n")

    (mistake,) = read_documents(home).kafka_mistakes

    assert "kafka.yaml:3: ssl_ca_file: 'ca.pem' is no absolute path" in mistake
    with pytest.raises(InvalidSettings, match="no absolute path"):
        load_documents(home)
    home.kafka_file.write_text("bootstrap_servers: 'k:9093'\nsecurity_protocol: SSL\n")
    documents = load_documents(home)
    assert documents.kafka is not None
    assert documents.kafka.bootstrap_servers == "k:9093"


def test_a_subscription_says_where_it_is_where_the_kafka_is_the_owners(home: Home) -> None:
    """Its recordings would lie in the stack's own Kafka, and there is none."""
    put(home, source="kind: dts\ndatabase: {user: u}\nsubscription: {topic: t, group_id: g}\n")
    assert read_documents(home).source_mistakes == ()
    home.kafka_file.write_text("bootstrap_servers: 'k:9093'\n")

    (mistake,) = read_documents(home).source_mistakes

    assert "subscription.bootstrap_servers: is missing, and kafka.yaml names a Kafka of yours" in mistake


ORACLE = "kind: oracle\ndatabase: {user: c##u, service_name: ORCLCDB}\n"


def test_a_document_of_oracle_says_where_the_database_is(home: Home) -> None:
    """Everything else has a default; a host that is not said is this machine."""
    put(home, source=ORACLE)

    found = read_documents(home)

    assert found.source_mistakes == ()
    document = found.sources["shop"]
    assert isinstance(document, OracleDocument)
    assert (document.database.host, document.database.port, document.database.database_name) == (
        "127.0.0.1",
        1521,
        "ORCLCDB",
    )


@pytest.mark.parametrize(
    ("further", "mistake"),
    [
        (
            "gtid_source_includes: [a]\n",
            "gtid_source_includes: is for kind 'mysql', and kind is 'oracle'; leave it out",
        ),
        ("snapshot: {mode: custom}\n", "snapshot.mode: 'custom' is unknown to kind 'oracle'"),
        ("snapshot: {lock: none}\n", "snapshot.lock: is for kind 'mysql'"),
        ("signal_table: SIGNALS\n", "signal_table: 'SIGNALS' is no table: write SCHEMA.TABLE"),
        ("snapshot: {select_overrides: {ORDERS: A = 1}}\n", "'ORDERS' is no table: write SCHEMA.TABLE"),
        ("mining: {window_redo_mb: 0}\n", "mining.window_redo_mb: must be from 1 to 1,048,576"),
        ("include_tables: ['(']\n", "include_tables[0]: "),
        ("mining: {window_mb: 1}\n", "mining.window_mb: unknown name"),
        ("on_unseen_change: [{action: resync}]\n", "on_unseen_change[0]: resync is there for MySQL sources alone"),
        ("tasks: 2\n", "tasks: is for kind 'vitess'"),
        ("mining: {archive_destinations: [1, 32]}\n", "mining.archive_destinations[1]: must be from 1 to 31"),
    ],
)
def test_mistakes_of_a_document_of_oracle_are_named(home: Home, further: str, mistake: str) -> None:
    """Each with its place, before anything is started."""
    put(home, source=ORACLE + further)

    assert mistake in "\n".join(read_documents(home).source_mistakes)


def test_a_rule_that_contradicts_the_kind_is_a_mistake_with_its_place(home: Home) -> None:
    """It ended the command with a traceback, of a keyspace and of a subscription too."""
    put(home, source="kind: vitess\nvtgate: {}\nkeyspace: shop\non_unseen_change: [{tables: a, action: resync}]\n")

    (mistake,) = read_documents(home).source_mistakes

    assert "shop.yaml:4: on_unseen_change[0]: resync is there for MySQL sources alone" in mistake
