"""A folder of tenant documents, followed over time."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from libs.errors import InvalidSettings
from libs.tenants.document import TenantFolder, TenantSet, parse_tenant
from libs.tenants.row_filter import condition_mistakes

ACME = "tenant: acme\nsources: [{name: shop}]\n"
GLOBEX = "tenant: globex\nsources: [{name: shop, include_tables: ['shop\\.orders']}]\n"
BROKEN = "tenant: acme\nsources: [{nam: shop}]\n"


def write(folder: Path, name: str, text: str) -> Path:
    """A document in its own folder, as a new file."""
    file = folder / name / "tenant.yaml"
    file.parent.mkdir(exist_ok=True)
    replacement = file.with_name(".new")
    replacement.write_text(text)
    replacement.replace(file)
    return file


def names(tenants: TenantSet | None) -> list[str]:
    """The tenants in force."""
    assert tenants is not None
    return [spec.tenant for spec in tenants.tenants]


def without_lines(mistakes: Sequence[str]) -> list[str]:
    """Mistakes of a text, from their place on."""
    assert all(re.match(r"line \d+: ", mistake) for mistake in mistakes)
    return [mistake.partition(": ")[2] for mistake in mistakes]


def test_a_document_of_too_many_patterns_is_told_its_longest_list_alone() -> None:
    """By line; the thousand are not judged as well, which would take long."""
    mistakes: list[str] = []
    names = ", ".join(["'(a+)+'"] * 991)
    sink = f"sink: {{tracked_columns: [{', '.join(['a'] * 10)}]}}"
    text = f"tenant: acme\nsources:\n- name: shop\n  exclude_columns: [{names}]\n{sink}\n"

    assert parse_tenant(text, mistakes=mistakes) is None
    assert mistakes == [
        "line 4: sources[0].exclude_columns: the document has 1,001 regular expressions, 991 of them here, and may have 1,000; "
        "join names into one, as in 'shop\\.(orders|items)'"
    ]


def test_columns_are_included_by_patterns_that_are_judged() -> None:
    """As those that exclude; without any all columns come."""
    mistakes: list[str] = []
    good = parse_tenant("tenant: acme\nsources: [{name: shop, include_columns: ['a\\.b\\..*']}]", mistakes=mistakes)
    silent = parse_tenant("tenant: acme\nsources: [{name: shop}]", mistakes=mistakes)

    assert good is not None
    assert silent is not None
    assert [spec.sources[0].include_columns for spec in (good, silent)] == [(r"a\.b\..*",), (".*",)]
    assert parse_tenant("tenant: a\nsources: [{name: s, include_columns: [a, '(a+)+']}]", mistakes=mistakes) is None
    assert without_lines(mistakes)[0].startswith("sources[0].include_columns[1]: could run away: ")


def test_both_layouts_are_read(tmp_path: Path) -> None:
    """``<tenant>/tenant.yaml`` and ``<tenant>.yaml`` count; hidden files and others do not."""
    write(tmp_path, "acme", ACME)
    (tmp_path / "globex.yaml").write_text(GLOBEX)
    (tmp_path / ".draft.yaml").write_text("nonsense")
    (tmp_path / "notes.txt").write_text("nonsense")

    assert names(TenantFolder(tmp_path).refresh()) == ["acme", "globex"]


def test_unchanged_folder_gives_none(tmp_path: Path) -> None:
    """A second look at the same files is no change; a rewritten file is one."""
    write(tmp_path, "acme", ACME)
    folder = TenantFolder(tmp_path)
    folder.refresh()

    assert folder.refresh() is None

    write(tmp_path, "acme", ACME)

    assert names(folder.refresh()) == ["acme"]


def test_a_document_that_did_not_change_is_not_read_again(tmp_path: Path) -> None:
    """Judging a thousand of them takes seconds; and a holder of a spec sees by the object that it is the same."""
    asked: list[str] = []

    def check(where: str) -> list[str]:
        asked.append(where)
        return []

    def write(tenant: str, where: str) -> None:
        source = f"{{name: shop, row_filters: [{{tables: '.*', where: {where}}}]}}"
        (tmp_path / f"{tenant}.yaml").write_text(f"tenant: {tenant}\nsources: [{source}]\nsink: null\n")

    for tenant in ("acme", "globex"):
        write(tenant, "a = 1")
    folder = TenantFolder(tmp_path, state_folder=tmp_path / "state", check_condition=check)
    first = folder.refresh()
    assert first is not None
    asked.clear()

    write("globex", "a = 22")
    second = folder.refresh()

    assert second is not None
    assert asked == ["a = 22"]
    assert second.tenants[0] is first.tenants[0]
    assert second.tenants[1] != first.tenants[1]


def test_every_mistake_is_listed_with_file_and_place() -> None:
    """Wrong patterns, masks, names and numbers are all named, in one go."""
    mistakes: list[str] = []
    text = """
