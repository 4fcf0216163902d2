"""Which tenants share a Spark job, and the objects that run it."""

import copy

import pytest
import yaml

from libs.errors import InvalidSettings
from libs.types.sink_place import Place, Places, decode_places
from services.tenant_operator.judge import InForce
from services.tenant_operator.sink_jobs import as_it_was_made, assign, is_as_noted, job_template, jobs_of, manifests
from tests.unit.tenant_operator.tenants import config_map, document, judged, record

TEMPLATE = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "any", "labels": {"team": "data"}},
    "spec": {
        "replicas": 1,
        "template": {
            "metadata": {"labels": {"app.kubernetes.io/name": "headwater"}},
            "spec": {"containers": [{"name": "sink"}], "volumes": [{"name": "settings"}, {"name": "tenants"}]},
        },
    },
}


def template_map(text: str) -> dict[str, object]:
    return {"metadata": {"name": "template", "uid": "u"}, "data": {"statefulset.yaml": text}}


def tenants(
    *names: str, jobs: dict[str, str] | None = None, own: str = "", topics_only: str = ""
) -> tuple[InForce, ...]:
    maps = [
        config_map(
            name,
            document(name, "sink: null\n" if name == topics_only else ""),
            annotations={"headwater.dev/sink-job": "own"} if name == own else {},
        )
        for name in names
    ]
    records = tuple(record(name, sink_job=job) for name, job in (jobs or {}).items())
    return judged(*maps, records=records).in_force


def test_small_tenants_share_jobs_and_fill_them_up() -> None:
    assert assign(tenants("a", "b", "c"), tenants_per_packed_job=2) == {
        "a": "packed-0",
        "b": "packed-0",
        "c": "packed-1",
    }


def test_a_tenant_stays_where_its_checkpoint_lies() -> None:
    there = {"b": "packed-3", "c": "own-c"}

    assert assign(tenants("a", "b", "c", jobs=there), tenants_per_packed_job=2) == {"a": "packed-0", **there}


def test_who_cannot_be_judged_keeps_its_room_and_its_place() -> None:
    kept = (record("b", sink_job="packed-0"), record("c"))

    assert assign(tenants("a", "d"), kept, tenants_per_packed_job=2) == {"a": "packed-0", "d": "packed-1"}
    [job] = jobs_of((), (), kept)
    assert job.documents == {"b": document("b")}
    assert job.places == {"b": Place(job="packed-0", tenancy="uid-b")}


def test_room_that_became_free_is_used() -> None:
    there = {"b": "packed-1", "c": "packed-1"}

    assert assign(tenants("b", "c", "d", jobs=there), tenants_per_packed_job=2)["d"] == "packed-0"


def test_who_asks_for_it_has_a_job_of_its_own() -> None:
    assert assign(tenants("a", "big", own="big"), tenants_per_packed_job=20) == {"a": "packed-0", "big": "own-big"}


def test_who_wants_topics_only_has_no_job() -> None:
    assert assign(tenants("a", "b", topics_only="b"), tenants_per_packed_job=20) == {"a": "packed-0"}


def test_a_job_takes_no_more_documents_than_a_config_map_holds() -> None:
    padding = "#" * 9_000
    many = judged(*(config_map(f"t{n}", document(f"t{n}", padding)) for n in range(101))).in_force

    assert set(assign(many, tenants_per_packed_job=1_000).values()) == {"packed-0", "packed-1"}


def test_a_job_is_the_template_with_its_own_names_documents_and_owner() -> None:
    [job] = jobs_of(tenants("a", "b", jobs={"a": "packed-0", "b": "packed-0"}))

    documents, stateful_set = manifests(job, job_template(template_map(yaml.safe_dump(TEMPLATE))), "headwater")

    places = decode_places(documents["data"].pop("places.json").encode())
    assert documents["data"] == {"a.yaml": document("a"), "b.yaml": document("b")}
    assert places == Places(
        job="packed-0", tenants={name: Place(job="packed-0", tenancy=f"uid-{name}") for name in ("a", "b")}
    )
    assert stateful_set["metadata"]["name"] == "headwater-sink-packed-0"
    assert stateful_set["metadata"]["labels"]["team"] == "data"
    assert stateful_set["metadata"]["ownerReferences"][0]["uid"] == "u"
    pod = stateful_set["spec"]["template"]
    assert pod["metadata"]["labels"].items() >= stateful_set["spec"]["selector"]["matchLabels"].items()
    assert pod["spec"]["volumes"][1] == {"name": "tenants", "configMap": {"name": "headwater-sink-packed-0"}}


