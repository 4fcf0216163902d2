"""A tenant's view of a row: masks, excluded columns, and updates that cross a filter's border."""

import base64
import hashlib
import hmac
import json
from typing import Any

import msgspec
import pytest

from libs.errors import InvalidEvent
from libs.events.batch import (
    OP_CREATE,
    OP_DELETE,
    OP_KEY_CHANGE_CREATE,
    OP_KEY_CHANGE_DELETE,
    OP_READ,
    OP_TRUNCATE,
    OP_UPDATE,
)
from libs.tenants.masks import decryption
from libs.types.table import Column, Index, TableId, TableSchema
from libs.types.tenant import (
    ColumnMask,
    ColumnRename,
    EncryptMask,
    FormatMask,
    HashMask,
    HmacMask,
    KeyFrom,
    NameAdjustment,
    Operation,
    PreservedFormat,
    RowFilter,
    SourceSelection,
)
from libs.types.value import UNAVAILABLE_VALUE, LogicalKind, LogicalType
from services.router.routes.project import (
    InvalidProjection,
    ProjectedRow,
    compile_projection,
    mask_text,
    project_key,
    project_row,
)


def column(name: str, kind: LogicalKind = LogicalKind.STRING, *, scale: int = 0) -> Column:
    """A column of a kind."""
    return Column(name=name, source_type=kind.value, logical_type=LogicalType(kind=kind, scale=scale), comment="c")


TABLE = TableSchema(
    table_id=TableId(database="shop", table="customers"),
    columns=(
        column("id", LogicalKind.INT64),
        column("email"),
        column("total", LogicalKind.DECIMAL, scale=2),
        column("ratio", LogicalKind.FLOAT32),
        column("secret"),
    ),
    key=("id", "email"),
    version=3,
    indexes=(Index(name="PRIMARY", columns=("id", "email"), is_unique=True),),
)
EMAIL_HASH = ColumnMask(columns=r"shop\..*\.email", hash=HashMask(salt="pepper"))
FILTERED = SourceSelection(name="s", row_filters=(RowFilter(tables=r"shop\.customers", where="id > 10"),))


def sha256(text: str) -> str:
    """The hash mask's text."""
    return hashlib.sha256(f"pepper{text}".encode()).hexdigest()


