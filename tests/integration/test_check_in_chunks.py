"""A table compared chunk by chunk: the same is found as at once, little is read, and a check that was stopped goes on.

The source is a real MySQL; the tables are Iceberg's and Delta's files, a real PostgreSQL's and ClickHouse's.
"""

import base64
import json
import random
import re
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from libs.check import compared, places
from libs.check.chunks import Chunk, chunk_behind, source_bounds
from libs.check.compared import stack_compared
from libs.check.mysql_rows import MysqlRows, consistent_snapshot
from libs.check.rounds import Piece, next_chunk, so_far, with_chunk
from libs.check.run import CheckReport, TableCheck, check
from libs.mesh.documents import read_documents
from libs.mesh.home import Home, home_at
from libs.source.mysql.settings import DatabaseSettings
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, write_shop
from tests.integration.test_check_by_sums import (
    KEYS,
    KINDS,
    Cell,
    Loaded,
    Rig,
    Rows,
    Store,
    rig_of,
    small_parts,
    store,
    text_of,
)
from tests.marks import rest
from tests.unit.warehouse_readers.warehouse_files import write_table

__all__ = ["small_parts", "store"]  # the fixtures


ROWS = 300
CHUNK_ROWS = 70
CHANCE_OF_PLAIN = 0.9
IN_SMALL_LETTERS = "[0-9A-Za-z-]*"
BY_CODES = "[0-9A-Za-z_.:@/+=-]*"


def uuid_of(number: int) -> Cell:
    """In letters of either size; the same for the same number."""
    text = str(uuid.UUID(int=random.Random(number).getrandbits(128)))
    return text_of(text.upper() if number % 3 else text)


def name_of(number: int) -> Cell:
    """Mostly plain; else characters that only look so, or that collations put elsewhere."""
    chance = random.Random(number)
    letters = "".join(chance.choices("abcXYZ019-", k=5))
    odd = chance.choice(("é", "ſ", "\u212a", "_", "a b", "\n", " ", "'", "\\", "ß", "%s"))
    return text_of(f"{letters}{'' if chance.random() < CHANCE_OF_PLAIN else odd}{number}")


def code_of(number: int) -> Cell:
    """Base 64, and now and then a character that is not of it."""
    code = base64.b64encode(random.Random(number).randbytes(6)).decode()
    return text_of(f"{code}{' é' if random.Random(number).random() > CHANCE_OF_PLAIN else '_'}{number}")


CHUNKED_KEYS = (
    *((key, ".*") for key in (*KEYS[:3], KEYS[4])),
    (("CHAR(36) CHARACTER SET ascii", pa.string(), uuid_of), IN_SMALL_LETTERS),
    (("VARCHAR(40) COLLATE utf8mb4_0900_ai_ci", pa.string(), name_of), IN_SMALL_LETTERS),
    (("VARCHAR(40) CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci", pa.string(), name_of), IN_SMALL_LETTERS),
    (("VARCHAR(40) COLLATE utf8mb4_bin", pa.string(), code_of), BY_CODES),
)
"""Each with the pattern of the texts that are plain in it."""
NOTED_WITHIN_S = 60.0