tenant: ACME Corp
sources:
- name: shop
  include_tables: ['shop\\.(']
  row_filters: [{tables: '.*', where: 'total >'}]
  masks:
  - {columns: '.*email', hash: {salt: '', algorithm: md5}}
  - {columns: '['}
- name: shop
format: {source_types: {columns: ['['], types: ['.*', '(']}, schema_names: avro}
topics: {kafka_partitions: 0}
sink:
  mode: append
  trigger_s: 0
  trigger_max_s: -1
  trigger_rows: 0
  max_batch_rows: 0
  max_rows_per_s: 0
  deletes: soft
  tracked_columns: ['*']
  warehouse: postgresql
  json_as_variant: ['.*', '(']
  layouts: [{tables: '(', sort_by: [a, 'day(1, b)']}]
  schema_changes: {rules: [{tables: '(', policy: ignore}, {policy: evolve}, {changes: [column_added], policy: ignore}]}
"""

    spec = parse_tenant(text, mistakes=mistakes, check_condition=lambda where: [f"{where!r} ends too early"])

    assert spec is None
    assert [mistake.split(":")[0] for mistake in mistakes[:4]] == ["line 2", "line 5", "line 6", "line 8"]
    assert [mistake.split(":")[0] for mistake in without_lines(mistakes)] == [
        "tenant",
        "sources[0].include_tables[0]",
        "sources[0].row_filters[0].where",
        "sources[0].masks[0].hash.algorithm",
        "sources[0].masks[0].hash.salt",
        "sources[0].masks[1].columns",
        "sources[0].masks[1].hash",
        "sources[1].name",
        "format.source_types.columns[0]",
        "format.source_types.types[1]",
        "format.source_types",
        "format.schema_names",
        "sink.trigger_max_s",
        "sink.deletes",
        "sink.tracked_columns",
        "sink.schema_changes.rules[0].tables",
        "sink.schema_changes.rules[2]",
        "sink.tracked_columns[0]",
        "sink.json_as_variant",
        "sink.json_as_variant[1]",
        "sink.layouts",
        "sink.layouts[0].tables",
        "sink.layouts[0].sort_by[1]",
        "topics.kafka_partitions",
        "sink.trigger_s",
        "sink.trigger_max_s",
        "sink.trigger_rows",
        "sink.max_batch_rows",
        "sink.max_rows_per_s",
    ]


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_a_binary_form_is_refused_where_it_cannot_be_read(kind: str) -> None:
    """By a sink, in a topic of several tables, beside schemas in each event; all reported at once."""
    mistakes: list[str] = []
    text = f"{ACME}format: {{kind: {kind}, schemas: true, tombstones: false}}\ntopics: {{layout: per_tenant}}"

    assert parse_tenant(text, mistakes=mistakes) is None
    told = [mistake for mistake in without_lines(mistakes) if mistake.startswith("format.")]
    assert [mistake.partition(";")[0] for mistake in told] == [
        "format.schemas: is for kind json",
        f"format.kind: a sink reads json, and {kind} is for consumers of your own",
        f"format.kind: {kind} has one schema for a topic's values, and layout per_tenant puts all tables into one",
    ]
    good = f"{ACME}format: {{kind: {kind}, schema_names: avro_unicode}}\nsink: null"
    assert parse_tenant(good, mistakes=[]) is not None


def test_protobuf_has_no_place_for_the_sources_types() -> None:
    """Avro has, and JSON with schemas."""
    mistakes: list[str] = []

    text = f"{ACME}format: {{kind: protobuf, source_types: {{columns: ['.*']}}}}\nsink: null"
    assert parse_tenant(text, mistakes=mistakes) is None
    (mistake,) = without_lines(mistakes)
    assert mistake.startswith("format.source_types: Protobuf's schemas have no place for them")


def test_an_unknown_form_is_refused_with_those_that_there_are() -> None:
    """As any value that is none of its list."""
    mistakes: list[str] = []

    assert parse_tenant(f"{ACME}format: {{kind: orc}}", mistakes=mistakes) is None
    assert without_lines(mistakes) == ["format.kind: unknown value 'orc'; known: avro, json, protobuf"]


def test_misspelt_name_adjustment_is_refused_with_the_nearest() -> None:
    """As any value that is none of its list."""
    mistakes: list[str] = []

    assert parse_tenant(f"{ACME}format: {{field_names: avro-unicode}}", mistakes=mistakes) is None
    assert without_lines(mistakes) == ["format.field_names: unknown value 'avro-unicode'; did you mean 'avro_unicode'?"]


def test_misspelt_policies_and_changes_are_refused_with_the_nearest() -> None:
    """Each with its place, values in lists too."""
    mistakes: list[str] = []
    text = f"""{ACME}