def event(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> bytes:
    """A payload, with members that must survive."""
    return json.dumps({"before": before, "after": after, "source": {"pos": 1}, "op": op, "ts_ms": 5}).encode()


def project(
    selection: SourceSelection, op: str, value: bytes, key: bytes = b'{"id":1,"email":"a"}'
) -> ProjectedRow | None:
    """A row through a selection."""
    return project_row(compile_projection(TABLE, selection), ord(op), key, value)


def test_selection_without_projection_is_transparent() -> None:
    """Includes and filters of other tables leave events as they are."""
    others = SourceSelection(name="s", row_filters=(RowFilter(tables="other", where="x"),), exclude_columns=("a.b.c",))

    assert compile_projection(TABLE, others).is_transparent
    assert not compile_projection(TABLE, FILTERED).is_transparent


def test_masks_and_exclusions_apply_to_both_images_and_the_key() -> None:
    """Masked values are replaced, excluded columns are gone, everything else keeps its bytes."""
    selection = SourceSelection(name="s", masks=(EMAIL_HASH,), exclude_columns=(r"shop\.customers\.secret",))
    images = '{"id":1,"email":"a@b","total":"BOI=","ratio":%s,"secret":"x"}'
    value = f'{{"before":{images % "3.4028235e+38"},"after":{images % "1.10"},"source":{{"pos":1}},"op":"u"}}'.encode()

    row = project(selection, "u", value, b'{"id":1,"email":"a@b"}')

    masked = '{"id":1,"email":"%s","total":"BOI=","ratio":%s}'
    hashed = sha256("a@b")
    assert row is not None
    assert row.key == f'{{"id":1,"email":"{hashed}"}}'.encode()
    assert row.value.decode() == (
        f'{{"before":{masked % (hashed, "3.4028235e+38")},"after":{masked % (hashed, "1.10")},"source":{{"pos":1}},"op":"u"}}'
    )


PRICES = TableSchema(
    table_id=TableId(database="shop", table="prices"),
    columns=(column("item-no", LogicalKind.INT64), column("unit price"), column("kind"), column("secret-no")),
    key=("item-no",),
)


def test_adjusted_names_stand_in_key_images_and_schema() -> None:
    """A filter and a mask go by the source's names; the tenant's rows have its own, values and order as they were."""
    selection = SourceSelection(
        name="s",
        row_filters=(RowFilter(tables=".*", where="`item-no` > 10"),),
        masks=(ColumnMask(columns=r".*\.unit price", constant="***"),),
        exclude_columns=(r".*\.secret-no",),
    )
    projection = compile_projection(PRICES, selection, NameAdjustment.AVRO)
    image = {"item-no": 11, "unit price": "1.10", "kind": "k", "secret-no": "x"}
    left = {**image, "item-no": 9}

    row = project_row(projection, ord("u"), b'{"item-no":11}', event("u", image, {**image, "kind": "l"}))
    gone = project_row(projection, ord("c"), b'{"item-no":9}', event("c", None, left))

    assert row is not None
    assert row.key == b'{"item_no":11}'
    seen = json.loads(row.value)
    assert list(seen["before"].items()) == [("item_no", 11), ("unit_price", "***"), ("kind", "k")]
    assert seen["after"] == {"item_no": 11, "unit_price": "***", "kind": "l"}
    assert gone is None
    assert [item.name for item in projection.schema.columns] == ["item_no", "unit_price", "kind"]
    assert projection.schema.key == ("item_no",)


def test_names_that_fit_leave_events_as_they_are() -> None:
    """A table whose names Avro takes costs nothing."""
    assert compile_projection(TABLE, SourceSelection(name="s"), NameAdjustment.AVRO).is_transparent


def test_two_columns_of_one_name_are_refused() -> None:
    """One would cover the other; to a warehouse upper and lower case are one name too."""
    both = msgspec.structs.replace(PRICES, columns=(*PRICES.columns, column("Unit-Price"), column("KIND")))

    with pytest.raises(
        InvalidProjection, match="'unit price' and 'Unit-Price' both become 'Unit_Price'; exclude one"
    ) as said:
        compile_projection(both, SourceSelection(name="s"), NameAdjustment.AVRO)

    assert "KIND" in str(said.value)
    excluded = SourceSelection(name="s", exclude_columns=(".*Unit-Price", ".*KIND"))
    assert compile_projection(both, excluded, NameAdjustment.AVRO).field_names["unit price"] == "unit_price"


def test_projected_schema_is_what_arrives() -> None:
    """Excluded columns are gone, masked ones are texts without a default, and indexes are not the tenant's business."""
    selection = SourceSelection(
        name="s", masks=(EMAIL_HASH, ColumnMask(columns=".*total", constant="***")), exclude_columns=(".*secret",)
    )

    schema = compile_projection(TABLE, selection).schema

    assert [(item.name, item.source_type, item.logical_type.kind) for item in schema.columns] == [
        ("id", "int64", LogicalKind.INT64),
        ("email", "varchar(64)", LogicalKind.STRING),
        ("total", "varchar(3)", LogicalKind.STRING),
        ("ratio", "float32", LogicalKind.FLOAT32),
    ]
    assert (schema.key, schema.version, schema.indexes) == (("id", "email"), 3, ())


@pytest.mark.parametrize(
    ("op", "before", "after", "expected"),
    [
        ("c", None, 11, ("c", None, 11)),
        ("c", None, 10, None),
        ("r", None, 11, ("r", None, 11)),
        ("r", None, 10, None),
        ("d", 11, None, ("d", 11, None)),
        ("d", 10, None, None),
        ("u", 11, 12, ("u", 11, 12)),
        ("u", 11, 10, ("d", 11, None)),
        ("u", 10, 11, ("c", None, 11)),
        ("u", 9, 10, None),
        ("D", 11, None, ("D", 11, None)),
        ("C", None, 10, None),
    ],
)
def test_filter_is_decided_on_both_images(
    op: str, before: int | None, after: int | None, expected: tuple[str, int | None, int | None] | None
) -> None:
    """A row that leaves the filter is deleted, one that enters it is created, one outside it is not seen."""
    images = [None if number is None else {"id": number, "email": "e"} for number in (before, after)]

    row = project(FILTERED, op, event(op.lower(), *images))

    if expected is None:
        assert row is None
        return
    assert row is not None
    payload = json.loads(row.value)
    seen = tuple(image and image["id"] for image in (payload["before"], payload["after"]))
    assert (chr(row.op), *seen) == expected
    assert payload["op"] == expected[0].lower()
    assert payload["source"] == {"pos": 1}


def test_filtered_event_that_does_not_change_keeps_its_bytes() -> None:
    """A filter without masks forwards the rows that it lets through untouched."""
    value = b'{ "before":null , "after":{"id":11},"op":"c" }'

    row = project(FILTERED, "c", value)

    assert row is not None
    assert row.value is value


def test_several_filters_must_all_hold() -> None:
    """Two filters on one table are one AND."""
    more = (*FILTERED.row_filters, RowFilter(tables=".*", where="id < 20"))
    selection = SourceSelection(name="s", row_filters=more)

    assert project(selection, "c", event("c", None, {"id": 15})) is not None
    assert project(selection, "c", event("c", None, {"id": 25})) is None


def test_truncate_passes_every_filter() -> None:
    """It concerns all rows, also the tenant's."""
    value = event("t", None, None)

    assert project(FILTERED, "t", value, b"") == ProjectedRow(ord("t"), b"", value)


def test_constant_masks_null_too_and_hash_leaves_it() -> None:
    """A constant hides NULL too; NULL under a hash stays NULL, so that counts and joins keep their meaning."""
    constant = SourceSelection(name="s", masks=(ColumnMask(columns=".*secret", constant='"x"'),))
    hashed = SourceSelection(name="s", masks=(ColumnMask(columns=".*secret", hash=HashMask(salt="pepper")),))
    value = event("c", None, {"id": 1, "secret": None})

    masked = [project(selection, "c", value) for selection in (constant, hashed)]

    assert [json.loads(row.value)["after"]["secret"] for row in masked if row] == ['"x"', None]


@pytest.mark.parametrize(
    ("value", "logical_type", "text"),
    [
        (b'"za\\u017c\xc3\xb3"', LogicalType(kind=LogicalKind.STRING), "zażó".encode()),
        (b"-42", LogicalType(kind=LogicalKind.INT64), b"-42"),
        (b"true", LogicalType(kind=LogicalKind.BOOLEAN), b"true"),
        (b"null", LogicalType(kind=LogicalKind.STRING), None),
        (
            json.dumps(base64.b64encode(b"\x04\xe2").decode()).encode(),
            LogicalType(kind=LogicalKind.DECIMAL, scale=2),
            b"12.50",
        ),
        (f'"{UNAVAILABLE_VALUE}"'.encode(), LogicalType(kind=LogicalKind.STRING), None),
    ],
)
def test_text_that_a_hash_digests(value: bytes, logical_type: LogicalType, text: bytes | None) -> None:
    """Equal values have equal texts, with any JSON escapes."""
    assert mask_text(value, logical_type) == text


def test_sha512_is_a_way_too() -> None:
    """The algorithm is the document's choice."""
    selection = SourceSelection(
        name="s", masks=(ColumnMask(columns=".*secret", hash=HashMask(salt="", algorithm="sha512")),)
    )

    row = project(selection, "c", event("c", None, {"secret": "x"}))

    assert row is not None
    assert json.loads(row.value)["after"]["secret"] == hashlib.sha512(b"x").hexdigest()


def test_first_mask_that_names_a_column_counts() -> None:
    """Documents go from the particular to the general."""
    selection = SourceSelection(
        name="s",
        masks=(ColumnMask(columns=".*secret", constant="first"), ColumnMask(columns=".*", hash=HashMask(salt="s"))),
    )

    row = project(selection, "c", event("c", None, {"secret": "x"}))

    assert row is not None
    assert json.loads(row.value)["after"]["secret"] == "first"


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        (SourceSelection(name="s", exclude_columns=(".*email",)), "'email' is part of the key"),
        (SourceSelection(name="s", include_columns=(".*secret",)), "'email' is part of the key; include it"),
        (SourceSelection(name="s", masks=(ColumnMask(columns=".*email", constant="x"),)), "would make all rows one"),
        (SourceSelection(name="s", row_filters=(RowFilter(tables=".*", where="emial = 'x'"),)), "did you mean 'email'"),
    ],
)
def test_selection_that_does_not_fit_is_refused(selection: SourceSelection, reason: str) -> None:
    """Losing a key would merge rows at the sink; a filter over an unknown column decides nothing."""
    with pytest.raises(InvalidProjection, match=reason):
        compile_projection(TABLE, selection)


