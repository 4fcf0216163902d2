"""DDL beyond the reference's cases: statements that decide about loss, and statements of real logs."""

import msgspec
import pytest

from libs.errors import PipelineHalted
from libs.mysql.ddl import (
    DdlNotUnderstood,
    StatementContext,
    TableChange,
    TableChangeKind,
    apply_database_ddl,
    apply_ddl,
    depends_on_session,
    show_create_to_schema,
    unseen_rows,
)
from libs.mysql.ddl_syntax import SentIn
from libs.mysql.sql_lexer import SqlMode
from libs.types.table import TableId, TableSchema
from libs.types.unseen_rows import UnseenRows

ORDERS = TableId(database="shop", table="orders")


def table(definition: str, table_id: TableId = ORDERS) -> TableSchema:
    return show_create_to_schema(table_id, f"CREATE TABLE x ({definition})")


def apply_one(statement: str, *schemas: TableSchema, **options: object) -> TableChange:
    """The one change that a statement makes to the tables given."""
    (change,) = apply_ddl({schema.table_id: schema for schema in schemas}, "shop", statement, **options)  # type: ignore[arg-type]
    return change


def after(statement: str, definition: str) -> TableSchema:
    """``orders`` after an ALTER."""
    schema = apply_one(statement, table(definition)).schema
    assert schema is not None
    return schema


def names(schema: TableSchema | None) -> list[str]:
    assert schema is not None
    return [column.name for column in schema.columns]


@pytest.mark.parametrize(
    "statement",
    [
        "GRANT SELECT ON shop.* TO 'u'@'%'",
        "CREATE USER u IDENTIFIED BY 'x'",
        "CREATE DEFINER=`root`@`%` TRIGGER t BEFORE INSERT ON orders FOR EACH ROW SET NEW.a = 1",
        "CREATE DEFINER=`root`@`%` PROCEDURE p() BEGIN DROP TABLE orders; END",
        "CREATE FUNCTION f() RETURNS INT LANGUAGE JAVASCRIPT AS $$ it's no SQL \" $$",
        "CREATE OR REPLACE VIEW v AS SELECT 1",
        "CREATE TEMPORARY TABLE orders (a int)",
        "DROP TEMPORARY TABLE IF EXISTS orders",
        "DROP VIEW orders",
        "ALTER USER u ACCOUNT LOCK",
        "ALTER VIEW v AS SELECT 2",
        "RENAME USER a TO b",
        "ANALYZE TABLE orders",
        "FLUSH TABLES orders",
        "BEGIN",
        "INSERT INTO orders VALUES (1)",
        "# CREATE TABLE t (a int)",
        "/* nothing */",
        "",
    ],
)
def test_what_concerns_no_table_changes_nothing(statement: str) -> None:
    """With any body, and though it names a table that is known."""
    assert apply_ddl({ORDERS: table("a int")}, "shop", statement) == ()


def test_a_statement_that_is_not_understood_names_its_tables() -> None:
    """So that a reader halts only where the table is captured."""
    with pytest.raises(DdlNotUnderstood) as caught:
        apply_ddl({ORDERS: table("a int")}, "shop", "ALTER TABLE orders FROBNICATE COLUMN a")

    assert caught.value.table_ids == (ORDERS,)
    assert isinstance(caught.value, PipelineHalted)
    assert "shop.orders" in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t AS SELECT 1 AS a",
        "CREATE TABLE t (a int) SELECT 1 AS b",
        "CREATE TABLE t (a unheard_of_type)",
        "CREATE TABLE t (a int) NEW_OPTION=1",
        "CREATE TABLE t (a int, unheard of)",
        "CREATE TABLE t LIKE unknown_table",
        "CREATE TABLE t (a int",
        "CREATE TABLE t (a enum('x)",
        "ALTER TABLE orders ADD COLUMN b int AFTER nope",
        "ALTER TABLE orders ADD UNIQUE (nope)",
        "ALTER TABLE orders DROP COLUMN nope",
        "ALTER TABLE orders ADD COLUMN A int",
        "ALTER TABLE orders ADD COLUMN b int, UNHEARD OF",
        "DROP TABLE orders WITH CARE",
        "RENAME TABLE orders",
    ],
)
def test_no_statement_about_tables_passes_in_silence(statement: str) -> None:
    """A statement that is not understood, or contradicts the schema that is held, halts."""
    with pytest.raises(DdlNotUnderstood):
        apply_ddl({ORDERS: table("a int")}, "shop", statement)


