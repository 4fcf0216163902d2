"""Random statements: every type, charset, SQL mode, session setting, row image and form of a statement that a server takes.

A statement is drawn from the tables that the server has now, so most are accepted. The rest are refused, and change nothing.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from libs.mysql.identifiers import quote_identifier
from libs.types.table import TableId
from libs.types.value import UNAVAILABLE_VALUE
from libs.types.value_modes import BinaryMode, DecimalMode, TimePrecision, UnsignedBigintMode, ValueModes
from tests.fuzz.source.program import BEGIN, COPY, DATABASES, READER, RESTART, Step
from tests.fuzz.source.stored_rows import ServerColumn, ServerTable

_TABLES: Final = ("t", "u", "T", "2x", "20151214", "a b", "é", "key", "v1")
_COLUMNS: Final = ("a", "b", "B", "c d", "key", "é", "n1", "1d", "A", "select", "t")
_NUMBERS: Final = (
    "0",
    "1",
    "-1",
    "7",
    "127",
    "255",
    "300",
    "-129",
    "1.5",
    "'12'",
    "' 9 '",
    "0x1F",
    "b'101'",
    "TRUE",
    "1e3",
    "NULL",
)
_TEXTS: Final = ("''", "'a'", "'A '", "'it''s'", "'żółw'", "'é'", "'日本'", "'😀'", "0xE9", "_latin1 0xE9",
                 "_latin1 'x'", "x''", "n'q'",
                 "'12'", "'a,b'", "'x\\\\y'", "REPEAT('ab', 30)", "_utf8mb4'ß'", "'null'", "5", "NULL")  # fmt: skip
_BYTES: Final = ("''", "'a'", "x'00FF'", "0xDEADBEEF", "b'1000001'", "x''", "'é'", "REPEAT(x'AB', 40)", "NULL", "7")
_DATES: Final = ("'2024-02-29'", "'0000-00-00'", "'2024-00-10'", "'9999-12-31'", "'1000-01-01'", "20200102",
                 "'200102'", "'70-1-1'",
                 "'1969-12-31'", "NULL")  # fmt: skip
_MOMENTS: Final = ("'2024-02-29 23:59:59.999999'", "'2001-09-09 01:46:40'", "'0000-00-00 00:00:00'", "'2023-02-30 10:00:00'",
                   "'1969-12-31 23:59:59.5'", "'2038-01-19 03:14:07'", "20200102030405", "NOW()", "CURRENT_TIMESTAMP(6)",
                   "'2024-06-01 12:00:00+05:30'", "'1970-01-01 00:00:01'", "NULL")  # fmt: skip
_TIMES: Final = (
    "'01:02:03'",
    "'-838:59:59'",
    "'838:59:59'",
    "'12:34:56.789012'",
    "'0:0:0.000001'",
    "80000",
    "'-00:00:00.5'",
    "NULL",
)
_DOUBLES: Final = (
    "0",
    "-0.0",
    "1.5",
    "0.1",
    "1e300",
    "-1.5e-7",
    "3.4028235e38",
    "16777217",
    "999999999999999.9",
    "1e15",
    "NULL",
)
_JSONS: Final = ("'{}'", "'[1, 1.0, -1.5e-7, 999999999999999.9]'",
                 "'{\"a\": {\"b\": [1, 2, \"x\"]}, \"k\": \"long enough to be kept in part\"}'",
                 "'null'", "'\"ż😀\"'", "JSON_OBJECT('d', CAST(12.3400 AS DECIMAL(10,4)), 't', CAST('-1:2:3.5' AS TIME(6)))",
                 "JSON_ARRAY(NOW(), DATE '2024-01-02', 18446744073709551615, 1e16)", "NULL")  # fmt: skip
_POINTS: Final = ("ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(-1.5 2)', 4326)", "POINT(0, -0.0)", "NULL")
_SHAPES: Final = (
    *_POINTS,
    "ST_GeomFromText('LINESTRING(0 0,1.5 2.5)', 3857)",
    "ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')",
)
_MEMBERS: Final = ("'a'", "'A'", "'b,c'", "''", "0", "1", "2", "3", "'no'", "'ź'", "'x,y'", "'y,x'", "NULL")
TYPES: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(
        ("tinyint", "tinyint unsigned", "tinyint(1)", "bool", "smallint", "smallint(5) unsigned zerofill", "mediumint",
         "int", "int(11)", "integer unsigned", "int(4) zerofill", "bigint", "int8 unsigned", "bigint(20) zerofill", "int1"),
        (*_NUMBERS, "2147483647", "18446744073709551615", "-9223372036854775808")),
    **dict.fromkeys(("decimal(12,2)", "decimal(65,30)", "dec", "numeric(5) unsigned", "fixed(6,2)", "decimal(9,3) zerofill"),
                    (*_NUMBERS, "-123.456", "99999.995")),
    **dict.fromkeys(("float", "double", "float(7,3)", "double(11,2)", "double(10,2) zerofill", "float(30)", "real",
                     "double precision"),
                    _DOUBLES),
    **dict.fromkeys(("bit", "bit(1)", "bit(7)", "bit(64)"), ("b'1'", "b'1010101'", "0", "1", "0xFFFFFFFFFFFFFFFE",
                     "'a'", "NULL")),
    **dict.fromkeys(("char(10)", "varchar(30)", "char", "varchar(0)", "nchar(4)", "national varchar(9)", "tinytext", "text",
                     "mediumtext", "longtext", "long varchar", "varchar(5) binary", "text(80)", "char(3) ascii",
                     "varchar(20) unicode"),
                    _TEXTS),
    **dict.fromkeys(("binary(4)", "binary(0)", "varbinary(16)", "varbinary(70000)", "tinyblob", "blob", "mediumblob",
                     "longblob",
                     "blob(300)", "char byte", "char(4) byte"), _BYTES),
    "date": _DATES,
    **dict.fromkeys(("datetime", "datetime(3)", "datetime(6)", "timestamp", "timestamp(2)", "timestamp(6)"), _MOMENTS),
    **dict.fromkeys(("time", "time(2)", "time(6)"), _TIMES),
    **dict.fromkeys(("year", "year(4)"), ("2024", "'0'", "0", "99", "'5'", "1901", "2155", "NULL")),
    **dict.fromkeys(("enum('a','b,c','ź')", "enum('','x')", "set('x','y','z')", "set('','x','y')", "set('a')"), _MEMBERS),
    "json": _JSONS,
    "point": _POINTS,
    **dict.fromkeys(("linestring", "polygon", "multipoint"), (
        "ST_GeomFromText('LINESTRING(0 0,1 1)')", "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')",
        "ST_GeomFromText('MULTIPOINT(1 2,3 4)')", "NULL")),
    "point srid 4326": _POINTS[1:],
    "geometry": _SHAPES,
    "geometrycollection": _SHAPES[-1:],
    "vector(3)": ("TO_VECTOR('[1.5,-2.25,3.4e38]')", "NULL"),
}  # fmt: skip
_CHARSETS: Final = ("utf8mb4", "utf8mb4", "latin1", "latin2", "utf8mb3", "binary", "ascii", "cp1251", "sjis", "gbk",
                    "ucs2", "utf16",
                    "utf32", "koi8r", "big5", "gb18030", "swe7", "keybcs2", "utf16le", "cp932", "hebrew")  # fmt: skip
_COLLATIONS: Final = (
    "utf8mb4_bin",
    "latin1_bin",
    "utf8mb4_0900_as_cs",
    "latin1_german2_ci",
    "utf8mb3_bin",
    "binary",
    "utf8mb4_general_ci",
)
_HAS_CHARSET: Final = ("char", "varchar", "text", "enum", "set")
_MODES: Final = ("STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "PIPES_AS_CONCAT",
                 "IGNORE_SPACE", "ANSI",
                 "NO_ZERO_DATE", "NO_ZERO_IN_DATE", "ALLOW_INVALID_DATES", "NO_AUTO_VALUE_ON_ZERO", "PAD_CHAR_TO_FULL_LENGTH",
                 "NO_UNSIGNED_SUBTRACTION", "HIGH_NOT_PRECEDENCE", "REAL_AS_FLOAT", "TRADITIONAL", "TIME_TRUNCATE_FRACTIONAL",
                 "ERROR_FOR_DIVISION_BY_ZERO")  # fmt: skip
GLOBALS: Final[Mapping[str, Sequence[str]]] = {
    "binlog_row_image": ("MINIMAL", "NOBLOB"),
    "binlog_row_value_options": ("'PARTIAL_JSON'",),
    "character_set_server": ("latin1", "ucs2", "gbk", "utf8mb3", "binary"),
    "completion_type": ("CHAIN", "RELEASE"),
    "default_collation_for_utf8mb4": ("utf8mb4_general_ci",),
    "div_precision_increment": ("0", "12"),
    "explicit_defaults_for_timestamp": ("0",),
    "group_concat_max_len": ("4",),
    "lc_time_names": ("de_DE",),
    "max_execution_time": ("1",),
    "show_gipk_in_create_table_and_information_schema": ("0",),
    "sql_big_selects": ("0",),
    "sql_generate_invisible_primary_key": ("1",),
    "sql_mode": ("'ANSI,NO_BACKSLASH_ESCAPES'", "'PAD_CHAR_TO_FULL_LENGTH,REAL_AS_FLOAT'", "'TRADITIONAL'", "''"),
    "sql_quote_show_create": ("0",),
    "sql_safe_updates": ("1",),
    "sql_select_limit": ("1",),
    "time_zone": ("'+05:30'", "'-11:00'"),
    "transaction_isolation": ("'READ-UNCOMMITTED'", "'READ-COMMITTED'", "'SERIALIZABLE'"),
}
"""Settings of the whole server, which new sessions take over: those of the program, and those of the reader."""
_COMMENTS: Final = (
    "/* c */",
    "/**/",
    "-- c\n",
    "#c\n",
    "--\n",
    "/*!*/",
    "/*! */",
    "/*!80000 */",
    "/*!999999 junk */",
    "/* ; 'q */",
    "/*\n*/",
)

_ODD_CHARACTERS: Final = "a`.'\"\\ %;-#/*@$é日\u200b\u0301\ufeff\uffff\ue000\u00a0\x01\t\nİſK"
_BEYOND: Final = "ab?😀😁𝄞𠀀"
_BMP: Final = (*range(1, 0xD800), *range(0xE000, 0x10000))
_EXPRESSIONS: Final = ("1 + 1", "UPPER(0x61)", "UUID()", "NULL", "1.50 * 2", "JSON_OBJECT('a', 1)", "JSON_ARRAY()", "CURDATE()",
                       "NOW()", "POINT(1, 2)", "-1", "x'41'", "b'1'", "TRUE", "'{}'", "'[1]'", "DATE '2024-01-02'",
                       "TIMESTAMP '2024-01-02 03:04:05'", "'2020-02-30'", "CONCAT('a', \"b\")", "_latin1 x'E9'", "1e3", "-0.0",
                       "TO_VECTOR('[1,2,3]')", "CAST(1 AS CHAR)", "'a' COLLATE utf8mb4_bin", "N'x'", "RAND()")  # fmt: skip
_PARTS: Final = ("({0})", "({0})", "({0}(2))", "({0} DESC)", "((LOWER({0})))", "(({0} + 1))",
                 "((CAST({0}->'$.a' AS CHAR(9))))",
                 "((CAST({0}->'$[*]' AS UNSIGNED ARRAY)))", "({0}, (HEX({0})))")  # fmt: skip
"""Of an index over a column."""
_ATTRIBUTES: Final = ("", "", "", "", "", "COMMENT 'it''s; -- x'", "COMMENT '𝄞 é'", "INVISIBLE", "UNIQUE",
                      "COLUMN_FORMAT FIXED",
                      "STORAGE DISK", "CHECK (1 = 1)", "CONSTRAINT ck2 CHECK (1) NOT ENFORCED",
                      "ENGINE_ATTRIBUTE '{}'")  # fmt: skip
_ALGORITHMS: Final = ("", "", "", "", ", ALGORITHM=INPLACE", ", ALGORITHM=COPY", ", ALGORITHM=INSTANT", ", LOCK=NONE",
                      ", ALGORITHM=INPLACE, LOCK=SHARED")  # fmt: skip
_KEYS: Final = ("UNIQUE", "INDEX", "UNIQUE KEY u2", "CONSTRAINT c1 UNIQUE")

State = Mapping[TableId, ServerTable]


def random_modes(seed: int) -> ValueModes:
    """The reader's value forms for a program. Forms that cannot hold every value are left out."""
    chosen = random.Random(seed)
    return ValueModes(
        time_precision=chosen.choice(
            (
                TimePrecision.ADAPTIVE_TIME_MICROSECONDS,
                TimePrecision.ADAPTIVE,
                TimePrecision.MICROSECONDS,
                TimePrecision.ISO_STRING,
            )
        ),
        decimal=chosen.choice((DecimalMode.PRECISE, DecimalMode.STRING)),
        unsigned_bigint=chosen.choice(tuple(UnsignedBigintMode)),
        binary=chosen.choice(tuple(BinaryMode)),
        unavailable_placeholder=UNAVAILABLE_VALUE,
    )