@pytest.mark.parametrize("value", [b"not json", b"[]", b'{"after":{"id":1}}', b'{"before":null,"after":null,"op":"c"}'])
def test_event_that_cannot_be_judged_is_invalid(value: bytes) -> None:
    """It is set aside, never forwarded unfiltered."""
    with pytest.raises(InvalidEvent):
        project(FILTERED, "c", value)


def test_key_without_masked_columns_keeps_its_bytes() -> None:
    """Only masked key columns touch a key."""
    key = b'{ "id": 1, "email": "a" }'
    hashed = SourceSelection(name="s", masks=(ColumnMask(columns=".*secret", hash=HashMask(salt="s")),))

    assert project_key(compile_projection(TABLE, hashed), key) is key
    assert project_key(compile_projection(TABLE, SourceSelection(name="s", masks=(EMAIL_HASH,))), b"") == b""


# --- operations and updates that are left out, and texts that are cut short -------------------------------------------


@pytest.mark.parametrize(
    ("skipped", "passing"),
    [
        ((), "cudtrDC"),
        ((Operation.CREATE,), "udtrD"),
        ((Operation.UPDATE,), "cdtrDC"),
        ((Operation.DELETE,), "cutrC"),
        ((Operation.TRUNCATE, Operation.UPDATE), "cdrDC"),
    ],
)
def test_operations_that_a_tenant_does_not_want_are_left_out(skipped: tuple[Operation, ...], passing: str) -> None:
    """A changed key is a delete and a create (D and C here); copied rows always come."""
    ops = {"c": OP_CREATE, "u": OP_UPDATE, "d": OP_DELETE, "t": OP_TRUNCATE, "r": OP_READ}
    ops |= {"D": OP_KEY_CHANGE_DELETE, "C": OP_KEY_CHANGE_CREATE}
    projection = compile_projection(TABLE, SourceSelection(name="s", skip_operations=skipped))
    row = {"id": 1, "email": "a"}

    seen = [
        letter for letter, op in ops.items() if project_row(projection, op, b"{}", event("?", row, row)) is not None
    ]

    assert sorted(seen) == sorted(passing)
    assert projection.lets_pass(bytes(ops[letter] for letter in passing))
    assert projection.lets_pass(bytes(ops.values())) == (not skipped)