def test_an_error_holds_no_literal_of_the_statement() -> None:
    """Literals may be data."""
    with pytest.raises(DdlNotUnderstood) as caught:
        apply_ddl({}, "shop", "CREATE TABLE t (a int DEFAULT 1 'secret')")

    assert "secret" not in str(caught.value)


def test_create_table_select_as_mysql_logs_it() -> None:
    """Since 8.0.21 with the columns written out; the rows follow as row events."""
    change = apply_one("CREATE TABLE `t` (\n  `a` int NOT NULL,\n  `v` int DEFAULT NULL\n) START TRANSACTION")

    assert change.kind is TableChangeKind.CREATE
    assert names(change.schema) == ["a", "v"]


def test_an_online_schema_change_swaps_its_shadow_table_in() -> None:
    """gh-ost and pt-online-schema-change end with one RENAME of both tables."""
    shadow = table("id int primary key, extra int", TableId(database="shop", table="_orders_gho"))

    moved, swapped = apply_ddl(
        {ORDERS: table("id int primary key"), shadow.table_id: shadow},
        "shop",
        "rename /* gh-ost */ table `shop`.`orders` to `shop`.`_orders_del`, `shop`.`_orders_gho` to `shop`.`orders`",
    )

    assert (moved.previous_id, moved.table_id) == (ORDERS, TableId(database="shop", table="_orders_del"))
    assert (swapped.kind, swapped.table_id) == (TableChangeKind.RENAME, ORDERS)
    assert names(swapped.schema) == ["id", "extra"]


def test_a_rename_from_an_unknown_table_says_so() -> None:
    """The table at the new name is another than before, so the reader must learn it from the source."""
    change = apply_one("RENAME TABLE other.t TO orders", table("a int"))

    assert (change.kind, change.table_id, change.schema) == (TableChangeKind.RENAME, ORDERS, None)


def test_a_dropped_database_takes_its_tables() -> None:
    """The log has one statement for all of them."""
    elsewhere = table("a int", TableId(database="stock", table="items"))

    change = apply_one("DROP DATABASE IF EXISTS `shop`", table("a int"), elsewhere)

    assert (change.kind, change.table_id, change.schema) == (TableChangeKind.DROP, ORDERS, None)


OTHER = TableId(database="stock", table="other")


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("ALTER TABLE orders TRUNCATE PARTITION p0, p1", UnseenRows("TRUNCATE PARTITION", (ORDERS,))),
        ("ALTER TABLE orders TRUNCATE PARTITION ALL", UnseenRows("TRUNCATE PARTITION", (ORDERS,))),
        ("/* nightly */ alter table `orders` drop partition p2024", UnseenRows("DROP PARTITION", (ORDERS,))),
        (
            "ALTER TABLE orders EXCHANGE PARTITION p0 WITH TABLE stock.other WITHOUT VALIDATION",
            UnseenRows("EXCHANGE PARTITION", (ORDERS, OTHER)),
        ),
        ("ALTER TABLE orders DISCARD PARTITION p0 TABLESPACE", UnseenRows("DISCARD PARTITION", (ORDERS,))),
        ("ALTER TABLE orders IMPORT PARTITION ALL TABLESPACE", UnseenRows("IMPORT PARTITION", (ORDERS,))),
        ("ALTER TABLE orders DISCARD TABLESPACE", UnseenRows("DISCARD TABLESPACE", (ORDERS,))),
        ("ALTER TABLE orders ALGORITHM=COPY, IMPORT TABLESPACE", UnseenRows("IMPORT TABLESPACE", (ORDERS,))),
        ("ALTER TABLE orders ADD PARTITION (PARTITION p3 VALUES LESS THAN (10))", None),
        ("ALTER TABLE orders COALESCE PARTITION 2", None),
        ("ALTER TABLE orders REORGANIZE PARTITION p0 INTO (PARTITION a VALUES LESS THAN (5))", None),
        ("ALTER TABLE orders REBUILD PARTITION ALL", None),
        ("ALTER TABLE orders REMOVE PARTITIONING", None),
        ("ALTER TABLE orders DROP COLUMN `partition`", None),
        ("ALTER TABLE orders DROP a", None),
        ("TRUNCATE TABLE orders", None),
        ("DROP TABLE orders", None),
        ("ANALYZE TABLE orders", None),
    ],
)
def test_rows_that_come_or_go_without_the_log_are_known(statement: str, found: UnseenRows | None) -> None:
    """With the tables that they are of. A clause that only moves rows between partitions is none; nor is one that comes out
    as an event."""
    assert unseen_rows("shop", statement) == found


