"""Whether routers have the keys that documents name, by the Secrets that are mounted into their pods."""

import base64
from typing import Any

from libs.config.load import Secret
from libs.types.tenant import KeyFrom
from services.tenant_operator.judge import Standing, judge, parse_document
from services.tenant_operator.mask_keys import router_keys, secret_names
from services.tenant_operator.objects import Credentials, TenantRecord
from services.tenant_operator.settings import KeysFolder, KeyVariable, MaskKeySettings
from tests.unit.tenant_operator.tenants import config_map, document, record

SETTINGS = MaskKeySettings(
    folders=(KeysFolder(tenant="acme", secret="acme-keys"), KeysFolder(tenant="globex", secret="globex-keys")),
    variables=(KeyVariable(variable="HEADWATER_KEY__ACME__CARD", secret="cards", key="acme"),),
)
KEY = b"0123456789abcdef"
MASKED = """\
tenant: acme
sources:
- name: shop
  masks:
  - {columns: '.*\\.email', encrypt: {key_from: {file: pii}}}
  - {columns: '.*\\.card', hmac: {key_from: {env: HEADWATER_KEY__ACME__CARD}}}
"""


def secret(name: str, **entries: bytes) -> dict[str, Any]:
    data = {entry: base64.b64encode(value).decode() for entry, value in entries.items()}
    return {"metadata": {"name": name, "namespace": "headwater"}, "data": data}


def mistake(*secrets: dict[str, Any], file: str | None = None, env: str | None = None) -> str | None:
    keys = router_keys(SETTINGS, "headwater", secrets)
    return keys.mistake("acme", KeyFrom(file=file, env=env))


def judged(*secrets: dict[str, Any], records: tuple[TenantRecord, ...] = ()) -> Standing:
    found = config_map("acme", MASKED)
    password = Credentials("acme/1", Secret("password"))
    keys = router_keys(SETTINGS, "headwater", secrets)
    return judge(
        [found],
        {("teams", "acme-kafka"): password},
        records,
        parse=parse_document,
        check_key=keys.mistake,
        largest_document_bytes=10_000,
    )


def test_a_key_that_is_mounted_is_no_mistake() -> None:
    assert mistake(secret("acme-keys", pii=KEY), file="pii") is None
    assert mistake(secret("cards", acme=KEY + b"\n"), env="HEADWATER_KEY__ACME__CARD") is None


def test_what_is_missing_is_named_with_the_remedy() -> None:
    missing = mistake(file="pii") or ""
    without_entry = mistake(secret("acme-keys", other=KEY), file="pii") or ""
    not_named = router_keys(SETTINGS, "headwater", ()).mistake("initech", KeyFrom(file="pii")) or ""
    unknown_variable = mistake(env="HEADWATER_KEY__ACME__OTHER") or ""

    assert "Secret headwater/acme-keys: is missing; create it, with the key as its entry 'pii'" in missing
    assert "Secret headwater/acme-keys: has no entry 'pii'; put the key there" in without_entry
    assert "router.maskKeys.initech" in not_named
    assert "router.secretEnv" in unknown_variable


def test_a_key_that_is_too_short_is_told_without_it() -> None:
    told = mistake(secret("acme-keys", pii=b"short\n"), file="pii") or ""

    assert "entry 'pii' of Secret headwater/acme-keys has 5 bytes; a key has 16 to 4096" in told
    assert "short" not in told


def test_another_tenants_key_is_out_of_reach() -> None:
    globex = secret("globex-keys", pii=KEY)

    assert "acme-keys: is missing" in (mistake(globex, file="pii") or "")
    assert "is no variable of this tenant" in (mistake(globex, env="HEADWATER_KEY__GLOBEX__PII") or "")
    assert "is no key's name" in (mistake(globex, file="../globex/pii") or "")


def test_a_document_without_its_keys_is_refused_with_each_by_its_line() -> None:
    [refused] = judged().refused

    assert refused.tenant is None
    assert [each.partition(": sources[0]")[0] for each in refused.mistakes] == [
        "tenant.yaml: line 5",
        "tenant.yaml: line 6",
    ]


def test_the_last_good_version_stays_in_force_until_the_keys_are_there() -> None:
    before = record("acme")

    without = judged(secret("cards", acme=KEY), records=(before,))
    assert [each.record.text for each in without.in_force] == [document("acme")]
    assert [each.tenant for each in without.refused] == ["acme"]

    with_keys = judged(secret("cards", acme=KEY), secret("acme-keys", pii=KEY), records=(before,))
    assert [each.record.text for each in with_keys.in_force] == [MASKED]
    assert with_keys.refused == ()


def test_a_key_that_went_refuses_no_tenant_what_it_has() -> None:
    """Its events that need the key are set aside by the router; without the tenant they would be lost to it."""
    standing = judged(secret("cards", acme=KEY), records=(record("acme", text=MASKED),))

    assert [each.record.text for each in standing.in_force] == [MASKED]
    assert "acme-keys: is missing" in standing.refused[0].mistakes[0]


def test_each_secret_is_looked_at_once() -> None:
    assert secret_names(SETTINGS) == ["acme-keys", "cards", "globex-keys"]
    assert secret_names(None) == []