sink:
  schema_changes:
    defualt: evolve
    default: evolv
    rules:
    - {{table: '.*', changes: [column_renmed, table_dropped], policy: lenient}}
    - {{tables: 'shop.*'}}
"""

    assert parse_tenant(text, mistakes=mistakes) is None
    place = "sink.schema_changes"
    mistakes = without_lines(mistakes)
    assert mistakes[:4] == [
        f"{place}.defualt: unknown name; did you mean 'default'?",
        f"{place}.default: unknown value 'evolv'; did you mean 'evolve'?",
        f"{place}.rules[0].table: unknown name; did you mean 'tables'?",
        f"{place}.rules[0].changes[0]: unknown value 'column_renmed'; did you mean 'column_renamed'?",
    ]
    assert mistakes[4].startswith(f"{place}.rules[0].changes[1]: unknown value 'table_dropped'")
    assert mistakes[5:] == [f"{place}.rules[1].policy: is missing"]


def test_broken_document_leaves_last_good_version_and_other_tenants(tmp_path: Path) -> None:
    """A mistake in one document changes no tenant at all, its own included."""
    broken = write(tmp_path, "acme", ACME)
    write(tmp_path, "globex", GLOBEX)
    folder = TenantFolder(tmp_path)
    folder.refresh()
    write(tmp_path, "acme", BROKEN)

    tenants = folder.refresh()

    assert names(tenants) == ["acme", "globex"]
    assert tenants is not None
    assert [(item.file, item.tenant) for item in tenants.refused] == [(broken, "acme")]
    assert tenants.refused[0].mistakes[0].startswith("acme/tenant.yaml:2: sources[0].nam: unknown name; did you mean")


def test_document_that_was_never_good_is_refused_alone(tmp_path: Path) -> None:
    """There is no version to fall back to: that tenant is absent, the others are there."""
    write(tmp_path, "acme", "tenant: [")
    write(tmp_path, "globex", GLOBEX)

    tenants = TenantFolder(tmp_path).refresh()

    assert names(tenants) == ["globex"]
    assert tenants is not None
    assert tenants.refused[0].tenant is None
    assert "is not YAML" in tenants.refused[0].mistakes[0]


def test_last_good_version_survives_a_restart(tmp_path: Path) -> None:
    """A process that starts while a document is broken finds its last good version in the state folder."""
    documents, state = tmp_path / "tenants", tmp_path / "state"
    documents.mkdir()
    write(documents, "acme", ACME)
    TenantFolder(documents, state_folder=state).refresh()
    write(documents, "acme", BROKEN)

    assert names(TenantFolder(documents, state_folder=state).refresh()) == ["acme"]


def test_removed_document_does_not_come_back(tmp_path: Path) -> None:
    """Taking the file away takes the tenant away, also for the next process that finds a broken file there."""
    documents, state = tmp_path / "tenants", tmp_path / "state"
    documents.mkdir()
    file = write(documents, "acme", ACME)
    folder = TenantFolder(documents, state_folder=state)
    folder.refresh()
    file.unlink()

    assert names(folder.refresh()) == []

    write(documents, "acme", BROKEN)

    assert names(TenantFolder(documents, state_folder=state).refresh()) == []


def test_name_stays_with_the_document_that_has_it(tmp_path: Path) -> None:
    """A newcomer that claims a name in force is refused, wherever its file sorts."""
    write(tmp_path, "zeta", ACME)
    folder = TenantFolder(tmp_path)
    folder.refresh()
    newcomer = write(tmp_path, "alpha", "tenant: acme\nsources: [{name: other}]\n")

    tenants = folder.refresh()

    assert tenants is not None
    assert [(spec.tenant, spec.sources[0].name) for spec in tenants.tenants] == [("acme", "shop")]
    assert [item.file for item in tenants.refused] == [newcomer]
    assert "'acme' is claimed by" in tenants.refused[0].mistakes[0]


def test_tenant_may_be_renamed(tmp_path: Path) -> None:
    """A file whose document names another tenant gives up its old one."""
    write(tmp_path, "acme", ACME)
    folder = TenantFolder(tmp_path)
    folder.refresh()
    write(tmp_path, "acme", GLOBEX)

    assert names(folder.refresh()) == ["globex"]


def test_missing_folder_is_refused_at_the_start_only(tmp_path: Path) -> None:
    """A folder that vanishes later (a failed mount) takes no tenant away."""
    documents = tmp_path / "tenants"
    folder = TenantFolder(documents)

    with pytest.raises(InvalidSettings, match="is no folder"):
        folder.refresh()

    documents.mkdir()
    file = write(documents, "acme", ACME)
    folder.refresh()
    file.unlink()
    file.parent.rmdir()
    documents.rmdir()

    assert folder.refresh() is None


def test_layouts_are_icebergs() -> None:
    """Other warehouses would pass over them in silence."""
    mistakes: list[str] = []

    assert (
        parse_tenant(f"{ACME}sink: {{warehouse: delta, layouts: [{{partition_by: [id]}}]}}", mistakes=mistakes) is None
    )
    assert without_lines(mistakes) == [
        "sink.layouts: are for warehouse iceberg; delta lays its tables out by itself: leave them out"
    ]


def test_tables_move_together_where_that_can_be_kept() -> None:
    """One source, whose transactions' ends are written, into Iceberg or PostgreSQL; all else is reported at once."""
    mistakes: list[str] = []
    good = f"{ACME}sink: {{consistency: transaction}}\ntopics: {{transactions: true}}"
    bad = "tenant: acme\nsources: [{name: shop}, {name: crm}]\nsink: {warehouse: delta, consistency: transaction}"

    assert parse_tenant(good, mistakes=mistakes) is not None, mistakes
    assert parse_tenant(bad, mistakes=mistakes) is None
    assert without_lines(mistakes) == [
        "sink.consistency: transaction is for warehouses iceberg and postgresql; delta commits each table by itself: take "
        "one of these, or leave it out",
        "sink.consistency: transaction needs the END of each transaction; set topics.transactions: true",
        "sink.consistency: no transaction spans two sources; give each source a tenant of its own, or leave it out",
    ]