def test_an_update_that_leaves_the_filter_is_a_delete_and_may_be_unwanted() -> None:
    selection = msgspec.structs.replace(FILTERED, skip_operations=(Operation.DELETE,))
    images = ({"id": 11, "email": "a"}, {"id": 10, "email": "a"})

    assert project(selection, "u", event("u", *images)) is None
    assert project(selection, "u", event("u", *reversed(images))) is not None


def test_updates_that_change_nothing_of_the_tenants_are_left_out() -> None:
    """An excluded column is none of its columns, nor is the part of a text that is cut off."""
    selection = SourceSelection(
        name="s",
        exclude_columns=(".*secret",),
        masks=(ColumnMask(columns=".*note", truncate_chars=2),),
        skip_unchanged_updates=True,
    )
    table = msgspec.structs.replace(TABLE, columns=(*TABLE.columns, column("note")))
    projection = compile_projection(table, selection)
    row = {"id": 1, "email": "a", "secret": "x", "note": "abc"}

    def seen(**changes: Any) -> ProjectedRow | None:
        return project_row(projection, OP_UPDATE, b"{}", event("u", row, row | changes))

    assert seen() is None
    assert seen(secret="y", note="abd") is None
    assert seen(note="acc") is not None
    assert project_row(projection, OP_CREATE, b"{}", event("c", None, row)) is not None
    with pytest.raises(InvalidEvent, match="no row before"):
        project_row(projection, OP_UPDATE, b"{}", event("u", None, row))


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("漢字かな", "漢字"),
        ("ab", "ab"),
        ("a", "a"),
        ('"\\x', '"\\'),
        (None, None),
        (UNAVAILABLE_VALUE, UNAVAILABLE_VALUE),
    ],
)
def test_a_text_is_cut_to_its_first_characters(text: str | None, cut: str | None) -> None:
    """Characters, not bytes; NULL stays, and so does the placeholder of a value that the log lacks."""
    selection = SourceSelection(name="s", masks=(ColumnMask(columns=".*secret", truncate_chars=2),))
    row = {"id": 1, "email": "a", "total": "BOI=", "ratio": 1.5, "secret": text}

    projected = project(selection, "c", event("c", None, row))

    assert projected is not None
    assert json.loads(projected.value)["after"] == row | {"secret": cut}
    assert compile_projection(TABLE, selection).schema.column("secret").source_type == "varchar(2)"