def in_chunks(
    rig: Rig, piece: Piece, rows: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[TableCheck], TableCheck]:
    """The check of each chunk, and of all of them."""
    monkeypatch.setattr(compared, "warehouse_of", lambda *_: Loaded(rig.stored))
    mesh = stack_compared(rig.home, read_documents(rig.home), is_up=False)
    begun, found = None, []
    while True:
        of_next = next_chunk(mesh, ["acme"], piece, begun, rows)
        assert of_next is not None
        chunk, shape = of_next
        report: CheckReport = check(mesh, ["acme"], limit=10_000, chunk=chunk)
        found += report.tables
        begun = with_chunk(piece, begun, chunk, shape, report)
        if chunk.is_last:
            [table] = so_far(begun, report).tables
            return found, table


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("seed", range(len(CHUNKED_KEYS)))
def test_chunks_find_what_is_found_at_once(
    seed: int,
    store: Store,
    mysql_server: MysqlServer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of keys of numbers, of bytes and of texts, of which those that are not plain are in the last chunk; also a column without
    a checksum, and rows where the source has none."""
    chance = random.Random(seed)
    key, plain = CHUNKED_KEYS[seed]
    rows = Rows([kind for kind in KINDS if kind.mysql in ("TINYINT", "JSON", "BIT(9)")], key)
    rows.make(chance, ROWS)
    odd = sum(isinstance(row[0], str) and re.fullmatch(plain, row[0]) is None for row in rows.warehouse)
    rows.plant(chance, 9)
    database = unique_name("chunks")
    rig = rig_of(rows, mysql_server, database, store, tmp_path)

    at_once = rig.check(monkeypatch, reads_all=True)
    parts, table = in_chunks(rig, Piece("shop", f"{database}.t"), CHUNK_ROWS, monkeypatch)

    assert len(parts) == table.chunks == (ROWS - odd) // CHUNK_ROWS + 1
    assert all(part.comparison.rows_compared <= CHUNK_ROWS + 9 for part in parts[:-1])
    assert parts[-1].comparison.rows_compared <= CHUNK_ROWS + 9 + odd
    assert all(part.rows_read < part.comparison.rows_compared for part in parts if not part.read_columns)
    differences = [difference for part in parts for difference in part.comparison.first]
    assert sorted(map(repr, differences)) == sorted(map(repr, at_once.comparison.first))
    assert at_once.comparison.rows_different > 3
    assert table.comparison.rows_different == at_once.comparison.rows_different
    assert table.comparison.rows_compared == at_once.comparison.rows_compared


@pytest.mark.parametrize("collation", sorted(places.COLLATIONS))
def test_a_collation_orders_plain_texts_as_their_codes_do(
    mysql_server: MysqlServer, unique_name: Callable[[str], str], collation: str
) -> None:
    """In small letters, where it distinguishes no case; and MySQL finds the same texts plain as an expression of Python's."""
    order = places.COLLATIONS[collation]
    plain = re.compile(BY_CODES if order is places.Order.CODES else IN_SMALL_LETTERS)
    chance = random.Random(collation)
    found = {"".join(chance.choices("\x01 !'-+09AZaz_~\x7f@[`{é", k=chance.randint(0, 3))) for _ in range(500)}
    letters = "".join(filter(plain.fullmatch, map(chr, range(128))))
    found |= {"".join(chance.choices(letters, k=chance.randint(0, 4))) for _ in range(2_000)} | set(letters)
    texts = list(
        {text.rstrip(" ").casefold() if order is places.Order.SMALL_LETTERS else text: text for text in found}.values()
    )
    if collation.startswith("ascii"):
        texts = [text for text in texts if text.isascii()]
    column, name = places.PlaceColumn("k", order), unique_name("collations")
    mysql_server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (k VARCHAR(9) CHARACTER SET {collation.split('_')[0]} COLLATE {collation})",
        f"INSERT INTO {name}.t VALUES {', '.join(f'({text_of(text)[0]})' for text in texts)}",
    )
    [condition] = places.source_plain([column])

    where = DatabaseSettings(host=mysql_server.host, port=mysql_server.port, user="root")
    with consistent_snapshot(where) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {places.selected(column)} FROM {name}.t WHERE {condition} ORDER BY k")
        in_order = [text for (text,) in cursor.fetchall()]

    expected = [text for text in texts if plain.fullmatch(text)]
    assert in_order == sorted(text.lower() if order is places.Order.SMALL_LETTERS else text for text in expected)
    assert len(in_order) > 500


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str], tmp_path: Path) -> str:
    """Items of five owners, one of them with most, keyed by owner and number."""
    name = unique_name("items")
    rows = [(owner, number) for owner in range(5) for number in range(200 if owner == 3 else 10)]
    mysql_server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.items (owner INT, number BIGINT UNSIGNED, note VARCHAR(9), PRIMARY KEY (owner, number))",
        f"INSERT INTO {name}.items VALUES " + ", ".join(f"({owner}, {number}, 'x')" for owner, number in rows),
    )
    home = home_at(tmp_path / "home")
    write_shop(home, mysql_server, name, {"acme": "{mode: mirror}"})
    deliver(home, name, rows)
    return name


