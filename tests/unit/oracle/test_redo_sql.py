"""SQL_REDO against the outputs of Debezium's own parsers (``tests/golden/cases/a_oracle_logminer.json`` says how)."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.oracle.large_values import (
    Fragment,
    UnknownContent,
    assembled,
    read_lob_locator,
    read_lob_write,
    read_long_text,
    read_xml_locator,
    read_xml_write,
)
from libs.oracle.redo_sql import RowOperation, read_statement
from libs.oracle.redo_values import (
    NOT_LOGGED,
    Expression,
    Quoted,
    RedoValue,
    UnreadableRedo,
    bytes_of,
    read_value,
    text_of,
)

TABLE = json.loads(Path("tests/golden/cases/a_oracle_logminer.json").read_text(encoding="utf-8"))
CASES: list[dict[str, Any]] = [case for case in TABLE["cases"] if case["kind"] != "value"]
UNAVAILABLE = {"$unavailable": True}

OURS: Mapping[str, Any] = {
    "delete-fn-json-comment-blob": {"op": "DELETE", "old": ["1", "/* JSON */ EMPTY_BLOB()"], "new": []},
    "update-where-fn-json-comment-hextoraw": {
        "op": "UPDATE",
        "old": ["1", "/* JSON */ HEXTORAW('ff4a5a01')"],
        "new": ["1", None],
    },
    "delete-fn-json-comment-hextoraw": {"op": "DELETE", "old": ["1", "/* JSON */ HEXTORAW('ff4a5a01')"], "new": []},
    "lob-locator-escaped-quotes": ["SHOP", "FILES", "DOC", False, ["1", 'q"\'" z', None]],
    "unistr-9": "back\\slash",
    "merge-empty-clob-none": "",
    "merge-empty-blob-none": b"",
}
"""The right answers where the reference errs: it cuts ``/* JSON */`` in a WHERE, keeps doubled quotes in a locator's WHERE,
fails at ``\\\\``, and leaves the name of an empty LOB in its place."""


def printed(value: RedoValue) -> str | None:
    return value[0] if isinstance(value, Quoted | Expression) else None


def of_row(case: dict[str, Any]) -> object:
    statement = read_statement(case["sql"])
    is_lob = {column["name"]: True for column in case["columns"] if isinstance(column, dict)}
    names = [column if isinstance(column, str) else column["name"] for column in case["columns"]]
    logged = [f"COL {nth}" for nth in range(1, len(names) + 1)] if case["kind"] == "dml_resolver" else names
    absent = [UNAVAILABLE if name in is_lob else None for name in names]
    before: list[object] = []
    if statement.operation is not RowOperation.INSERT:
        before = [
            printed(statement.before[name]) if name in statement.before else lacking
            for name, lacking in zip(logged, absent, strict=True)
        ]
    after: list[object] = []
    if statement.operation is not RowOperation.DELETE:
        kept = before or [None] * len(names)
        after = [
            printed(statement.after[name]) if name in statement.after else lacking
            for name, lacking in zip(logged, kept, strict=True)
        ]
    return {"op": statement.operation.name, "old": before, "new": after}


def of_locator(case: dict[str, Any]) -> object:
    located = read_lob_locator(case["sql"])
    row = [printed(located.row.get(name)) for name in case["columns"]]
    return [located.table.owner, located.table.name, located.column, located.is_binary, row]


def of_write(case: dict[str, Any]) -> object:
    offset, data = read_lob_write(case["sql"])
    return {
        "offset": offset,
        "length": len(data),
        "data": data if isinstance(data, str) else f"HEXTORAW('{data.hex()}')",
    }


def of_long_text(case: dict[str, Any]) -> object:
    return read_long_text(case["sql"]).column


def of_fragments(case: dict[str, Any]) -> object:
    first: RedoValue = None
    if case["initial"] is not None:
        first = read_value(case["initial"], 0)[0] if "(" in case["initial"] else Quoted(case["initial"])
    return assembled(first, [Fragment(each["offset"], content(each["data"])) for each in case["fragments"]])


def content(data: str) -> str | bytes:
    return bytes_of(Expression(data)) if data.startswith("HEXTORAW") else data


def of_xml(case: dict[str, Any]) -> object:
    located = read_xml_locator(case["sql"])
    return {"column": located.column, "owner": located.table.owner, "table": located.table.name}


def of_xml_write(case: dict[str, Any]) -> object:
    data = read_xml_write(case["sql"])
    return data if isinstance(data, str) else data.decode()


KINDS: dict[str, tuple[Callable[[dict[str, Any]], object], Callable[[Any], object]]] = {
    "dml": (of_row, lambda expected: expected),
    "dml_relaxed": (of_row, lambda expected: expected),
    "dml_resolver": (of_row, lambda expected: expected),
    "lob_select": (
        of_locator,
        lambda expected: [
            expected["owner"],
            expected["table"],
            expected["column"],
            expected["binary"],
            expected["old"],
        ],
    ),
    "lob_write": (of_write, lambda expected: expected),
    "ext_string": (of_long_text, lambda expected: expected["column"]),
    "unistr": (lambda case: text_of(Expression(case["sql"])), lambda expected: expected["value"]),
    "lob_merge": (
        of_fragments,
        lambda expected: (
            bytes.fromhex(expected["merged"]["$hex"]) if isinstance(expected["merged"], dict) else expected["merged"]
        ),
    ),
    "xml_begin": (of_xml, lambda expected: expected),
    "xml_write": (of_xml_write, lambda expected: expected["data"]),
}


@pytest.mark.parametrize("kind", sorted({case["kind"] for case in CASES}))
def test_a_text_is_read_as_debezium_reads_it_or_better(kind: str) -> None:
    read, expected_of = KINDS[kind]
    for case in CASES:
        if case["kind"] != kind:
            continue
        if case["id"] in OURS:
            assert read(case) == OURS[case["id"]], case["id"]
        elif case.get("expect_error"):
            with pytest.raises(UnreadableRedo):
                read(case)
        else:
            assert read(case) == expected_of(case["expect"]), case["id"]


@pytest.mark.parametrize(
    ("sql", "because"),
    [
        (
            """insert into "S"."T"("ID","NM") values ('1','uncl""",
            "expected the quote that ends the text at character 43",
        ),
        ("""insert into "S"."T"("ID","NM") values ('1');""", "expected 2 values at character 42"),
        ("""insert into "S"."T"("ID") values ('1','2');""", "expected the end of 1 values"),
        ("""insert into "S"."T"("ID","ID") values ('1','2');""", "named before"),
        ("""update "S"."T" set "A" = '1', "A" = '2' where "ID" = '1';""", "named before"),
        ("""delete from "S"."T" where "ID" = '1' and "ID" = '2';""", "named before"),
        ("""update "S"."T" set "A" = 'x' garbage, "B" = 'y' where "ID" = '1';""", "the end of the statement"),
        ("""delete from "S"."T" where "ID" > '1';""", "expected ="),
        ("""delete from "S"."T" where "ID" = '1'; delete from "S"."T";""", "the end of the statement"),
        ("merge into x", "insert into, update or delete from at character 0"),
    ],
)
def test_a_text_of_no_known_form_is_refused_with_its_place(sql: str, because: str) -> None:
    with pytest.raises(UnreadableRedo, match=because.replace("(", r"\(")):
        read_statement(sql)


