"""The chart, rendered for tests."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from libs.kafka.mesh_rights import COMPONENTS
from tests.cluster.helm import RunsHelm

CHART: Final = Path(__file__).resolve().parents[2] / "charts" / "headwater"
RELEASE: Final = "headwater"

SHOP: Final = {
    "kind": "mysql",
    "settings": {"database": {"host": "mysql.shop", "user": "headwater"}, "replica_server_id": 4711},
    "secretEnv": {"HEADWATER_DATABASE__PASSWORD": {"name": "shop-mysql", "key": "password"}},
}
LEAST: Final[Mapping[str, Any]] = {}
"""As it is shipped: no source yet."""
SMALL: Final[Mapping[str, Any]] = {
    "sources": {"shop": SHOP},
    "router": {"autoscaling": {"enabled": False}, "replicas": 1},
    "sink": {"enabled": False},
    "networkPolicy": {"enabled": False},
}
FULL: Final[Mapping[str, Any]] = {
    "image": {"registry": "registry.example/team", "tag": "7", "pullSecrets": [{"name": "pull"}]},
    "sources": {
        "shop": SHOP,
        "Big_keyspace": {"kind": "vitess", "settings": {"vtgate": {"host": "vtgate"}, "keyspace": "commerce"}},
        "erp": {
            "kind": "oracle",
            "settings": {
                "database": {"host": "erp", "service_name": "ORCLCDB", "pdb_name": "ERP", "user": "c##headwater"}
            },
            "secretEnv": {"HEADWATER_DATABASE__PASSWORD": {"name": "erp-oracle", "key": "password"}},
        },
        "ledger": {
            "kind": "dts",
            "settings": {
                "subscription": {
                    "bootstrap_servers": "dts:9092",
                    "topic": "topic-subs-1",
                    "group_id": "consumer-grp-1",
                    "username": "account-subs-1",
                }
            },
            "secretEnv": {"HEADWATER_SUBSCRIPTION__PASSWORD": {"name": "dts", "key": "password"}},
            "resources": {
                "requests": {"cpu": 1, "memory": "1Gi", "ephemeral-storage": "64Mi"},
                "limits": {"memory": "2Gi", "ephemeral-storage": "11Gi"},
            },
        },
    },
    "kafka": {
        "bootstrapServers": "kafka-0:9093,kafka-1:9093",
        "securityProtocol": "SASL_SSL",
        "saslMechanism": "SCRAM-SHA-512",
        "username": "headwater",
        "passwordSecret": {"name": "kafka", "key": "password"},
        "caSecret": {"name": "kafka-ca", "key": "ca.crt"},
    },
    "redis": {"urlSecret": {"name": "redis", "key": "url"}},
    "tls": {"enabled": True, "secret": "mesh-tls", "secrets": {"router": "router-tls"}},
    "router": {
        "maskKeys": {"acme": "acme-mask-keys", "globex": "globex-keys"},
        "settings": {"schema_registry": {"url": "https://registry:8081", "username": "headwater"}},
        "secretEnv": {
            "HEADWATER_SCHEMA_REGISTRY__PASSWORD": {"name": "registry", "key": "password"},
            "HEADWATER_KEY__ACME__CARD": {"name": "card-keys", "key": "acme"},
        },
    },
    "topicQuotas": {"perTenant": 200, "tenants": {"acme": 500}},
    "tenantOperator": {
        "tenantNames": {"team-acme": ["acme(-.*)?"], "*": ["{namespace}(-.*)?"]},
        "settings": {"quotas": {"consumer_bytes_per_s": 1_000_000}, "resync_s": 10},
    },
    "sink": {
        "settings": {"warehouses": {"iceberg": {"catalog": {"kind": "rest", "uri": "https://catalog"}}}},
        "secretEnv": {"HEADWATER_WAREHOUSES__ICEBERG__CATALOG__CREDENTIAL": {"name": "catalog", "key": "credential"}},
        "storageClassName": "fast",
        "extraVolumes": [{"name": "warehouse", "persistentVolumeClaim": {"claimName": "warehouse"}}],
        "extraVolumeMounts": [{"name": "warehouse", "mountPath": "/warehouse"}],
    },
    "check": {
        "enabled": True,
        "chunkRows": 1_500_000,
        "repair": True,
        "tenants": ["acme"],
        "tables": [r"shop\..*"],
        "maskKeys": {"acme": "acme-mask-keys"},
        "sources": {
            "shop": {"database": {"host": "replica.shop", "user": "checker"}},
            "ledger": {"database": {"host": "ledger", "user": "checker"}},
        },
        "secretEnv": {
            "HEADWATER_SOURCES__LEDGER__DATABASE__PASSWORD": {"name": "ledger", "key": "password"},
            "AWS_SECRET_ACCESS_KEY": {"name": "lake", "key": "secret"},
        },
    },
    "networkPolicy": {
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
        "sinkEgress": [
            {"to": [{"ipBlock": {"cidr": "10.1.0.0/24"}}], "ports": [{"port": 9093}]},
            {"to": [{"ipBlock": {"cidr": "10.2.0.7/32"}}], "ports": [{"port": 443}]},
        ],
    },
    "monitoring": {"serviceMonitors": True, "alerts": True, "dashboard": True, "labels": {"release": "prometheus"}},
    "nodeSelector": {"pool": "cdc"},
    "tolerations": [{"key": "cdc", "operator": "Exists"}],
    "podAnnotations": {"team": "data"},
}
EXECUTORS: Final[Mapping[str, Any]] = {
    **FULL,
    "onUninstall": "forget",
    "sink": {
        **FULL["sink"],
        "executors": {
            "instances": 4,
            "cores": 2,
            "memory": "2g",
            "resources": {"requests": {"cpu": 2, "ephemeral-storage": "4Gi"}, "limits": {"cpu": "3"}},
            "podTemplate": {
                "metadata": {"labels": {"team": "data"}},
                "spec": {"tolerations": [{"operator": "Exists"}]},
            },
        },
        "podTemplate": {"spec": {"priorityClassName": "mesh"}},
        "secretEnv": {"AWS_SECRET_ACCESS_KEY": {"name": "lake", "key": "secret"}, **FULL["sink"]["secretEnv"]},
    },
    "networkPolicy": {
        **FULL["networkPolicy"],
        "kubernetesApi": [{"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 6443}]}],
    },
}
"""Spark jobs that have executors, beside all that a mesh may have."""
CERT_MANAGER: Final[Mapping[str, Any]] = {
    **FULL,
    "sources": {
        **FULL["sources"],
        "web": {"kind": "vitess", "settings": {"vtgate": {"host": "vtgate"}, "keyspace": "web"}, "tasks": 2},
    },
    "tls": {"enabled": True, "certManager": {"enabled": True, "issuerRef": {"name": "mesh"}}},
}
"""Certificates by cert-manager, of several readers of one source too."""
WITH_TENANTS: Final[Mapping[str, Any]] = {
    **SMALL,
    "tenants": {
        "acme": {
            "document": {
                "tenant": "acme",
                "sources": [{"name": "shop", "include_tables": [r"shop\.orders"]}],
                "sink": {},
            },
            "kafkaSecret": "acme-password",
            "sinkJob": "own",
            "onDelete": "delete-topics",
        },
        "globex": {"document": {"tenant": "globex", "sources": [{"name": "shop"}]}, "plan": True},
    },
}
"""Tenants that come with the release."""
TRIAL: Final[Mapping[str, Any]] = {
    **FULL,
    "kafka": {},
    "redis": {},
    "trial": {"kafka": {"enabled": True}, "redis": {"enabled": True}},
}
"""With servers of its own."""
KEPT: Final[Mapping[str, Any]] = {
    **FULL,
    "sink": {
        **FULL["sink"],
        "settings": {
            **FULL["sink"]["settings"],
            "state_store": {"uri": "s3://lake/state", "region": "eu-central-1", "endpoint": "https://store:9000"},
        },
        "secretEnv": {**FULL["sink"]["secretEnv"], "AWS_SECRET_ACCESS_KEY": {"name": "lake", "key": "secret"}},
        "stateSize": None,
    },
}
"""The jobs' state in an object store, and no volume of theirs."""
USERS: Final[Mapping[str, Any]] = {
    **FULL,
    "kafka": {
        **{name: value for name, value in FULL["kafka"].items() if name not in ("username", "passwordSecret")},
        "users": {
            component: {"username": f"mesh-{component}", "passwordSecret": {"name": "kafka-users", "key": component}}
            for component in COMPONENTS
        },
        "usersMadeBy": {"username": "admin", "passwordSecret": {"name": "kafka-admin", "key": "password"}},
    },
}
"""Each component with a Kafka user of its own, which a Job makes."""
IDENTITIES: Final[Mapping[str, Any]] = {
    **FULL,
    "kafka": {
        **{name: value for name, value in FULL["kafka"].items() if name not in ("username", "passwordSecret")},
        "saslMechanism": "OAUTHBEARER",
        "certificateSecret": {"name": "kafka-client"},
        "oauth": {
            "tokenUrl": "https://idp.example/oauth2/token",
            "clientId": "headwater",
            "clientSecret": {"name": "kafka-clients", "key": "headwater"},
            "scope": "kafka",
            "caSecret": {"name": "idp-ca", "key": "ca.crt"},
        },
        "users": {
            "router": {
                "oauth": {"clientId": "mesh-router", "clientSecret": {"name": "kafka-clients", "key": "router"}}
            },
            "sink": {"certificateSecret": {"name": "sink-client", "certificate": "chain.pem", "key": "key.pem"}},
        },
    },
}
"""Kafka knows the mesh by certificates and tokens; the router and the sinks by their own."""
VALUES: Final = {
    "users": USERS,
    "identities": IDENTITIES,
    "least": LEAST,
    "trial": TRIAL,
    "tenants": WITH_TENANTS,
    "small": SMALL,
    "full": FULL,
    "executors": EXECUTORS,
    "kept": KEPT,
    "cert-manager": CERT_MANAGER,
}


