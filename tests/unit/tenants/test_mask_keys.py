"""Where masks' keys come from, and that no document reaches another's."""

from pathlib import Path

import pytest

from libs.config.load import load_settings
from libs.tenants.document import TenantFolder, read_tenant
from libs.tenants.mask_keys import KeyUnusable, MaskKeys
from libs.types.tenant import KeyFrom
from tests.unit.config.test_load import Settings

KEY = b"0123456789abcdef"


@pytest.fixture
def keys(tmp_path: Path) -> MaskKeys:
    """Two tenants with a key each, and a secret beside them."""
    for tenant in ("acme", "acme-2"):
        (tmp_path / tenant).mkdir()
        (tmp_path / tenant / "pii").write_bytes(KEY + tenant.encode() + b"\n")
    (tmp_path / "outside").write_bytes(KEY)
    environ = {"HEADWATER_KEY__ACME__PII": "k" * 16, "HEADWATER_KEY__ACME_2__PII": "2" * 16, "AWS_SECRET": "s" * 40}
    return MaskKeys(tmp_path, environ)


def test_a_key_is_the_tenants_own(keys: MaskKeys) -> None:
    """The same name is another key at another tenant; a last line break does not count."""
    assert keys.key("acme", KeyFrom(file="pii")) == KEY + b"acme"
    assert keys.key("acme-2", KeyFrom(file="pii")) == KEY + b"acme-2"
    assert keys.key("acme", KeyFrom(env="HEADWATER_KEY__ACME__PII")) == b"k" * 16
    assert keys.key("acme-2", KeyFrom(env="HEADWATER_KEY__ACME_2__PII")) == b"2" * 16


@pytest.mark.parametrize(
    "file", ["../acme-2/pii", "/etc/passwd", "..", "../outside", ".hidden", "a/b", "", "pii\n", "a" * 64, "pii\x00"]
)
def test_no_path_leaves_the_tenants_folder(keys: MaskKeys, file: str) -> None:
    """A name is a name."""
    with pytest.raises(KeyUnusable, match="is no key's name"):
        keys.key("acme", KeyFrom(file=file))


@pytest.mark.parametrize(
    "env",
    [
        "AWS_SECRET",
        "HEADWATER_KAFKA__SASL_PASSWORD",
        "HEADWATER_KEY__ACME_2__PII",
        "HEADWATER_KEY__ACME__2__PII",
        "HEADWATER_KEY__ACME__",
        "HEADWATER_KEY__acme__PII",
        "",
    ],
)
def test_no_other_variable_is_a_key(keys: MaskKeys, env: str) -> None:
    """The router's own secrets are none of a document's, nor another tenant's keys, under any names of tenants."""
    with pytest.raises(KeyUnusable, match=r"its keys are called HEADWATER_KEY__ACME__<NAME>"):
        keys.key("acme", KeyFrom(env=env))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"short\n", "has 5 bytes"),
        (b"", "has 0 bytes"),
        (b"x" * 5_000, "a key has 16 to 4096"),
        (None, "cannot be read (No such file"),
    ],
)
def test_an_unfit_key_is_told_without_it(keys: MaskKeys, tmp_path: Path, content: bytes | None, says: str) -> None:
    """Its place and the remedy."""
    file = tmp_path / "acme" / "pii"
    file.unlink()
    if content is not None:
        file.write_bytes(content)

    mistake = keys.mistake("acme", KeyFrom(file="pii"))

    assert mistake is not None
    assert says in mistake
    assert "short" not in mistake


def test_a_variable_that_is_not_set_is_told(keys: MaskKeys) -> None:
    """And a file where there is no folder."""
    assert "is not set; set it, or take file" in str(keys.mistake("acme", KeyFrom(env="HEADWATER_KEY__ACME__OTHER")))
    assert "no keys_folder is set" in str(MaskKeys(None, {}).mistake("acme", KeyFrom(file="pii")))


