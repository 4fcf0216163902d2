"""Masks by a key: the shapes that they keep, the values that they hide, and that they can be undone with the key alone."""

import base64
import hashlib
import hmac
import re

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.tenants.masks import (
    NotDecryptable,
    decryption,
    encryption,
    format_preserving,
    format_restoring,
    hmac_hex,
)
from libs.types.tenant import PreservedFormat
from tests.marks import examples

KEY, OTHER_KEY = b"0123456789abcdef0123456789abcdef", b"another key of the same length.."
EMAIL, PHONE = PreservedFormat.EMAIL, PreservedFormat.PHONE
EMAILS = st.from_regex(r"[A-Za-z0-9.+_-]{1,20}@[a-zA-Z0-9-]{1,12}(\.[a-z0-9]{1,5})?\.[a-z]{2,6}", fullmatch=True)
PHONES = st.from_regex(r"\+?[0-9]{2}( ?\(?[0-9]{2,3}\)?)?[0-9]{3}-[0-9]{2,6}", fullmatch=True)


def shape(text: str) -> str:
    """A text with its letters and digits made equal."""
    return re.sub(r"[A-Z]", "A", re.sub(r"[a-z]", "a", re.sub(r"[0-9]", "0", text)))


def test_hmac_is_the_one_that_everybody_has() -> None:
    """RFC 4231, test case 2: other tools' digests of the same key and text can be joined with it."""
    assert hmac_hex(b"Jefe", "sha256", b"what do ya want for nothing?") == (
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


@given(st.binary(max_size=300))
def test_encryption_is_undone_by_its_key_alone(text: bytes) -> None:
    """Another key, or one changed bit, gives nothing."""
    sealed = encryption(KEY)(text)
    content = bytearray(base64.b64decode(sealed))
    content[-1] ^= 1

    assert decryption(KEY)(sealed) == text
    with pytest.raises(NotDecryptable, match="by another key"):
        decryption(OTHER_KEY)(sealed)
    with pytest.raises(NotDecryptable, match="or changed since"):
        decryption(KEY)(base64.b64encode(content).decode())


def test_an_encrypted_value_is_what_the_manual_says() -> None:
    """A program with the key and a library, and without Headwater, reads it (docs/tenants.md)."""
    content = base64.b64decode(encryption(KEY)("Müller".encode()))
    key = hmac.digest(KEY, b"headwater encrypt 1", "sha256")

    assert content[0] == 1
    assert AESGCM(key).decrypt(content[1:13], content[13:], None).decode() == "Müller"


def test_equal_values_are_equal_and_others_share_no_nonce() -> None:
    """A key column, a join and a comparison of two images need the first; GCM needs the second."""
    texts = [str(number).encode() for number in range(2_000)]
    sealed = [encryption(KEY)(text) for text in texts]

    assert sealed == [encryption(KEY)(text) for text in texts]
    assert len({base64.b64decode(each)[1:13] for each in sealed}) == len(texts)


@pytest.mark.parametrize("text", ["", "AXsJ", "no base64!", base64.b64encode(b"\x02" + bytes(40)).decode(), "ä"])
def test_what_no_mask_made_is_not_decrypted(text: str) -> None:
    """Rubbish is refused as such."""
    with pytest.raises(NotDecryptable):
        decryption(KEY)(text)


@settings(max_examples=examples(200))
@given(EMAILS)
def test_an_address_keeps_its_shape_and_comes_back(text: str) -> None:
    """Letters become letters of their case, digits digits; the last part of the domain stays."""
    masked = format_preserving(KEY, EMAIL)(text)

    assert shape(masked) == shape(text)
    assert masked.rpartition(".")[2] == text.rpartition(".")[2]
    assert format_restoring(KEY, EMAIL)(masked) == text


@settings(max_examples=examples(200))
@given(PHONES)
def test_a_number_keeps_its_shape_and_comes_back(text: str) -> None:
    """With any characters between the digits."""
    masked = format_preserving(KEY, PHONE)(text)

    assert shape(masked) == shape(text)
    assert format_restoring(KEY, PHONE)(masked) == text
    assert format_preserving(OTHER_KEY, PHONE)(text) != masked or len(re.sub(r"\D", "", text)) < 9


def test_different_values_stay_different() -> None:
    """All numbers of five digits become all numbers of five digits: a mirror merged by a masked key loses no row."""
    replace = format_preserving(KEY, PHONE)
    numbers = [f"{number:05}" for number in range(0, 100_000, 7)]

    masked = {replace(number) for number in numbers}

    assert len(masked) == len(numbers)
    assert sum(replace(number) == number for number in numbers) < 20  # a permutation has about one that stays


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (EMAIL, "no address"),
        (EMAIL, "ü@example.com"),
        (EMAIL, "a@localhost"),
        (EMAIL, ""),
        (PHONE, "1234"),
        (PHONE, "call me 12345"),
    ],
)
def test_what_is_of_no_shape_is_hidden_whole(kind: PreservedFormat, text: str) -> None:
    """Never passed through because it does not fit."""
    masked = format_preserving(KEY, kind)(text)

    assert re.fullmatch("[0-9a-f]{64}", masked)
    assert masked != hashlib.sha256(text.encode()).hexdigest()
    assert format_restoring(KEY, kind)(masked) is None


def test_a_long_text_comes_back_soon() -> None:
    """Shapes are recognised without trying one way after another."""
    for text in ("a" * 1_000_000, "1 " * 500_000, "a@" + "b." * 500_000, "+" + "1" * 1_000_000):
        for kind in PreservedFormat:
            assert len(format_preserving(KEY, kind)(text)) == 64