def test_truncate_keeps_the_schema() -> None:
    """Only the rows are gone."""
    schema = table("a int")

    assert apply_one("TRUNCATE orders", schema) == TableChange(TableChangeKind.TRUNCATE, ORDERS, schema)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders ENGINE=InnoDB ROW_FORMAT=dynamic, ALGORITHM=INPLACE, LOCK=NONE",
        "ALTER TABLE orders ADD PARTITION (PARTITION p3 VALUES LESS THAN (10))",
        "ALTER TABLE orders TRUNCATE PARTITION p0, p1",
        "ALTER TABLE orders PARTITION BY HASH(id) PARTITIONS 4",
        "ALTER TABLE orders REMOVE PARTITIONING",
        "ALTER TABLE orders EXCHANGE PARTITION p0 WITH TABLE other WITHOUT VALIDATION",
        "ALTER TABLE orders ORDER BY a, id DESC",
        "ALTER TABLE orders FORCE",
        "ALTER TABLE orders DISABLE KEYS",
        "ALTER TABLE orders ADD CONSTRAINT c CHECK (a > 0) NOT ENFORCED, ALTER CHECK c ENFORCED, DROP CHECK d",
        "ALTER TABLE orders DROP FOREIGN KEY f",
        "ALTER TABLE orders ALTER COLUMN a SET VISIBLE, ALTER INDEX k INVISIBLE",
        "ALTER TABLE orders AUTO_INCREMENT 7, COMMENT ''",
    ],
)
def test_alters_that_no_row_depends_on_leave_an_equal_schema(statement: str) -> None:
    """A reader sees by equality that no new version is needed."""
    schema = table("id int primary key, a int, key k (a)")

    change = apply_one(statement, schema)

    assert (change.kind, change.schema) == (TableChangeKind.ALTER, schema)


def test_columns_move_as_in_the_server() -> None:
    """Clauses name columns as they were, FIRST and AFTER as they become; a swap of names is no contradiction."""
    definition = "id int primary key, a int, b int, c int"

    assert names(after("ALTER TABLE orders MODIFY c int AFTER id, ADD d int FIRST", definition)) == [
        "d", "id", "c", "a", "b",
    ]  # fmt: skip
    assert names(after("ALTER TABLE orders RENAME COLUMN a TO b, RENAME COLUMN b TO a", definition)) == [
        "id", "b", "a", "c",
    ]  # fmt: skip
    assert names(after("ALTER TABLE orders CHANGE A z bigint FIRST, ADD y int AFTER z", definition)) == [
        "z", "y", "id", "b", "c",
    ]  # fmt: skip
    assert names(after("ALTER TABLE orders DROP a, ADD a text", definition)) == ["id", "b", "c", "a"]


def test_the_key_follows_the_indexes() -> None:
    """Primary key, else the first unique index without NULLs, after every change of names and nullability."""
    definition = "a int not null, b int not null, c int, primary key (a), unique k (b), unique (c)"

    assert after("ALTER TABLE orders DROP PRIMARY KEY", definition).key == ("b",)
    assert after("ALTER TABLE orders DROP PRIMARY KEY, DROP INDEX k", definition).key == ()
    assert after("ALTER TABLE orders DROP PRIMARY KEY, DROP KEY k, MODIFY c int NOT NULL", definition).key == ("c",)
    assert after("ALTER TABLE orders RENAME COLUMN a TO id", definition).key == ("id",)
    assert after("ALTER TABLE orders DROP COLUMN a", definition).key == ("b",)
    assert after("ALTER TABLE orders DROP PRIMARY KEY, RENAME INDEX k TO k2, DROP INDEX k", definition).key == ()
    assert after("DROP INDEX `PRIMARY` ON orders", definition).key == ("b",)
    assert after("CREATE UNIQUE INDEX u ON orders (b DESC)", "a int, b int not null").key == ("b",)


def test_an_unnamed_index_has_the_servers_name() -> None:
    """A later DROP INDEX says that name, and must not hit another index."""
    definition = "a int not null, b int, key (a), unique (a), unique (a)"

    assert [index.name for index in table(definition).indexes] == ["a_2", "a_3", "a"]
    assert after("ALTER TABLE orders DROP INDEX a", definition).key == ("a",)
    assert after("ALTER TABLE orders DROP INDEX a_2, DROP INDEX a_3", definition).key == ()


