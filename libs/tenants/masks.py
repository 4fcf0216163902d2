"""Masks with a key: HMAC, encryption, and values of the same shape.

The router masks by these, ``headwater tenant decrypt`` and ``headwater check`` undo. Each is deterministic: the same value
under the same key is the same text, in the row before a change and the one after it, in every table, after every replay. So
masked columns can be keys, be joined, and be compared for a change; and that two values are equal shows.
"""

import base64
import binascii
import hmac
import math
import re
from collections.abc import Callable
from typing import Final

from libs.types.tenant import PreservedFormat

_VERSION: Final = b"\x01"
_NONCE_BYTES: Final = 12  # NIST SP 800-38D, 8.2


def hmac_hex(key: bytes, algorithm: str, text: bytes) -> str:
    """HMAC (RFC 2104) as hex, as any tool makes it of the same key and text."""
    return hmac.digest(key, text, algorithm).hex()


# --- encryption ---------------------------------------------------------------------------------------------------------


class NotDecryptable(ValueError):
    """A text that this key did not encrypt, or that was changed since."""


def encryption(key: bytes) -> Callable[[bytes], str]:
    """Encrypts texts: base64 of version, nonce and AES-256-GCM ciphertext with its tag.

    The nonce is the HMAC of the text under a key of its own, cut to 96 bits (as SIV derives its: RFC 5297, RFC 8452). GCM
    breaks where two texts share a nonce; two different ones do so after 2**32 of them with a chance of 1 in 2**33, and the
    same text twice gives the same bytes, which reveals only that it is the same.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 10 MB, for users of encryption

    cipher, nonce_key = AESGCM(_derived(key, "encrypt")), _derived(key, "nonce")

    def encrypt(text: bytes) -> str:
        nonce = hmac.digest(nonce_key, text, "sha256")[:_NONCE_BYTES]
        return base64.b64encode(_VERSION + nonce + cipher.encrypt(nonce, text, None)).decode()

    return encrypt


def decryption(key: bytes) -> Callable[[str], bytes]:
    """Undoes ``encryption`` by the same key; the returned function raises NotDecryptable."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(_derived(key, "encrypt"))

    def decrypt(text: str) -> bytes:
        try:
            content = base64.b64decode(text, validate=True)
            if content[:1] != _VERSION:
                raise NotDecryptable("is no value that an encrypt mask made")
            nonce, sealed = content[1 : 1 + _NONCE_BYTES], content[1 + _NONCE_BYTES :]
            return cipher.decrypt(nonce, sealed, None)
        except InvalidTag as error:
            raise NotDecryptable("was encrypted by another key, or changed since") from error
        except (binascii.Error, ValueError) as error:
            raise NotDecryptable("is no value that an encrypt mask made") from error

    return decrypt


def _derived(key: bytes, use: str) -> bytes:
    """32 bytes for one use: a key of any length, and no two uses of the same bytes."""
    return hmac.digest(key, f"headwater {use} 1".encode(), "sha256")


# --- the same shape -----------------------------------------------------------------------------------------------------

_EMAIL: Final = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}(?P<kept>[A-Za-z]{2,63})"
)
_PHONE: Final = re.compile(r"\+?(?:[ ().\-/]{0,3}[0-9]){5,20}")
_ALPHABETS: Final = ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ALPHABET_OF: Final = {letter: alphabet for alphabet in _ALPHABETS for letter in alphabet}
_ROUNDS: Final = 10  # FF1's number (NIST SP 800-38G)


def format_preserving(key: bytes, kind: PreservedFormat) -> Callable[[str], str]:
    """Replaces texts by others of the same shape: each digit by a digit, each letter by a letter of its case.

    Over all texts of one shape it is a permutation (a Feistel network of ten rounds over the letters as one number, as in FF1
    of NIST SP 800-38G, with HMAC-SHA256 as its round function; not FF1 itself), so different values stay different. A short
    one has few others to become: a phone number of five digits is one of 100,000. A value of another shape becomes its HMAC.
    """
    mixing, hashing = _derived(key, "format"), _derived(key, "format other")

    def replace(text: str) -> str:
        if not is_of_format(kind, text):
            return hmac_hex(hashing, "sha256", text.encode())
        return _mixed(mixing, kind, text, _forward)

    return replace


def format_restoring(key: bytes, kind: PreservedFormat) -> Callable[[str], str | None]:
    """Undoes ``format_preserving``; None where the value was not of the shape, and is lost."""
    mixing = _derived(key, "format")
    return lambda text: _mixed(mixing, kind, text, _backward) if is_of_format(kind, text) else None


def is_of_format(kind: PreservedFormat, text: str) -> bool:
    """Whether a value has the shape that the mask keeps."""
    return (_EMAIL if kind is PreservedFormat.EMAIL else _PHONE).fullmatch(text) is not None


_Step = Callable[[bytes, bytes, int, int, int], tuple[int, int]]


def _mixed(key: bytes, kind: PreservedFormat, text: str, step: _Step) -> str:
    """Letters and digits as one number in mixed radix, permuted below the product of the radices, and back."""
    end = len(text)
    if kind is PreservedFormat.EMAIL:
        end = text.rindex(".")
    places = [index for index in range(end) if text[index] in _ALPHABET_OF]
    alphabets = [_ALPHABET_OF[text[index]] for index in places]
    size, number = 1, 0
    for index, alphabet in zip(places, alphabets, strict=True):
        size *= len(alphabet)
        number = number * len(alphabet) + alphabet.index(text[index])
    # The digits are mixed alike wherever the same shape is met; another shape is another permutation.
    shape = "".join(_SHAPE_OF.get(letter, letter) for letter in text[:end]) + text[end:]
    number = _permuted(key, f"{kind.value}:{shape}".encode(), number, size, step)
    letters = list(text)
    for index, alphabet in zip(reversed(places), reversed(alphabets), strict=True):
        number, digit = divmod(number, len(alphabet))
        letters[index] = alphabet[digit]
    return "".join(letters)


_SHAPE_OF: Final = {letter: "0aA"[number] for number, alphabet in enumerate(_ALPHABETS) for letter in alphabet}


def _permuted(key: bytes, tweak: bytes, number: int, size: int, step: _Step) -> int:
    """A permutation of the numbers below ``size``: of those below the next square, gone through until one is below (cycle
    walking; Black and Rogaway, "Ciphers with Arbitrary Finite Domains")."""
    half = math.isqrt(size - 1) + 1
    while True:
        left, right = divmod(number, half)
        left, right = step(key, tweak, left, right, half)
        number = left * half + right
        if number < size:
            return number


def _forward(key: bytes, tweak: bytes, left: int, right: int, half: int) -> tuple[int, int]:
    for number in range(_ROUNDS):
        left, right = right, (left + _round(key, tweak, number, right, half)) % half
    return left, right


def _backward(key: bytes, tweak: bytes, left: int, right: int, half: int) -> tuple[int, int]:
    for number in reversed(range(_ROUNDS)):
        left, right = (right - _round(key, tweak, number, left, half)) % half, left
    return left, right


def _round(key: bytes, tweak: bytes, number: int, value: int, half: int) -> int:
    """Below ``half``, evenly: from 64 bits more than it has."""
    length = (half.bit_length() + 71) // 8
    content = value.to_bytes(length, "big") + tweak
    blocks = [hmac.digest(key, bytes((number, block)) + content, "sha256") for block in range((length + 31) // 32)]
    return int.from_bytes(b"".join(blocks)[:length], "big") % half