def test_a_value_that_the_log_does_not_hold_is_not_null() -> None:
    statement = read_statement(
        """update "S"."T" set "DOC" = Unsupported Type where "ID" = '1' and "DOC" = 'old' and "N" IS NULL;"""
    )

    assert statement.after == {"DOC": NOT_LOGGED}
    assert statement.before == {"ID": Quoted("1"), "DOC": Quoted("old"), "N": None}


def test_a_row_is_named_by_its_rowid_alone() -> None:
    statement = read_statement("""delete from "S"."T" where ROWID = 'AAAR3sAAEAAAACXAAA';""")

    assert (statement.row_id, statement.before) == ("AAAR3sAAEAAAACXAAA", {})


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        (r"UNISTR('\D83D\DE00') || UNISTR('a''b\\c')", "😀a'b\\c"),
        (r"UNISTR('\D83D') || UNISTR('\DE00')", "😀"),
        ("'a' || 'b'", "ab"),
        ("UNISTR('')", ""),
    ],
)
def test_a_text_of_several_calls_is_one_text(sql: str, text: str) -> None:
    assert text_of(Expression(sql)) == text


@pytest.mark.parametrize("sql", [r"UNISTR('\D83D')", r"UNISTR('\12')", "UNISTR('a') UNISTR('b')", "TO_DATE('a')"])
def test_a_broken_text_is_refused(sql: str) -> None:
    with pytest.raises(UnreadableRedo):
        text_of(Expression(sql))