def test_names_of_any_kind() -> None:
    """Backticks, keywords, leading digits, other scripts and executable comments."""
    change = apply_one(
        "/* app */ CREATE TABLE /*!32312 IF NOT EXISTS*/ `odd-``name`.1table (\n"
        "  `id` int /*!80023 INVISIBLE */ NOT NULL, -- the key\n"
        "  1digit int, żółw varchar(3), `select` int DEFAULT 1, status int # nothing\n, PRIMARY KEY (ID)\n"
        ") /*!50100 PARTITION BY HASH (id) PARTITIONS 4 */ /*!999999 FUTURE */;"
    )

    assert change.table_id == TableId(database="odd-`name", table="1table")
    assert names(change.schema) == ["id", "1digit", "żółw", "select", "status"]
    assert change.schema is not None and change.schema.key == ("id",)


def test_ansi_quotes_make_names() -> None:
    """The log carries the session's sql_mode beside the statement."""
    context = StatementContext(sql_mode=SqlMode(ansi_quotes=True))

    change = apply_one('ALTER TABLE "orders" ADD "b c" int', table("a int"), context=context)

    assert names(change.schema) == ["a", "b c"]


def test_names_are_folded_as_the_server_folds_them() -> None:
    """With lower_case_table_names the log still has the spelling of the session."""
    context = StatementContext(lower_case_table_names=1)

    change = apply_one("ALTER TABLE SHOP.Orders ADD b int", table("a int"), context=context)

    assert change.table_id == ORDERS


def test_names_are_alike_where_mysql_takes_them_for_alike() -> None:
    """By character: 'Σ' is 'σ' at a word's end too, and 'İ' is 'i'. Characters newer than its tables have one case."""
    context = StatementContext(lower_case_table_names=1)
    (change,) = apply_ddl({}, "d", "CREATE TABLE ΠΕΛΑΤΕΣ (`İ` INT, ΤΙΜΕΣ INT, `Ⴀ` INT, `ⴀ` INT)", context=context)
    assert change.schema is not None

    (after,) = apply_ddl(
        {change.table_id: change.schema},
        "d",
        "ALTER TABLE Πελατεσ RENAME COLUMN i TO a, RENAME COLUMN τιμεσ TO b, DROP COLUMN `ⴀ`",
        context=context,
    )

    assert after.schema is not None
    assert (str(after.table_id), [column.name for column in after.schema.columns]) == ("d.πελατεσ", ["a", "b", "Ⴀ"])


def test_timestamps_without_explicit_defaults() -> None:
    """With explicit_defaults_for_timestamp off, the first follows the clock and none is NULL unless it says so."""
    context = StatementContext(explicit_defaults_for_timestamp=False)

    change = apply_one("CREATE TABLE t (a timestamp, b timestamp(3), c timestamp NULL)", context=context)

    assert change.schema is not None
    found = [(c.is_optional, c.default_expression, c.has_on_update) for c in change.schema.columns]
    assert found == [
        (False, "CURRENT_TIMESTAMP", True),
        (False, "0000-00-00 00:00:00.000", False),
        (True, None, False),
    ]


def test_charsets_are_inherited() -> None:
    """Column from table, table from database, database from server."""
    charsets = apply_database_ddl({}, "", "CREATE DATABASE shop CHARACTER SET latin2")
    created = apply_one("CREATE TABLE t (a char(1), b char(1) COLLATE utf8mb4_bin)", database_charsets=charsets)
    charsets = apply_database_ddl(charsets, "shop", "ALTER DATABASE COLLATE utf8mb3_bin")
    later = apply_one("CREATE TABLE t (a char(1))", database_charsets=charsets)
    charsets = apply_database_ddl(charsets, "shop", "DROP DATABASE shop")

    assert created.schema is not None and later.schema is not None
    assert [column.charset for column in created.schema.columns] == ["latin2", "utf8mb4"]
    assert later.schema.column("a").charset == "utf8mb3"
    assert charsets == {}


def test_convert_to_character_set_makes_room() -> None:
    """Texts grow to hold as many characters; binary columns stay."""
    schema = after(
        "ALTER TABLE orders CONVERT TO CHARACTER SET utf8mb4",
        "a tinytext character set latin1, b varchar(20000) character set latin1, c blob, d char(3) character set latin1",
    )

    assert [(c.source_type, c.charset) for c in schema.columns] == [
        ("text", "utf8mb4"),
        ("mediumtext", "utf8mb4"),
        ("blob", None),
        ("char(3)", "utf8mb4"),
    ]