_YAML_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def write_values(helm: RunsHelm, values: Mapping[str, Any], name: str) -> Path:
    """A values file."""
    path = helm.folder / f"{name}.values.yaml"
    path.write_text(yaml.safe_dump(dict(values)))
    return path


def render(helm: RunsHelm, values: Mapping[str, Any], namespace: str, *show_only: str) -> list[dict[str, Any]]:
    """The objects of the chart, of some templates only where they are named; each caller has objects of its own.

    Helm runs once for equal values: tests ask for some of them thirty times. Like Helm, an AssertionError for a template of
    which nothing is rendered.
    """
    documents = _rendered(helm, yaml.safe_dump(dict(values)), namespace)
    if show_only:
        wanted = {f"# Source: {RELEASE}/templates/{template}.yaml" for template in show_only}
        documents = tuple(each for each in documents if each.partition("\n")[0] in wanted)
        assert {each.partition("\n")[0] for each in documents} == wanted
    return [found for each in documents if (found := yaml.load(each, _YAML_LOADER))]


@functools.cache
def _rendered(helm: RunsHelm, values: str, namespace: str) -> tuple[str, ...]:
    """Texts of documents, each after a comment that names its template."""
    file = helm.folder / f"{namespace}.values.yaml"
    file.write_text(values)
    text = helm.helm("template", RELEASE, str(CHART), "-n", namespace, "-f", str(file))
    return tuple(part for part in re.split(r"^---\n", text, flags=re.MULTILINE) if part.strip())