def test_a_long_text_names_its_column_and_row() -> None:
    begin = "DECLARE\n TempLob CLOB;\n Stmt    CLOB;\nBEGIN\n DBMS_LOB.CreateTemporary(TempLob, FALSE);\n"
    located = read_long_text(
        begin + """ Stmt := 'update "S"."T" a set a."DATA" = :DATA where a."ID" = ''it''''s'';';"""
    )

    assert (located.column, located.row) == ("DATA", {"ID": Quoted("it's")})


@pytest.mark.parametrize(
    ("first", "fragments", "value"),
    [
        (Quoted("abc"), [Fragment(5, "X")], "abc  X"),
        (Expression("EMPTY_BLOB()"), [Fragment(2, b"\1")], b"\0\0\1"),
        (None, [Fragment(0, "ab"), Fragment(2, "cd")], "abcd"),
        (None, [Fragment(0, "😀😀"), Fragment(4, "b"), Fragment(6, "c")], "😀😀b c"),
        (
            Quoted("abc"),
            [Fragment(0, b"a")],
            UnknownContent("a text has a piece of bytes, or bytes have a piece of text"),
        ),
        (NOT_LOGGED, [Fragment(4, "x")], UnknownContent("the value before the first write is not in the log")),
    ],
)
def test_pieces_make_a_value(first: RedoValue, fragments: list[Fragment], value: str | bytes | UnknownContent) -> None:
    assert assembled(first, fragments) == value


def test_a_piece_of_another_length_than_it_says_is_refused() -> None:
    assert read_lob_write(" buf_c := '😀'; \n  dbms_lob.write(loc_c, 2, 3, buf_c);\n") == Fragment(2, "😀")
    with pytest.raises(UnreadableRedo, match="expected 5 characters"):
        read_lob_write(" buf_c := 'four'; \n  dbms_lob.write(loc_c, 5, 1, buf_c);\n")


VALUES = st.one_of(
    st.none(),
    st.just(NOT_LOGGED),
    st.text().map(Quoted),
    st.sampled_from(
        [
            Expression("TO_DATE('2026-11-28 05:00:00', 'YYYY-MM-DD HH24:MI:SS')"),
            Expression("HEXTORAW('0aff')"),
            Expression("EMPTY_CLOB()"),
            Expression(r"UNISTR('a\0412') || UNISTR('b''c')"),
            Expression("XMLTYPE('<a b=\"c)\">x</a>')"),
            Expression("/* JSON */ HEXTORAW('ff4a5a01')"),
        ]
    ),
)
NAMES = st.text(st.characters(exclude_characters='"\0', exclude_categories=["Cs"]), min_size=1, max_size=8)
ROWS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=6)


def sql_of(value: RedoValue) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, Quoted):
        return "'" + value.text.replace("'", "''") + "'"
    return value.sql if isinstance(value, Expression) else "Unsupported Type"


def where(row: Mapping[str, RedoValue]) -> str:
    return " and ".join(
        f'"{name}" IS NULL' if value is None else f'"{name}" = {sql_of(value)}' for name, value in row.items()
    )


@given(ROWS, ROWS)
def test_what_is_written_is_read(after: dict[str, RedoValue], before: dict[str, RedoValue]) -> None:
    names = ",".join(f'"{name}"' for name in after)
    inserted = read_statement(f'insert into "S"."T"({names}) values ({",".join(map(sql_of, after.values()))});')
    assignments = ", ".join(f'"{name}" = {sql_of(value)}' for name, value in after.items())
    updated = read_statement(f'update "S"."T" set {assignments} where {where(before)};')
    deleted = read_statement(f'delete from "S"."T" where {where(before)};')

    assert (inserted.after, inserted.before) == (after, {})
    assert (updated.after, updated.before) == (after, before)
    assert (deleted.after, deleted.before) == ({}, before)