class Statements:
    """The steps of one program, drawn one after another from ``state`` as it is then."""

    def __init__(self, seed: int, state: Callable[[], State]) -> None:
        self._random = random.Random(seed)
        self._state = state
        self._xids = 0
        self._is_ansi = dict.fromkeys("abx", False)

    def steps(self, count: int) -> Iterator[Step]:
        """About so many."""
        drawn = 0
        if self._often(0.5):
            yield Step("a", "SET GLOBAL binlog_row_metadata = FULL")
        for name in self._random.sample(sorted(GLOBALS), self._one(0, 0, 0, 1, 2, 4)):
            yield Step("a", f"SET GLOBAL {name} = {self._one(*GLOBALS[name])}")
        begin_at = self._one(0, 0, 3, 8)
        while drawn < count:
            if begin_at is not None and drawn >= begin_at:
                begin_at = None
                yield Step(READER, BEGIN)
            for step in self._some():
                drawn += 1
                yield step
            if self._often(0.01):
                yield Step(READER, RESTART)
            if self._often(0.02):
                yield Step(READER, COPY)
            if self._often(0.01):
                yield Step("a", f"SET GLOBAL binlog_row_metadata = {self._one('MINIMAL', 'FULL')}")

    # --- drawing -----------------------------------------------------------------------------------------------------------

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _often(self, share: float) -> bool:
        return self._random.random() < share

    def _some(self) -> Iterator[Step]:
        """One step, or those of a transaction."""
        tables = self._state()
        session = self._one("a", "a", "a", "b")
        if len(tables) < 2 or (len(tables) < 5 and self._often(0.06)):
            yield self._step(session, self._create())
            return
        roll = self._random.random()
        if roll < 0.06:
            yield self._setting(session)
        elif roll < 0.34:
            yield self._step(session, self._ddl(tables))
        elif roll < 0.42:
            yield from self._transaction(session, tables)
        elif roll < 0.44:
            yield from self._xa(tables)
        else:
            yield self._step(session, self._dml(tables))

    def _step(self, session: str, words: Sequence[str]) -> Step:
        text = self._joined([word for word in words if word])
        if self._often(0.05):
            text += self._one(" -- end", " # start transaction", " /* x */", ";", " -- START TRANSACTION")
        if self._often(0.02):
            escaped = text.replace("\\", "\\\\").replace("'", "''")
            text = f"SET @s = '{escaped}'; PREPARE p FROM @s; EXECUTE p; DEALLOCATE PREPARE p"
        elif self._often(0.02):
            text = f"DO 1; {text}; DO 2"
        return Step(session, text)

    def _joined(self, words: Sequence[str]) -> str:
        """With comments and spaces of all kinds between, in some statements."""
        if not self._often(0.15):
            return " ".join(words)
        text = self._one("", "", "/*! ", *_COMMENTS) if self._often(0.5) else ""
        is_versioned = text == "/*! "
        for word in words:
            if self._often(0.2) and word.isupper():
                word = self._one(word.lower(), word.title())
            text += ("" if not text or text.endswith((" ", "\n")) else self._one(" ", " ", "\n", "\t", "  ")) + word
            if self._often(0.08) and not is_versioned:
                text += self._one(" ", "\n") + self._one(*_COMMENTS)
        return text + " */" * is_versioned

    def _setting(self, session: str) -> Step:
        modes = ",".join(self._random.sample(_MODES, self._one(0, 0, 1, 1, 2, 4)))
        return Step(
            session,
            "SET SESSION "
            + self._one(
                f"sql_mode = '{modes}'",
                f"sql_mode = '{modes}'",
                f"sql_mode = '{modes}'",
                f"time_zone = '{self._one('+00:00', '+05:30', '-11:00', 'SYSTEM')}'",
                f"binlog_row_image = {self._one('FULL', 'MINIMAL', 'NOBLOB')}",
                f"binlog_row_value_options = '{self._one('', 'PARTIAL_JSON')}'",
                f"character_set_client = {self._one('utf8mb4', 'latin1', 'utf8mb3', 'binary')}",
                f"character_set_connection = {self._one('utf8mb4', 'latin1', 'ucs2', 'utf16', 'gbk', 'binary')}",
                f"character_set_server = {self._one(*_CHARSETS)}",
                f"collation_connection = {self._one('utf8mb4_bin', 'latin1_bin', 'utf8mb4_0900_ai_ci')}",
                f"explicit_defaults_for_timestamp = {self._one(0, 1)}",
                f"foreign_key_checks = {self._one(0, 1)}",
                f"unique_checks = {self._one(0, 1)}",
                f"sql_generate_invisible_primary_key = {self._one(0, 1)}",
                f"show_gipk_in_create_table_and_information_schema = {self._one(0, 1)}",
                f"binlog_transaction_compression = {self._one(0, 1)}",
                f"default_storage_engine = {self._one('InnoDB', 'InnoDB', 'MyISAM')}",
                f"sql_auto_is_null = {self._one(0, 1)}",
                f"sql_quote_show_create = {self._one(0, 1)}",
                f"div_precision_increment = {self._one(0, 4, 12)}",
                f"auto_increment_increment = {self._one(1, 3)}",
                f"autocommit = {self._one(1, 1, 1, 0)}",
                f"default_collation_for_utf8mb4 = {self._one('utf8mb4_0900_ai_ci', 'utf8mb4_general_ci')}",
                f"timestamp = {self._one('DEFAULT', '1000000000.123456')}",
                f"innodb_strict_mode = {self._one(0, 1)}",
                f"completion_type = {self._one(0, 1)}",
            ),
        )

    # --- names -------------------------------------------------------------------------------------------------------------

    def _name(self, name: str) -> str:
        is_plain = name.isascii() and name.isalnum() and not name.isdigit() and name.lower() not in ("key", "select")
        is_plain = is_plain and not (name[0].isdigit() and "e" in name.lower())
        return name if is_plain and self._often(0.5) else quote_identifier(name)

    def _table(self, table_id: TableId) -> str:
        is_qualified = table_id.database != DATABASES[0] or self._often(0.3)
        point = self._one(".", ".", ".", " . ")
        bare = table_id.table if table_id.table in ("2x", "20151214") and is_qualified and point == "." else ""
        table = bare if bare and self._often(0.7) else self._name(table_id.table)
        return f"{self._name(table_id.database)}{point}{table}" if is_qualified else table

    def _new_table(self) -> str:
        return self._table(TableId(database=self._one(*DATABASES[:1], *DATABASES), table=self._one(*_TABLES)))

    def _any(self, tables: State) -> tuple[TableId, ServerTable]:
        return self._one(*tables.items())

    # --- definitions -------------------------------------------------------------------------------------------------------

    def _definition(self, *, names: Sequence[str] = _COLUMNS) -> str:
        type_sql = self._one(*TYPES)
        if self._often(0.08):
            expression = self._one("(1)", "(CONCAT('x', 1))", *(self._of_columns(names)), "(1.5 + 2)", "(NULL)")
            return (
                f"{type_sql} {self._one('GENERATED ALWAYS', '')} AS {expression} {self._one('VIRTUAL', 'STORED', '')}"
            )
        attributes = [
            self._charset(type_sql),
            self._one("", "", "NOT NULL", "NOT NULL", "NULL"),
            self._default(type_sql),
        ]
        attributes.append(self._one(*_ATTRIBUTES))
        rest = attributes[1:]
        self._random.shuffle(rest)
        return " ".join(filter(None, (type_sql, attributes[0], *rest)))

    def _of_columns(self, names: Sequence[str]) -> list[str]:
        """Expressions over other columns, JSON among them."""
        return [
            self._one("({0})", "(JSON_EXTRACT({0}, '$.a'))", "({0}->>'$.a')", "(CAST({0}->'$.k' AS CHAR(9)))", "(HEX({0}))",
                      "(JSON_OBJECT('v', {0}))", "(COALESCE({0}, 1))").format(quote_identifier(name))
            for name in names[:2]
        ]  # fmt: skip

    def _parts(self, column: str) -> str:
        """The parts of an index over a column."""
        return str(self._one(*_PARTS)).format(quote_identifier(column))

    def _odd_name(self) -> str:
        """Up to 64 characters. The server keeps one beyond the Basic Multilingual Plane as a question mark."""
        alphabet = self._one(
            _ODD_CHARACTERS, _ODD_CHARACTERS, _BEYOND, "".join(map(chr, self._random.sample(_BMP, 40)))
        )
        name = "".join(self._random.choices(alphabet, k=self._one(1, 2, 3, 8, 64))).rstrip(" ")
        return name or "x"

    def _charset(self, type_sql: str) -> str:
        has_charset = type_sql.split("(")[0] in _HAS_CHARSET or type_sql.endswith("text")
        if not has_charset or "binary" in type_sql or "byte" in type_sql or self._often(0.5):
            return ""
        return self._one(
            f"CHARACTER SET {self._one(*_CHARSETS)}",
            f"CHARSET {self._one(*_CHARSETS)}",
            f"COLLATE {self._one(*_COLLATIONS)}",
        )

    def _default(self, type_sql: str) -> str:
        value = self._one(*TYPES[type_sql])
        if type_sql.startswith(("timestamp", "datetime")) and self._often(0.3):
            digits = type_sql.partition("(")[2]
            now = f"CURRENT_TIMESTAMP({digits}" if digits else self._one("CURRENT_TIMESTAMP", "NOW()", "LOCALTIME")
            return self._one(f"DEFAULT {now}", f"DEFAULT {now} ON UPDATE {now}", f"ON UPDATE {now}", "DEFAULT 0")
        if self._often(0.5):
            return ""
        if self._often(0.12):
            return f"DEFAULT ({self._one(value, value, value, *_EXPRESSIONS)})"
        return f"DEFAULT {value}"

    def _columns(self, *, key: str) -> list[str]:
        names = self._random.sample(_COLUMNS, self._one(1, 2, 3, 5))
        if self._often(0.12):
            names[0] = self._odd_name()
        return [
            *filter(None, [key]),
            *(f"{self._name(name)} {self._definition(names=names)}" for name in names if name.lower() not in key),
        ]

    def _create(self) -> list[str]:
        verb = ["CREATE", "TABLE", self._one("", "", "", "IF NOT EXISTS")]
        others = list(self._state())
        if others and self._often(0.15):
            source = self._table(self._one(*others))
            if self._often(0.5):
                return [*verb, self._new_table(), f"LIKE {source}" if self._often(0.6) else f"(LIKE {source})"]
            return [
                *verb,
                self._new_table(),
                self._one("", "(extra INT DEFAULT 4)"),
                self._one("", "AS"),
                "SELECT * FROM",
                source,
            ]
        key = self._one(
            "id INT NOT NULL PRIMARY KEY", "id INT PRIMARY KEY", "id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY",
            "id INT AUTO_INCREMENT KEY", "id SERIAL", "id VARCHAR(9) PRIMARY KEY", "id DATE NOT NULL PRIMARY KEY",
            "id ENUM('','a','b') NOT NULL PRIMARY KEY", "id DECIMAL(9,2) PRIMARY KEY", "id VARBINARY(5) PRIMARY KEY",
            "id INT NOT NULL, id2 INT NOT NULL DEFAULT 1, PRIMARY KEY (id2, id)", "id INT", "", "id INT NOT NULL UNIQUE",
        )  # fmt: skip
        options = self._one(
            "", "", "", "CHARSET latin1", "COLLATE utf8mb4_bin COMMENT='it''s'", "CHARACTER SET binary", "ENGINE=InnoDB",
            "DEFAULT CHARSET=gbk", "ROW_FORMAT=DYNAMIC", "PARTITION BY HASH (id) PARTITIONS 2",
            "PARTITION BY LINEAR KEY (id) PARTITIONS 3",
            "PARTITION BY LIST (id) (PARTITION p0 VALUES IN (1,2,3,4,5,6), PARTITION p1 VALUES IN (7,8,9,10,11,12))",
            "PARTITION BY RANGE COLUMNS (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 "
            "(PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN (MAXVALUE))",
            "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN MAXVALUE)",
            "ENGINE=MyISAM", "START TRANSACTION", "AUTO_INCREMENT=100",
        )  # fmt: skip
        columns = self._columns(key=key)
        if self._often(0.01):
            columns += [f"w{nth} {self._one('TINYINT', 'BIT(3)', 'DATE', 'INT DEFAULT 1')}" for nth in range(1000)]
        extra = self._one(
            "",
            "",
            "",
            f", INDEX ({self._name('id')})",
            ", UNIQUE KEY u1 (id)",
            ", CHECK (1)",
            ", CONSTRAINT ck CHECK (id <> 77) NOT ENFORCED",
            ", INDEX f1 ((HEX(id)))",
            ", UNIQUE f2 ((id + 1))",
        )
        return [*verb, self._new_table(), "(" + ", ".join(columns) + extra + ")", options]

    # --- DDL ---------------------------------------------------------------------------------------------------------------

    def _ddl(self, tables: State) -> list[str]:
        table_id, table = self._any(tables)
        name = self._table(table_id)
        roll = self._random.random()
        if roll < 0.62:
            clauses = [self._clause(table) for _ in range(self._one(1, 1, 1, 2, 2, 3, 5))]
            algorithm = self._one(*_ALGORITHMS)
            return ["ALTER", "TABLE", name, ", ".join(clauses) + algorithm]
        if roll < 0.67:
            other = self._one(*tables)
            if other != table_id and self._often(0.6):
                swap = self._table(TableId(database=DATABASES[0], table="swap"))
                first, second = self._table(table_id), self._table(other)
                return ["RENAME", "TABLE", f"{first} TO {swap}, {second} TO {name}, {swap} TO {self._table(other)}"]
            if len(tables) > 2 and self._often(0.5):
                swap = self._table(TableId(database=DATABASES[0], table="swap"))
                a, b, c = (self._table(each) for each in self._random.sample(list(tables), 3))
                return ["RENAME", "TABLE", f"{a} TO {swap}, {b} TO {a}, {c} TO {b}, {swap} TO {c}"]
            return ["RENAME", self._one("TABLE", "TABLES"), name, "TO", self._new_table()]
        if roll < 0.71:
            return ["TRUNCATE", self._one("", "TABLE"), name]
        if roll < 0.75:
            return ["DROP", "TABLE", self._one("", "IF EXISTS"), name, self._one("", "RESTRICT", "CASCADE")]
        if roll < 0.82:
            column = self._column(table).name
            kind = self._one("", "UNIQUE", "FULLTEXT", "SPATIAL")
            if self._often(0.3):
                return ["DROP", "INDEX", self._one("u1", "i1", quote_identifier(column), "`PRIMARY`"), "ON", name]
            return [
                "CREATE",
                kind,
                "INDEX",
                self._one("u1", "i1"),
                "ON",
                name,
                self._parts(column),
            ]
        if roll < 0.86:
            return self._partitions(name)
        if roll < 0.93:
            return self._around(name, table)
        if roll < 0.95:
            temporary = self._one("CREATE TEMPORARY TABLE {0} (id INT)", "CREATE TEMPORARY TABLE tmp LIKE {0}",
                                  "DROP TEMPORARY TABLE IF EXISTS {0}",
                                  "CREATE TEMPORARY TABLE {0} SELECT 1 AS x")  # fmt: skip
            return [temporary.format(name)]
        if roll < 0.97:
            return [f"ALTER DATABASE {table_id.database} CHARACTER SET {self._one(*_CHARSETS)}"]
        return [
            self._one(
                f"ANALYZE TABLE {name}",
                f"OPTIMIZE TABLE {name}",
                f"CHECK TABLE {name}",
                f"FLUSH TABLES {name}",
                "FLUSH LOGS",
            )
        ]

    def _clause(self, table: ServerTable) -> str:
        column = self._column(table)
        old = self._name(column.name)
        new = self._name(self._odd_name() if self._often(0.08) else self._one(*_COLUMNS))
        place = self._one("", "", "", "FIRST", f"AFTER {self._name(self._column(table).name)}")
        word = self._one("COLUMN ", "")
        kept = self._kept_definition(column)
        clause: str = self._one(
            lambda: f"ADD {word}{new} {self._definition()} {place}",
            lambda: f"ADD {word}{new} {self._definition()} {place}",
            lambda: f"ADD {word}{new} {self._definition()} {place}",
            lambda: f"ADD {word}({new} {self._definition()})",
            lambda: f"DROP {word}{old}",
            lambda: f"DROP {word}{old}",
            lambda: f"DROP COLUMN {old}, ADD COLUMN {old} {self._definition()}",
            lambda: f"MODIFY {word}{old} {self._definition()} {place}",
            lambda: f"MODIFY {word}{old} {kept} {place}",
            lambda: f"CHANGE {word}{old} {new} {self._definition()} {place}",
            lambda: f"CHANGE {word}{old} {new} {kept} {place}",
            lambda: f"CHANGE {word}{old} {self._name(column.name.swapcase())} {kept}",
            lambda: f"RENAME COLUMN {old} TO {new}",
            lambda: self._swap(table),
            lambda: f"ALTER {word}{old} SET DEFAULT {self._one(*TYPES[self._one(*TYPES)])}",
            lambda: f"ALTER {word}{old} DROP DEFAULT",
            lambda: f"ALTER {word}{old} SET {self._one('INVISIBLE', 'VISIBLE')}",
            lambda: f"ADD {self._one(*_KEYS)} {self._parts(column.name)}",
            lambda: f"ADD {self._one('', 'CONSTRAINT ck3 ')}CHECK ({self._one('1', 'LENGTH(' + old + ') < 500')})",
            lambda: self._one("DROP CHECK ck", "ALTER CHECK ck NOT ENFORCED", "ALTER CHECK ck ENFORCED", "DROP CONSTRAINT ck2"),
            lambda: f"ALTER {word}{old} SET DEFAULT ({self._one(*_EXPRESSIONS)})",
            lambda: f"ALTER INDEX {self._one('u1', 'i1', old)} {self._one('INVISIBLE', 'VISIBLE')}",
            lambda: f"CONVERT TO {self._one('CHARSET', 'CHARACTER SET')} utf8mb4 COLLATE {self._one(*_COLLATIONS)}",
            lambda: f"ADD PRIMARY KEY ({old})",
            lambda: "DROP PRIMARY KEY",
            lambda: f"DROP PRIMARY KEY, ADD PRIMARY KEY ({old})",
            lambda: f"DROP {self._one('INDEX', 'KEY')} {self._one('u1', 'u2', 'c1', 'i1', old)}",
            lambda: f"RENAME INDEX {self._one('u1', old)} TO {self._one('u3', 'i3')}",
            lambda: f"CONVERT TO CHARACTER SET {self._one(*_CHARSETS)}",
            lambda: f"{self._one('', 'DEFAULT ')}CHARACTER SET {self._one(*_CHARSETS)}",
            lambda: f"RENAME {self._one('TO', 'AS', '=', '')} {self._new_table()}",
            lambda: self._one("COMMENT='x'", "AUTO_INCREMENT=50", f"ORDER BY {old}", "FORCE", "ENGINE=InnoDB", "DISABLE KEYS",
                              "ROW_FORMAT=COMPACT", "REMOVE PARTITIONING", "ENGINE=MyISAM", "STATS_PERSISTENT=1"),
        )()  # fmt: skip
        return clause

    def _swap(self, table: ServerTable) -> str:
        a, b = (quote_identifier(self._column(table).name) for _ in range(2))
        return f"RENAME COLUMN {a} TO {b}, RENAME COLUMN {b} TO {a}"

    def _kept_definition(self, column: ServerColumn) -> str:
        """Of the same type, or of a like one."""
        like = {
            "int": "bigint", "tinyint": "int", "smallint": "mediumint", "varchar(30)": "varchar(60)",
            "char(10)": "varchar(10)",
            "decimal(12,2)": "decimal(14,3)", "datetime": "datetime(3)", "date": "datetime", "float": "double",
            "time": "time(6)",
            "text": "longtext", "bigint": "decimal(20,0)", "datetime(6)": "datetime(3)", "decimal(65,30)": "decimal(60,10)",
        }  # fmt: skip
        source_type = like.get(column.source_type, column.source_type) if self._often(0.5) else column.source_type
        charset = f" CHARACTER SET {column.charset}" if column.charset and self._often(0.7) else ""
        return f"{source_type}{charset} {self._one('', 'NULL', '' if column.is_optional else 'NOT NULL')}"

    def _partitions(self, name: str) -> list[str]:
        return [
            "ALTER", "TABLE", name,
            self._one("TRUNCATE PARTITION p0", "DROP PARTITION p0", "ADD PARTITION PARTITIONS 1", "COALESCE PARTITION 1",
                      "REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES LESS THAN (50), PARTITION p2 VALUES LESS THAN (90))",
                      "REBUILD PARTITION p0", "PARTITION BY KEY () PARTITIONS 3", "TRUNCATE PARTITION ALL",
                      f"EXCHANGE PARTITION p0 WITH TABLE {self._new_table()}", "REMOVE PARTITIONING"),
        ]  # fmt: skip

    def _around(self, name: str, table: ServerTable) -> list[str]:
        """Views, triggers, routines and foreign keys."""
        column, other = self._column(table).name, self._table(self._one(*self._state()))
        return [
            self._one(
                f"CREATE OR REPLACE VIEW v1 AS SELECT * FROM {name}",
                "DROP VIEW IF EXISTS v1",
                f"CREATE TRIGGER {self._one('tr1', 'tr2')} {self._one('BEFORE', 'AFTER')} "
                f"{self._one('INSERT', 'UPDATE', 'DELETE')} ON {name} "
                f"FOR EACH ROW {self._one('SET @x = 1', f'INSERT IGNORE INTO {other} () VALUES ()', f'DELETE FROM {other}')}",
                "DROP TRIGGER IF EXISTS tr1",
                f"CREATE PROCEDURE pr{self._one(1, 2)}() BEGIN START TRANSACTION; DELETE FROM {name} LIMIT 1; COMMIT; END",
                "CALL pr1()",
                f"CREATE FUNCTION fn1() RETURNS INT MODIFIES SQL DATA BEGIN INSERT IGNORE INTO {name} VALUES (); RETURN 1; END",
                "SELECT fn1()", "DO fn1()",
                f"ALTER TABLE {name} ADD CONSTRAINT fk1 FOREIGN KEY ({quote_identifier(column)}) REFERENCES {other} (id) "
                f"ON DELETE {self._one('CASCADE', 'SET NULL', 'RESTRICT')} ON UPDATE {self._one('CASCADE', 'SET NULL')}",
                f"ALTER TABLE {name} DROP FOREIGN KEY fk1",
            )
        ]  # fmt: skip

    # --- rows --------------------------------------------------------------------------------------------------------------

    def _column(self, table: ServerTable) -> ServerColumn:
        return self._one(*table.columns)

    def _value(self, column: ServerColumn) -> str:
        if column.name.lower() in ("id", "id2") and self._often(0.9):
            return str(self._one(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12))
        if self._often(0.06):
            return "DEFAULT"
        values = TYPES.get(column.source_type) or _values_like(column.source_type)
        return str(self._one(*values))

    def _dml(self, tables: State) -> list[str]:
        table_id, table = self._any(tables)
        name = self._table(table_id)
        ignored = self._one("", "", "IGNORE")
        where = self._one(
            "WHERE id = {0}", "WHERE id > {0} LIMIT 3", "WHERE id <= {0}", "ORDER BY 1 LIMIT 1", ""
        ).format(self._one(1, 3, 5))
        roll = self._random.random()
        if roll < 0.5:
            return self._insert(name, table)
        if roll < 0.8:
            sets = ", ".join(
                f"{self._name(c.name)} = {self._changed(c)}" for c in self._settable(table)[: self._one(1, 1, 2, 4)]
            )
            target = self._one(name, name, name, "v1")
            return ["UPDATE", ignored, target, "SET", sets or "id = id", where]
        if roll < 0.88:
            return ["DELETE", ignored, self._one("FROM", "LOW_PRIORITY FROM"), self._one(name, name, "v1"), where]
        if roll < 0.92:
            other = self._table(self._one(*tables))
            return ["INSERT", "IGNORE", "INTO", name, "SELECT * FROM", other, self._one("LIMIT 2", "")]
        if roll < 0.96:
            other = self._table(self._one(*tables))
            return self._one(
                ["UPDATE", "IGNORE", f"{name} p JOIN {other} q ON p.id = q.id", "SET", "p.id = p.id + 20"],
                ["DELETE", f"p, q FROM {name} p JOIN {other} q ON p.id = q.id", "WHERE p.id = 3"],
                ["WITH x AS (SELECT 2 AS id)", "DELETE", "FROM", name, "WHERE id IN (SELECT id FROM x)"],
            )
        return ["DELETE", "FROM", name]

    def _settable(self, table: ServerTable) -> list[ServerColumn]:
        columns = [column for column in table.columns if not any("GENERATED" in word for word in column.extra)]
        self._random.shuffle(columns)
        return columns

    def _changed(self, column: ServerColumn) -> str:
        name = quote_identifier(column.name)
        if column.source_type == "json" and self._often(0.6):
            return self._one(f"JSON_SET({name}, '$.a', {self._one(1, '0.1', 'NULL')})", f"JSON_REMOVE({name}, '$[last]')",
                             f"JSON_REPLACE({name}, '$.k', 'y')", f"JSON_REMOVE({name}, '$.a.b')",
                             f"JSON_SET({name}, '$[0]', 'z')")  # fmt: skip
        return self._value(column) if self._often(0.9) else name

    def _insert(self, name: str, table: ServerTable) -> list[str]:
        columns = self._settable(table)
        columns = columns[: self._random.randrange(len(columns) + 1)] if self._often(0.3) else columns
        if columns and self._often(0.7):
            columns = sorted(columns, key=lambda column: column.name.lower() != "id")
        rows = [
            "(" + ", ".join(self._value(column) for column in columns) + ")" for _ in range(self._one(1, 1, 1, 2, 3))
        ]
        names = "(" + ", ".join(self._name(column.name) for column in columns) + ")"
        verb = self._one(
            ["INSERT", "INTO"], ["INSERT", "INTO"], ["INSERT", "IGNORE", "INTO"], ["REPLACE", "INTO"], ["INSERT"]
        )
        if self._often(0.1) and columns and verb[0] == "INSERT":
            sets = ", ".join(f"{self._name(column.name)} = {self._value(column)}" for column in columns)
            return [*verb, name, "SET", sets]
        update = ""
        if verb[0] == "INSERT" and self._often(0.15):
            column = self._column(table)
            update = f"ON DUPLICATE KEY UPDATE {quote_identifier(column.name)} = {self._value(column)}"
        return [*verb, name, names, self._one("VALUES", "VALUES", "VALUE"), ", ".join(rows), update]

    def _transaction(self, session: str, tables: State) -> Iterator[Step]:
        yield Step(session, self._one("BEGIN", "START TRANSACTION", "START TRANSACTION WITH CONSISTENT SNAPSHOT"))
        for _ in range(self._one(1, 2, 3)):
            if self._often(0.3):
                yield Step(session, self._one("SAVEPOINT s", "SAVEPOINT `a b`"))
            yield self._step(session, self._dml(tables))
            if self._often(0.2):
                yield Step(session, self._one("ROLLBACK TO s", "RELEASE SAVEPOINT s"))
        yield Step(session, self._one("COMMIT", "COMMIT", "ROLLBACK"))

    def _xa(self, tables: State) -> Iterator[Step]:
        self._xids += 1
        xid = self._one(f"'x{self._xids}'", f"'g{self._xids}', 'b', 7")
        yield Step("x", f"XA START {xid}")
        for _ in range(self._one(1, 2)):
            yield self._step("x", self._dml(tables))
        yield Step("x", f"XA END {xid}")
        if self._often(0.3):
            yield Step("x", f"XA COMMIT {xid} ONE PHASE")
            return
        yield Step("x", f"XA PREPARE {xid}")
        if self._often(0.5):
            yield self._step("a", self._dml(tables))
        yield Step("x", f"XA {self._one('COMMIT', 'ROLLBACK')} {xid}")


def _values_like(source_type: str) -> Sequence[str]:
    """Of a type that is written otherwise than ``TYPES`` has it."""
    word = source_type.split("(")[0].split(" ")[0]
    return next(
        (values for type_sql, values in TYPES.items() if type_sql.split("(")[0].split(" ")[0] == word), _NUMBERS
    )