@pytest.mark.parametrize(("name", "told"), [("email", "several rows one"), ("ratio", "only a text")])
def test_a_key_and_a_number_cannot_be_cut(name: str, told: str) -> None:
    selection = SourceSelection(name="s", masks=(ColumnMask(columns=f".*{name}", truncate_chars=2),))

    with pytest.raises(InvalidProjection, match=told):
        compile_projection(TABLE, selection)


KEYED = KeyFrom(file="pii")
KEY = b"0123456789abcdef"


def after_mask(mask: dict[str, Any], text: str | None) -> Any:
    """The value of ``secret`` under a mask."""
    selection = SourceSelection(name="s", masks=(ColumnMask(columns=".*secret", **mask),))
    row = {"id": 1, "email": "a", "total": "BOI=", "ratio": 1.5, "secret": text}
    projection = compile_projection(TABLE, selection, key_of=lambda _key_from: KEY)

    projected = project_row(projection, OP_CREATE, b'{"id":1,"email":"a"}', event("c", None, row))

    assert projected is not None
    after = json.loads(projected.value)["after"]
    assert {name: value for name, value in after.items() if name != "secret"} == {
        name: value for name, value in row.items() if name != "secret"
    }
    return after["secret"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("4111 1111 1111 1234", "***************1234"),
        ("1234", "****"),
        ("12", "**"),
        ("", ""),
        ("äöüß€", "*öüß€"),
        (None, None),
    ],
)
def test_the_last_characters_are_kept_and_never_all(text: str | None, kept: str | None) -> None:
    """A value as short as the part that may be kept would show whole."""
    assert after_mask({"keep_last": 4}, text) == kept


@pytest.mark.parametrize("text", ["x", "", None, UNAVAILABLE_VALUE])
def test_a_nulled_column_is_null_whatever_it_was(text: str | None) -> None:
    """And may be, in the schema that its sinks get."""
    assert after_mask({"set_null": True}, text) is None


