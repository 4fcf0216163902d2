"""Random shares of a table, and the rows that a tenant is to get by them. Nothing of the router is used here."""

import base64
import hashlib
import hmac
import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from libs.types.table import Column
from libs.types.tenant import (
    ColumnMask,
    ColumnRename,
    EncryptMask,
    HashMask,
    HmacMask,
    KeyFrom,
    RowFilter,
    SourceSelection,
)
from libs.types.value import UNAVAILABLE_VALUE, LogicalKind
from tests.fuzz.views.conditions import TEXT, Conditions, Typed, tenants_form

KEY: Final = b"0123456789abcdef-of-a-tenant"
_KEY_FROM: Final = KeyFrom(file="pii")
_TEXTS: Final = frozenset({LogicalKind.STRING})
_WITHOUT_TEXT: Final = frozenset(
    {LogicalKind.FLOAT32, LogicalKind.FLOAT64, LogicalKind.GEOMETRY, LogicalKind.POINT, LogicalKind.FLOAT_VECTOR}
)
"""A hash of these is of the JSON text as the reader wrote it, which no other code writes alike."""


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tenant's share, and its conditions as ``conditions`` has them."""

    selection: SourceSelection
    conditions: tuple[str, ...] = ()
    has_schemas: bool = False


def draw_view(chosen: random.Random, table: str, columns: Sequence[Typed], key: Sequence[str]) -> View:
    """A view of the table ``database.table``."""
    named = re.escape(table)
    conditions = Conditions(chosen, columns)
    wheres = [conditions.draw() for _ in range(chosen.choice((0, 1, 1, 1, 1, 2)))]
    masks, excluded, renames = [], [], []
    for column in columns:
        pattern = rf"{named}\.{re.escape(column.name)}"
        roll = chosen.random()
        if roll < 0.25:
            masks.append(_mask(chosen, pattern, is_key=column.name in key, is_text=_is_cut(column)))
        elif roll < 0.35 and column.name not in key:
            excluded.append(pattern)
        if chosen.random() < 0.15:
            renames.append(ColumnRename(columns=pattern, to=f"{chosen.choice('pqr')}_{len(renames)}"))
    return View(
        selection=SourceSelection(
            name="fz",
            row_filters=tuple(RowFilter(tables=named, where=tenants_form(where)) for where in wheres),
            masks=tuple(masks),
            exclude_columns=tuple(excluded),
            rename_columns=tuple(renames),
            skip_unchanged_updates=chosen.random() < 0.2,
        ),
        conditions=tuple(wheres),
        has_schemas=chosen.random() < 0.2,
    )


def _is_cut(column: Typed) -> bool:
    return column.sort == TEXT and not column.type_sql.startswith(("enum", "set"))


def _mask(chosen: random.Random, pattern: str, *, is_key: bool, is_text: bool) -> ColumnMask:
    way = chosen.choice(
        ("hash", "hmac", "encrypt", "constant", "set_null", *(("truncate", "keep_last") if is_text else ()))
    )
    if is_key and chosen.random() < 0.9:
        way = chosen.choice(("hash", "hmac", "encrypt"))
    match way:
        case "hash":
            algorithm = chosen.choice(("sha256", "sha512"))
            return ColumnMask(columns=pattern, hash=HashMask(salt=chosen.choice(("s", "żó")), algorithm=algorithm))
        case "hmac":
            return ColumnMask(columns=pattern, hmac=HmacMask(key_from=_KEY_FROM))
        case "encrypt":
            return ColumnMask(columns=pattern, encrypt=EncryptMask(key_from=_KEY_FROM))
        case "constant":
            return ColumnMask(columns=pattern, constant=chosen.choice(("***", "", 'é"\\')))
        case "set_null":
            return ColumnMask(columns=pattern, set_null=True)
        case "truncate":
            return ColumnMask(columns=pattern, truncate_chars=chosen.choice((1, 2, 5)))
        case _:
            return ColumnMask(columns=pattern, keep_last=chosen.choice((1, 2, 5)))


# --- what is to come ------------------------------------------------------------------------------------------------------


Names = Mapping[str, Sequence[str]]
"""Of each column of a table, all names that it had as ``database.table.column``, the present one first."""


def is_delivered(selection: SourceSelection, names: Sequence[str]) -> bool:
    """An exclusion holds for a column under each of its names."""
    return not any(re.fullmatch(pattern, name) for pattern in selection.exclude_columns for name in names)


def mask_of(selection: SourceSelection, names: Sequence[str]) -> ColumnMask | None:
    """The first mask of its present name, else of one that it had."""
    return next((mask for name in names for mask in selection.masks if re.fullmatch(mask.columns, name)), None)


def seen_name(selection: SourceSelection, name: str) -> str:
    """The tenant's name of the column ``database.table.column``."""
    to = next((each.to for each in selection.rename_columns if re.fullmatch(each.columns, name)), None)
    return to if to is not None else name.split(".", 2)[2]


def seen_row(
    selection: SourceSelection, columns: Sequence[Column], names: Names, row: Mapping[str, Any]
) -> dict[str, Any]:
    """A row of the source as the tenant is to get it."""
    return {
        seen_name(selection, called[0]): value if mask is None else masked(mask, column, value)
        for column in columns
        if is_delivered(selection, called := names[column.name])
        for mask, value in [(mask_of(selection, called), row[column.name])]
    }


def masked(mask: ColumnMask, column: Column, value: Any) -> Any:
    """The value in its place."""
    if mask.constant is not None:
        return mask.constant
    if mask.set_null or value is None:
        return None
    if value == UNAVAILABLE_VALUE:
        return value
    if mask.truncate_chars is not None:
        return value[: mask.truncate_chars]
    if mask.keep_last is not None:
        kept = value[-mask.keep_last :] if len(value) > mask.keep_last else ""
        return "*" * (len(value) - len(kept)) + kept
    text = text_of(column, value).encode()
    if mask.hash is not None:
        return hashlib.new(mask.hash.algorithm, mask.hash.salt.encode() + text).hexdigest()
    if mask.hmac is not None:
        return hmac.new(KEY, text, mask.hmac.algorithm).hexdigest()
    return encrypted(text)


def text_of(column: Column, value: Any) -> str:
    """The text that hashes are of, as docs/tenants.md says."""
    if column.logical_type.kind is LogicalKind.DECIMAL:
        unscaled, scale = int.from_bytes(base64.b64decode(value), "big", signed=True), column.logical_type.scale
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        whole = digits[: len(digits) - scale]
        return ("-" if unscaled < 0 else "") + whole + ("." + digits[len(digits) - scale :] if scale else "")
    return value if isinstance(value, str) else json.dumps(value)


def encrypted(text: bytes) -> str:
    """AES-256-GCM with a nonce of the text, as docs/tenants.md says."""
    nonce = hmac.digest(hmac.digest(KEY, b"headwater nonce 1", "sha256"), text, "sha256")[:12]
    key = hmac.digest(KEY, b"headwater encrypt 1", "sha256")
    return base64.b64encode(b"\x01" + nonce + AESGCM(key).encrypt(nonce, text, None)).decode()


def is_compared(selection: SourceSelection, columns: Sequence[Column], names: Names) -> bool:
    """Whether this module knows the form of each masked column."""
    masks = [(column, mask_of(selection, names[column.name])) for column in columns]
    return not any(
        mask is not None and (mask.hash or mask.hmac or mask.encrypt) and column.logical_type.kind in _WITHOUT_TEXT
        for column, mask in masks
    )