def test_a_missing_key_refuses_the_document_until_it_is_there(keys: MaskKeys, tmp_path: Path) -> None:
    """By line, and without a touch of the document afterwards; a key that changes has documents judged again."""
    documents = tmp_path / "documents"
    documents.mkdir()
    masks = "[{columns: a, encrypt: {key_from: {file: new}}}]"
    (documents / "acme.yaml").write_text(f"tenant: acme\nsources:\n- name: shop\n  masks: {masks}\n")
    folder = TenantFolder(documents, check_key=keys.mistake, stamp_of_others=keys.stamp)

    before = folder.refresh()
    unchanged = folder.refresh()
    (tmp_path / "acme" / "new").write_bytes(KEY)
    after = folder.refresh()

    assert before is not None
    assert (
        before.refused[0]
        .mistakes[0]
        .startswith("acme.yaml:4: sources[0].masks[0].encrypt.key_from: key file acme/new of")
    )
    assert unchanged is None
    assert after is not None
    assert [spec.tenant for spec in after.tenants] == ["acme"]


def test_a_key_that_goes_leaves_the_last_good_version(keys: MaskKeys, tmp_path: Path) -> None:
    """At a restart too: rows that cannot be masked are set aside, where a tenant that is not there would lose them."""
    documents, state = tmp_path / "documents", tmp_path / "state"
    documents.mkdir()
    masks = "[{columns: a, hmac: {key_from: {file: pii}}}]"
    (documents / "acme.yaml").write_text(f"tenant: acme\nsources: [{{name: shop, masks: {masks}}}]\n")
    TenantFolder(documents, state_folder=state, check_key=keys.mistake, stamp_of_others=keys.stamp).refresh()
    (tmp_path / "acme" / "pii").unlink()

    found = TenantFolder(documents, state_folder=state, check_key=keys.mistake, stamp_of_others=keys.stamp).refresh()

    assert found is not None
    assert ([spec.tenant for spec in found.tenants], found.refused[0].tenant) == (["acme"], "acme")


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        ("hmac: {key_from: {}}", "masks[0].hmac.key_from: give either file or env"),
        ("encrypt: {key_from: {file: a, env: b}}", "masks[0].encrypt.key_from: give either file or env"),
        ("hmac: {key_form: {file: a}}", "masks[0].hmac.key_form: unknown name; did you mean 'key_from'?"),
        ("hmac: {key_from: {file: a}, algorithm: md5}", "masks[0].hmac.algorithm: 'md5' is none of"),
        (
            "format_preserving: {kind: e-mail, key_from: {file: a}}",
            "masks[0].format_preserving.kind: unknown value 'e-mail'; did you mean 'email'?",
        ),
        ("keep_last: 0", "masks[0].keep_last: must be from 1 to 1,000,000"),
        ("set_null: true, constant: x", "masks[0].set_null: give exactly one of"),
        ("set_null: false", "masks[0].hash: give exactly one of"),
    ],
)
def test_mistakes_of_keyed_masks_are_told(mask: str, says: str) -> None:
    """In the words of the document."""
    mistakes: list[str] = []

    assert (
        read_tenant(f"tenant: acme\nsources: [{{name: s, masks: [{{columns: a, {mask}}}]}}]", mistakes=mistakes) is None
    )
    assert mistakes[0].startswith(f"line 2: sources[0].{says}")


def test_keys_in_the_environment_are_no_settings(tmp_path: Path) -> None:
    """A service that was given one starts."""
    environ = {"HEADWATER_SOURCE": "erp", "HEADWATER_KEY__ACME__PII": "k" * 16}

    assert load_settings(Settings, path=None, environ=environ, subject="demo").source == "erp"


@pytest.mark.parametrize(
    "name", ["", "1st", "a b", "a`b", 'a"b', "a.b", "_headwater_order", "_HEADWATER_x", "a" * 65, "ä", "a\n"]
)
def test_names_that_could_be_more_than_names_are_refused(name: str) -> None:
    """They stand in SQL, in JSON and in schemas."""
    mistakes: list[str] = []
    rename = f"{{columns: 'shop.orders.cust', to: {name!r}}}".replace("\\n", "\n\n")

    assert read_tenant(f"tenant: acme\nsources: [{{name: s, rename_columns: [{rename}]}}]", mistakes=mistakes) is None
    assert "rename_columns[0].to: " in mistakes[0]