@pytest.mark.parametrize(
    "mask",
    [
        {"hmac": HmacMask(key_from=KEYED)},
        {"encrypt": EncryptMask(key_from=KEYED)},
        {"format_preserving": FormatMask(kind=PreservedFormat.EMAIL, key_from=KEYED)},
        {"keep_last": 1},
    ],
    ids=lambda mask: next(iter(mask)),
)
def test_null_and_what_the_log_lacks_stay_under_a_mask(mask: dict[str, Any]) -> None:
    """There is nothing to mask."""
    assert after_mask(mask, None) is None
    assert after_mask(mask, UNAVAILABLE_VALUE) == UNAVAILABLE_VALUE


def test_keyed_masks_are_of_the_tenants_key() -> None:
    """HMAC as any tool makes it; encryption as the key undoes it."""
    assert after_mask({"hmac": HmacMask(key_from=KEYED)}, "ä") == hmac.new(KEY, "ä".encode(), "sha256").hexdigest()
    assert decryption(KEY)(after_mask({"encrypt": EncryptMask(key_from=KEYED)}, "ä")).decode() == "ä"


def test_a_key_column_may_be_encrypted() -> None:
    """Key and row hold the same text, in the row before a change and the one after it."""
    selection = SourceSelection(name="s", masks=(ColumnMask(columns=".*email", encrypt=EncryptMask(key_from=KEYED)),))
    projection = compile_projection(TABLE, selection, key_of=lambda _key_from: KEY)
    before = {"id": 1, "email": "a", "total": "BOI=", "ratio": 1.5, "secret": "x"}

    row = project_row(projection, OP_UPDATE, b'{"id":1,"email":"a"}', event("u", before, before | {"secret": "y"}))

    assert row is not None
    value = json.loads(row.value)
    assert json.loads(row.key)["email"] == value["before"]["email"] == value["after"]["email"] != "a"


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        (ColumnMask(columns=".*email", set_null=True), "would make all rows one"),
        (ColumnMask(columns=".*email", keep_last=2), "several rows one"),
        (ColumnMask(columns=".*ratio", keep_last=2), "only a text can be cut short"),
        (
            ColumnMask(columns=".*ratio", format_preserving=FormatMask(kind=PreservedFormat.PHONE, key_from=KEYED)),
            "only a text has a shape",
        ),
        (
            ColumnMask(columns=".*secret", encrypt=EncryptMask(key_from=KEYED)),
            "masks: 'secret': there are no keys here",
        ),
    ],
)
def test_a_mask_that_cannot_be_applied_is_refused(mask: ColumnMask, reason: str) -> None:
    """Its events are set aside: never delivered unmasked."""
    with pytest.raises(InvalidProjection, match=reason):
        compile_projection(TABLE, SourceSelection(name="s", masks=(mask,)))


def test_renamed_columns_are_the_tenants_in_key_row_and_schema() -> None:
    """The document goes on naming them as the source does: filters, masks, exclusions."""
    selection = SourceSelection(
        name="s",
        rename_columns=(ColumnRename(columns=".*email", to="mail"), ColumnRename(columns=".*email", to="never")),
        masks=(EMAIL_HASH,),
        exclude_columns=(".*total", ".*ratio", ".*secret"),
        row_filters=(RowFilter(tables=".*", where="email = 'a'"),),
    )
    row = {"id": 1, "email": "a", "total": "BOI=", "ratio": 1.5, "secret": "x"}

    projected = project(selection, "c", event("c", None, row))

    assert projected is not None
    assert json.loads(projected.key) == {"id": 1, "mail": sha256("a")}
    assert json.loads(projected.value)["after"] == {"id": 1, "mail": sha256("a")}
    schema = compile_projection(TABLE, selection).schema
    assert ([column.name for column in schema.columns], schema.key) == (["id", "mail"], ("id", "mail"))


def test_a_rename_to_a_name_that_is_taken_is_refused() -> None:
    """A rename onto another column, or of two onto one; to a warehouse upper and lower case are one name."""
    for rename in (ColumnRename(columns=".*email", to="Secret"), ColumnRename(columns=".*(email|secret)", to="x")):
        with pytest.raises(InvalidProjection, match="both become"):
            compile_projection(TABLE, SourceSelection(name="s", rename_columns=(rename,)))