def deliver(home: Home, database: str, rows: Sequence[tuple[int | None, int]]) -> None:
    held = pa.table(
        {
            "owner": pa.array([owner for owner, _ in rows], pa.int32()),
            "number": pa.array([number for _, number in rows], pa.decimal128(20, 0)),
            "note": ["x"] * len(rows),
        }
    )
    write_table(home, "acme", "shop", f"{database}.items", held, is_new=not home.catalog_file.exists())


@pytest.mark.usefixtures("small_parts")
def test_a_key_of_several_numbers_is_bounded_by_all_of_them(
    mysql_server: MysqlServer, database: str, tmp_path: Path
) -> None:
    """An owner with most of the rows is cut within; a row that the source cannot have is found in the first chunk."""
    home = home_at(tmp_path / "home")
    rows = [(owner, number) for owner in range(5) for number in range(200 if owner == 3 else 10)]
    deliver(home, database, [*(row for row in rows if row != (3, 150)), (None, 7)])
    mesh = stack_compared(home, read_documents(home), is_up=False)

    begun, parts = None, []
    for _ in range(4):
        of_next = next_chunk(mesh, ["acme"], Piece("shop", f"{database}.items"), begun, 70)
        assert of_next is not None
        report = check(mesh, ["acme"], limit=10, chunk=of_next[0])
        begun = with_chunk(Piece("shop", f"{database}.items"), begun, *of_next, report)
        parts += report.tables

    assert [part.chunk and part.chunk.up_to for part in parts] == [(3, 39), (3, 109), (3, 179), None]
    assert [part.comparison.rows_compared for part in parts] == [71, 70, 70, 30]
    assert [[each.key for each in part.comparison.first] for part in parts] == [[(None, 7)], [], [(3, 150)], []]
    assert all(part.rows_read < 30 for part in parts)


def chunks_of(source: MysqlRows, database: str) -> list[Chunk]:
    """Of 60 rows of its only table; the server counts the rows that it reads from here on."""
    [table] = [each for each in source.tables() if each.table_id.database == database]
    with source.connection.cursor() as cursor:
        cursor.execute("FLUSH STATUS")
    found = [chunk_behind(source, table, None, 60)]
    while not found[-1].is_last:
        found.append(chunk_behind(source, table, found[-1].up_to, 60))
    return found


def rows_read_at_the_source(server: MysqlServer, act: Callable[[MysqlRows], object]) -> int:
    """Of its tables, by the server's own count; the temporary ones of its answers aside."""
    where = DatabaseSettings(host=server.host, port=server.port, user="root")
    with consistent_snapshot(where) as connection:
        act(MysqlRows(connection))
        with connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS WHERE Variable_name IN ('Handler_read_next', 'Handler_read_rnd_next')")
            return sum(int(str(value)) for _, value in cursor.fetchall())


def test_finding_where_a_chunk_ends_walks_no_further_than_its_rows(mysql_server: MysqlServer, database: str) -> None:
    """From the end of the last one on: all chunks together read the table's index once."""
    found: list[Chunk] = []

    mysql_server.execute(f"ANALYZE TABLE {database}.items")

    read = rows_read_at_the_source(mysql_server, lambda source: found.extend(chunks_of(source, database)))

    assert [chunk.up_to for chunk in found] == [(3, 29), (3, 89), (3, 149), (4, 9), None]
    assert read <= 240 + 2 * len(found)