def test_versions_are_not_counted_here() -> None:
    """An ALTER keeps the version before, so that an unchanged schema is an equal one."""
    schema = TableSchema(table_id=ORDERS, columns=table("a int").columns, version=7)

    altered = apply_one("ALTER TABLE orders ADD b int", schema)

    assert altered.schema is not None and altered.schema.version == 7


def renamed(schema: TableSchema, *statements: str) -> TableSchema:
    """``schema`` after statements that each make a version of it, as schema_history counts them."""
    for statement in statements:
        after = apply_one(statement, schema).schema
        assert after is not None
        schema = msgspec.structs.replace(after, version=schema.version + 1)
    return schema


def test_a_column_knows_what_it_was_called_at_each_version() -> None:
    """Also where two change names, where a name is taken up again by another column, and through other changes."""
    schema = renamed(
        msgspec.structs.replace(table("id int, a int, b varchar(9)"), version=1),
        "ALTER TABLE orders RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "ALTER TABLE orders CHANGE b c bigint, ADD COLUMN b int",
        "ALTER TABLE orders MODIFY c decimal(20,0), CONVERT TO CHARACTER SET latin1",
        "ALTER TABLE orders CHANGE C c int",
    )

    found = {column.name: [column.name_at(version) for version in range(1, 6)] for column in schema.columns}
    assert found == {
        "id": ["id"] * 5,
        "c": ["a", "b", "c", "c", "c"],
        "b": ["b"] * 5,
        "a": ["b", "a", "a", "a", "a"],
    }
    assert schema.column("b").former_names == ()


@pytest.mark.parametrize(
    "statement",
    ["RENAME TABLE orders TO others", "ALTER TABLE orders RENAME TO others", "CREATE TABLE others LIKE orders"],
)
def test_names_of_another_tables_versions_are_forgotten(statement: str) -> None:
    """Each name of a table counts its versions by itself."""
    schema = renamed(msgspec.structs.replace(table("a int"), version=1), "ALTER TABLE orders RENAME COLUMN a TO b")

    moved = apply_one(statement, schema).schema

    assert moved is not None
    assert [(column.name, column.former_names) for column in moved.columns] == [("b", ())]