def test_rubbish_leaves_the_others_alone(tmp_path: Path) -> None:
    """Not YAML, too large, twice the same name, aliases without end, a pattern and a condition that would run away."""
    write(tmp_path, "globex", GLOBEX)
    rubbish = {
        "a": "tenant: [",
        "b": "tenant: b\n#" + "x" * (1 << 20),
        "c": "tenant: c\ntenant: d\nsources: [{name: shop}]",
        "d": "tenant: &a [*a, *a]",
        "e": "tenant: e\nsources: [{name: shop, include_tables: ['(a+)+']}]",
        "f": f"tenant: f\nsources: [{{name: shop, row_filters: [{{tables: t, where: '{'(' * 100}a{')' * 100}'}}]}}]",
        "g": "- 1",
        "h": "",
    }
    for name, text in rubbish.items():
        write(tmp_path, name, text)

    tenants = TenantFolder(tmp_path, check_condition=condition_mistakes).refresh()

    assert tenants is not None
    assert names(tenants) == ["globex"]
    assert [item.file.parent.name for item in tenants.refused] == list(rubbish)
    assert all(len(item.mistakes) == 1 for item in tenants.refused)


def test_where_a_document_says_what_is_told_with_it(tmp_path: Path) -> None:
    """Of the version that is in force: a broken one after it changes nothing."""
    write(tmp_path, "globex", GLOBEX)
    folder = TenantFolder(tmp_path)
    folder.refresh()
    write(tmp_path, "globex", "\n\n\ntenant: [")

    tenants = folder.refresh()

    assert tenants is not None
    assert tenants.lines["globex"].line_of("sources[0].include_tables") == 2