@pytest.mark.parametrize(
    "key", ["BINARY(16)", "CHAR(36) CHARACTER SET latin1", "VARCHAR(36)", "VARCHAR(36) COLLATE utf8mb4_bin"]
)
def test_a_chunk_between_texts_is_found_by_the_index(
    mysql_server: MysqlServer, unique_name: Callable[[str], str], key: str
) -> None:
    """Its rows are read, and no others; the last one has all rows looked through for those that have no place."""
    name = unique_name("texts")
    ids = sorted(str(uuid.UUID(int=random.Random(number).getrandbits(128))) for number in range(240))
    values = (f"UUID_TO_BIN('{each}')" if key.startswith("BINARY") else f"'{each}'" for each in ids)
    mysql_server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (k {key}, note VARCHAR(9), PRIMARY KEY (k)) CHARACTER SET utf8mb4",
        f"INSERT INTO {name}.t VALUES {', '.join(f'({value}, 1)' for value in values)}",
        f"ANALYZE TABLE {name}.t",
    )
    found: list[Chunk] = []

    def count(source: MysqlRows) -> None:
        with source.connection.cursor() as cursor:
            cursor.execute("FLUSH STATUS")
            for chunk in found[:-1]:
                cursor.execute(f"SELECT COUNT(note) FROM {name}.t WHERE {source_bounds(chunk)}")
                assert cursor.fetchall() == (("60",),)

    walked = rows_read_at_the_source(mysql_server, lambda source: found.extend(chunks_of(source, name)))
    read = rows_read_at_the_source(mysql_server, count)

    assert [str(uuid.UUID(str(chunk.up_to[0]))) if chunk.up_to else None for chunk in found] == [
        *(ids[nth] for nth in (59, 119, 179, 239)), None,
    ]  # fmt: skip
    assert walked <= 240 + 2 * len(found)
    assert read <= 240 + 2 * len(found)


@pytest.mark.parametrize(
    "change",
    [
        None,
        *rest("ADD COLUMN other INT", because="unit/check/test_rounds.py: a_table_that_changed_meanwhile_is_begun_…"),
    ],
)
def test_a_check_that_was_killed_within_a_table_goes_on_there(
    mysql_server: MysqlServer, database: str, tmp_path: Path, change: str | None
) -> None:
    """With the differences of before counted in; a table that has other columns now is begun again."""
    home, file = home_at(tmp_path / "home"), tmp_path / "check.json"
    rows = [(owner, number) for owner in range(5) for number in range(200 if owner == 3 else 10)]
    deliver(home, database, [row for row in rows if row != (0, 3)])
    options = ("check", "acme", "--every", "1", "--share", "0.5", "--chunk-rows", "50", "--resume-file", str(file))
    with HeadwaterCommand(home).start(*options) as command:
        try:
            assert command.stdout is not None
            output = iter(command.stdout.readline, "")
            assert any("owner=0, number=3" in line for line in output)
            deadline_s = time.monotonic() + NOTED_WITHIN_S
            while not file.exists():
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
        finally:
            command.kill()
    [begun] = json.loads(file.read_text())["begun"]
    if change is not None:
        mysql_server.execute(f"ALTER TABLE {database}.items {change}")

    with HeadwaterCommand(home).start(*options) as command:
        try:
            assert command.stdout is not None
            said = []
            for line in iter(command.stdout.readline, ""):
                said.append(line)
                if re.search(r"compared in .* difference\(s\)", line):
                    break
        finally:
            command.kill()

    text = "".join(said)
    assert begun["chunks"] >= 1
    assert ("starts again" in text) == (change is not None)
    assert ("owner=0, number=3" in text) == (change is not None)
    assert re.search(rf"^acme +{database}\.items +240 rows x +3 columns  DIFFERENT, 5 chunks$", text, re.M), text