@pytest.mark.parametrize("error", [RecursionError(), KeyError("x"), OverflowError("x")])
@pytest.mark.parametrize("place", ["ddl_syntax._Parser._column", "ddl._alter", "ddl._created"])
def test_an_unforeseen_error_names_the_statements_tables(
    error: Exception, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader asks the source for these, and goes on with all others."""

    def failing(*_: object, **__: object) -> None:
        raise error

    before = table("a INT")
    monkeypatch.setattr(f"libs.mysql.{place}", failing)
    statement = "CREATE TABLE orders (a INT)" if place == "ddl._created" else "ALTER TABLE orders ADD COLUMN b INT"

    with pytest.raises(DdlNotUnderstood) as raised:
        apply_one(statement, before)

    assert raised.value.table_ids == (ORDERS,)
    assert type(error).__name__ in str(raised.value)


@pytest.mark.parametrize(
    "clause",
    [f"ADD b INT AS ({'(' * 20_000}1{')' * 20_000}), ADD c NOTYPE", "ADD c NOTYPE", "ADD c INT(" + "9" * 5_000 + ")"],
)
def test_no_statement_halts_the_reader_for_other_tables(clause: str) -> None:
    with pytest.raises(DdlNotUnderstood) as raised:
        apply_one(f"ALTER TABLE orders {clause}", table("a INT"))

    assert raised.value.table_ids == (ORDERS,)


@pytest.mark.parametrize(
    ("time_zone", "expected"),
    [
        ("", "2001-09-09 01:46:40"),
        ("+05:30", "2001-09-08 20:16:40"),
        ("-11:00", "2001-09-09 12:46:40"),
        ("Europe/Berlin", "2001-09-08 23:46:40"),
    ],
)
def test_the_default_of_a_timestamp_is_that_of_a_session_in_utc(time_zone: str, expected: str) -> None:
    """As SHOW CREATE prints it there."""
    context = StatementContext(sent_in=SentIn(time_zone=time_zone))
    statement = "CREATE TABLE t (a TIMESTAMP DEFAULT '2001-09-09 01:46:40', b TIMESTAMP DEFAULT 0)"
    (change,) = apply_ddl({}, "d", statement, context=context)

    assert change.schema is not None
    assert [column.default_expression for column in change.schema.columns] == [expected, "0000-00-00 00:00:00"]


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("DECIMAL(5,2) DEFAULT '-0.001'", "0.00"),
        ("DOUBLE DEFAULT '-0.0'", "-0"),
        ("DOUBLE DEFAULT -0.0", "0"),
        ("TIME DEFAULT '-0:0:0'", "00:00:00"),
        ("YEAR DEFAULT '000'", "2000"),
        ("DATE DEFAULT '00-2-29'", "2000-02-29"),
        ("DATE DEFAULT '001-1-2'", "0001-01-02"),
        ("DATE DEFAULT '1-2-3'", "0001-02-03"),
        ("DATETIME DEFAULT 101", "2000-01-01 00:00:00"),
        ("DATETIME DEFAULT '00-00-00'", "0000-00-00 00:00:00"),
        ("TINYINT DEFAULT (155)", "127"),
        ("BIGINT UNSIGNED DEFAULT (-2.5)", "0"),
        ("DECIMAL(5,2) DEFAULT ('1900')", "999.99"),
        ("ENUM('a','b') DEFAULT ('x')", None),
        ("DATE DEFAULT ('2020-02-30')", None),
        ("TIMESTAMP NULL DEFAULT ('2069-12-31')", None),
        ("TIME DEFAULT ('2020-01-02')", None),
        ("DOUBLE UNSIGNED DEFAULT (-1)", None),
    ],
)
def test_a_default_is_what_a_server_without_strict_mode_makes_of_it(definition: str, expected: str | None) -> None:
    """MySQL 9.7. None: only the server knows, and the fill of rows of before is reported."""
    (change,) = apply_ddl({}, "d", f"CREATE TABLE t (a {definition})")

    assert change.schema is not None
    assert change.schema.columns[0].default_expression == expected


def test_the_source_is_asked_for_a_default_that_only_it_can_read() -> None:
    for definition in (
        "DECIMAL(5,2) DEFAULT '1_0'",
        "INT DEFAULT '0x10'",
        "TIME DEFAULT '2020-01-02'",
        "TIME DEFAULT '12:34:56 PM'",
        "DATETIME DEFAULT '1:2:3.4'",
        "DATE DEFAULT 8.1e4",
        "YEAR DEFAULT '-0.00'",
        "BIT(8) DEFAULT 2.5e0",
        "VARCHAR(9) CHARACTER SET ucs2 DEFAULT 1e20",
    ):
        with pytest.raises(DdlNotUnderstood, match="only the server"):
            apply_ddl({}, "d", f"CREATE TABLE t (a {definition})")


def test_the_source_is_asked_for_what_the_log_does_not_say_of_a_definition() -> None:
    copied = StatementContext(may_lack_charset=True)
    with pytest.raises(DdlNotUnderstood, match="lacks the charset of a table LIKE a temporary one"):
        apply_ddl({}, "d", "CREATE TABLE t (a VARCHAR(9))", context=copied)
    assert apply_ddl({}, "d", "CREATE TABLE t (a VARCHAR(9)) CHARSET latin1", context=copied)

    for zone, reason in (
        ("Nowhere/Town", "a time zone that is not known here"),
        ("SYSTEM", "the server's own time zone"),
    ):
        elsewhere = StatementContext(sent_in=SentIn(time_zone=zone))
        with pytest.raises(DdlNotUnderstood, match=reason):
            apply_ddl({}, "d", "CREATE TABLE t (a TIMESTAMP DEFAULT '2001-09-09 01:46:40')", context=elsewhere)


@pytest.mark.parametrize(
    ("statement", "depends"),
    [
        (r"ALTER TABLE orders ADD b VARCHAR(9) DEFAULT 'a\nb'", True),
        ("ALTER TABLE orders ADD b REAL", True),
        ("ALTER TABLE orders ADD b TIMESTAMP DEFAULT '2001-09-09 01:46:40'", True),
        ("ALTER TABLE orders ADD b TIMESTAMP DEFAULT CURRENT_TIMESTAMP", False),
        ('ALTER TABLE orders ADD b INT COMMENT "it\'s real"', False),
        ("ALTER TABLE orders ADD b VARCHAR(9) DEFAULT 'plain'", False),
    ],
)
def test_a_statement_may_mean_something_else_in_another_session(statement: str, depends: bool) -> None:
    tables, context = {ORDERS: table("a INT")}, StatementContext()
    changes = apply_ddl(tables, "shop", statement, context=context)
    found = depends_on_session(changes, tables, "shop", statement, database_charsets={}, context=context)

    assert found is depends
