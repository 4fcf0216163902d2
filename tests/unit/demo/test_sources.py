"""The demo's sources: each gives a good document and servers that the stack can run."""

from pathlib import Path

import pytest

from libs.demo.mysql_traffic import MysqlShop
from libs.demo.oracle_traffic import OracleShop
from libs.demo.shop import NUMBER_COLUMNS, ROWS
from libs.demo.sources import DEMO_SOURCES, SHARDS, shard_of
from libs.mesh.documents import DOCUMENT_OF_KIND, read_documents
from libs.mesh.home import home_at, write_examples
from libs.source.kinds import READER_OF_KIND
from libs.stand_ins.vtgate.vindex import KeyRange, keyspace_id


def test_every_kind_of_source_has_a_demo() -> None:
    """A reader that is added comes with one."""
    assert DEMO_SOURCES.keys() == READER_OF_KIND.keys()


@pytest.mark.parametrize("kind", list(DEMO_SOURCES))
def test_its_document_is_good(kind: str, tmp_path: Path) -> None:
    """And of the kind that was asked for."""
    home = home_at(tmp_path)
    write_examples(home)
    (home.sources_dir / "shop.yaml").write_text(DEMO_SOURCES[kind]().document)

    found = read_documents(home)

    assert found.source_mistakes == ()
    assert isinstance(found.sources["shop"], DOCUMENT_OF_KIND[kind])


@pytest.mark.parametrize("kind", list(DEMO_SOURCES))
def test_its_shop_lies_on_its_servers(kind: str) -> None:
    """The shop writes to the server that is followed."""
    source = DEMO_SOURCES[kind]()

    if isinstance(source.shop, OracleShop):
        assert source.servers.oracle is not None
        assert source.shop.port == source.servers.oracle.port
        return
    assert isinstance(source.shop, MysqlShop)
    shop = source.shop.shop
    assert [part.port for part in shop.parts] == list(source.servers.mysql_ports.values())
    assert all(0 <= shop.part_of(number) < len(shop.parts) for number in range(1, 200))


def test_numbers_are_dealt_as_vitess_deals_them() -> None:
    """The demo writes to the shards directly, so a wrong hash would put rows where vtgate does not look for them."""
    ranges = [KeyRange.parse(shard) for shard in SHARDS]
    numbers = [*range(1, 500), 1_000_001, 2**63]

    assert all(ranges[shard_of(number)].holds(keyspace_id(number)) for number in numbers)
    assert {shard_of(number) for number in numbers} == {0, 1}
    assert NUMBER_COLUMNS.keys() == ROWS.keys()