def test_a_changed_document_changes_the_documents_and_not_the_pod() -> None:
    """The job reads its folder again by itself: a restart would cost all of its tenants half a minute."""
    template = job_template(template_map(yaml.safe_dump(TEMPLATE)))
    there = {"a": "packed-0"}
    [before] = jobs_of(tenants("a", jobs=there))
    changed = config_map("a", document("a", "sink: {trigger_s: 9}\n"))
    [after] = jobs_of(judged(changed, records=(record("a", sink_job="packed-0"),)).in_force)
    old, new = manifests(before, template, "headwater"), manifests(after, template, "headwater")

    assert not is_as_noted(new[0], old[0])
    assert is_as_noted(new[1], old[1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "no StatefulSet"),
        ("a: b", "no StatefulSet"),
        (yaml.safe_dump({"spec": {"template": {"spec": {"volumes": []}}}}), "no volume"),
    ],
)
def test_a_template_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        job_template(template_map(text))


APPLICATION = {
    "apiVersion": "sparkoperator.k8s.io/v1beta2",
    "kind": "SparkApplication",
    "spec": {
        "driver": {
            "template": {
                "spec": {
                    "containers": [{"name": "spark-kubernetes-driver"}],
                    "volumes": [{"name": "settings"}, {"name": "tenants"}, {"name": "state"}],
                }
            }
        },
        "executor": {"instances": 1},
    },
}


def application_map(goes: str) -> dict[str, object]:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"annotations": {"headwater.dev/goes-with-release": goes}},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}},
    }
    data = {"sparkapplication.yaml": yaml.safe_dump(APPLICATION), "claim.yaml": yaml.safe_dump(claim)}
    return {"metadata": {"name": "template", "uid": "u"}, "data": data}


@pytest.mark.parametrize(("goes", "owners"), [("true", ["template"]), ("false", [])])
def test_a_spark_application_has_the_claim_that_a_stateful_set_would_make(goes: str, owners: list[str]) -> None:
    """And it goes with the release only where that is asked for."""
    [job] = jobs_of(tenants("acme", own="acme", jobs={"acme": "own-acme"}))

    documents, claim, application = manifests(job, job_template(application_map(goes)), "headwater")

    assert documents["data"].keys() == {"acme.yaml", "places.json"}
    assert claim["metadata"]["name"] == "state-headwater-sink-own-acme-0"
    assert [each["name"] for each in claim["metadata"].get("ownerReferences", ())] == owners
    assert claim["spec"] == {"resources": {"requests": {"storage": "1Gi"}}}
    assert application["metadata"]["name"] == "headwater-sink-own-acme"
    assert application["spec"]["executor"] == {
        "instances": 1,
        # As the Spark Operator gives the application's labels to executors, and a StatefulSet knows its pods by this one.
        "labels": {"headwater.dev/sink-job": "", "headwater.dev/executor-of": "own-acme"},
    }
    pod = application["spec"]["driver"]["template"]
    assert pod["metadata"]["labels"]["headwater.dev/sink-job"] == "own-acme"
    assert pod["spec"]["volumes"] == [
        {"name": "settings"},
        {"name": "tenants", "configMap": {"name": "headwater-sink-own-acme"}},
        {"name": "state", "persistentVolumeClaim": {"claimName": "state-headwater-sink-own-acme-0"}},
    ]


def test_a_spark_application_without_a_claim_beside_it_is_refused() -> None:
    found = application_map("true")
    found["data"] = {"sparkapplication.yaml": yaml.safe_dump(APPLICATION)}

    with pytest.raises(InvalidSettings) as refused:
        job_template(found)

    assert "sparkapplication.yaml: is no SparkApplication with volumes" in str(refused.value)


def test_a_spark_application_whose_state_needs_no_volume_has_no_claim() -> None:
    application = copy.deepcopy(APPLICATION)
    application["spec"]["driver"]["template"]["spec"]["volumes"][2]["emptyDir"] = {}  # type: ignore[index]
    found = {
        "metadata": {"name": "template", "uid": "u"},
        "data": {"sparkapplication.yaml": yaml.safe_dump(application)},
    }
    [job] = jobs_of(tenants("acme", own="acme", jobs={"acme": "own-acme"}))

    documents, made = manifests(job, job_template(found), "headwater")

    assert documents["data"].keys() == {"acme.yaml", "places.json"}
    assert made["spec"]["driver"]["template"]["spec"]["volumes"][2] == {"name": "state", "emptyDir": {}}
    assert "selector" not in made["spec"]
    assert made["spec"]["executor"]["labels"]["headwater.dev/executor-of"] == "own-acme"


def test_a_stateful_set_keeps_the_policy_that_it_was_made_with() -> None:
    """Kubernetes refuses another one; all else is as it should be."""
    wanted = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "podManagementPolicy": "Parallel"}}
    older = {**TEMPLATE, "spec": {"replicas": 0, "podManagementPolicy": "OrderedReady"}}

    assert as_it_was_made(wanted, None) == wanted
    assert as_it_was_made(wanted, older) == {
        **TEMPLATE,
        "spec": {**TEMPLATE["spec"], "podManagementPolicy": "OrderedReady"},
    }
    assert as_it_was_made({"kind": "ConfigMap"}, {"kind": "ConfigMap"}) == {"kind": "ConfigMap"}
