"""The parts of the demo that differ by the kind of its source; all else is one flow (``run``).

mysql     a MySQL, and its own log
dts       a MySQL, its log written to Kafka as Tencent's DTS would, and read from there
vitess    two MySQL servers as the shards of a keyspace, with a stand-in for vtgate
oracle    a stand-in for an Oracle server, which is the database too
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, modes

from libs.demo.mysql_shop import Shop, ShopPart
from libs.demo.mysql_traffic import MysqlShop
from libs.demo.oracle_shop import OWNER_PASSWORD, SCHEMA, SERVICE, OraclePlace
from libs.demo.oracle_traffic import OracleShop
from libs.demo.shop import DATABASE, NUMBER_COLUMNS, READER_PASSWORD, READER_USER, DemoShop
from libs.servers.ports import LOOPBACK, free_ports
from libs.stack.own_servers import OwnOracle, OwnServers, OwnSubscription, OwnVtgate

SHARDS: Final = ("-80", "80-")

_WHOLE_SECONDS: Final = "this source gives commit times in whole seconds: latencies show up to 1 s too much"


@dataclass(frozen=True, slots=True)
class DemoSource:
    """One kind of source, ready to be started."""

    servers: OwnServers
    document: str
    """``sources/shop.yaml``."""
    shop: DemoShop
    remarks: tuple[str, ...] = ()
    """The stand-ins, and measurements that are coarser than with MySQL."""
    rows_share: float = 1.0
    """Of the shop's rows, so many are made."""
    has_capitals: bool = False
    """Names of tables and columns are in capitals."""

    def named(self, name: str) -> str:
        """A name of the shop, as the source has it."""
        return name.upper() if self.has_capitals else name


def _mysql() -> DemoSource:
    (port,) = free_ports(1)
    return DemoSource(
        servers=OwnServers(mysql_ports={"mysql": port}),
        document=f"""\
# The demo's MySQL; it is part of the stack and listens on loopback only.
kind: mysql
database: {{host: {LOOPBACK}, port: {port}, user: {READER_USER}, password: {READER_PASSWORD}}}
include_tables: ['shop\\..*']
transaction_metadata: true
""",
        shop=MysqlShop(Shop((ShopPart(port, DATABASE),))),
    )


def _dts() -> DemoSource:
    (port,) = free_ports(1)
    topic = "topic-subs-demo-shop"
    return DemoSource(
        servers=OwnServers(
            mysql_ports={"mysql": port},
            subscription=OwnSubscription(topic=topic, user=READER_USER, password=READER_PASSWORD),
        ),
        document=f"""\
# The demo's MySQL, and the topic that the stand-in for Tencent's DTS writes in the stack's own Kafka.
kind: dts
database: {{host: {LOOPBACK}, port: {port}, user: {READER_USER}, password: {READER_PASSWORD}}}
subscription: {{topic: {topic}, group_id: consumer-grp-subs-demo-headwater}}
include_tables: ['shop\\..*']
transaction_metadata: true
""",
        shop=MysqlShop(Shop((ShopPart(port, DATABASE),))),
        remarks=(
            "a stand-in writes MySQL's log as DTS would (libs/stand_ins/dts); no real DTS was ever seen: docs/dts.md",
            _WHOLE_SECONDS,
        ),
    )


def _vitess() -> DemoSource:
    vtgate_port, *ports = free_ports(1 + len(SHARDS))
    names = [f"mysql-{number}" for number in range(1, len(SHARDS) + 1)]
    return DemoSource(
        servers=OwnServers(
            mysql_ports=dict(zip(names, ports, strict=True)),
            vtgate=OwnVtgate(
                port=vtgate_port,
                keyspace=DATABASE,
                shards=dict(zip(SHARDS, names, strict=True)),
                vindex_columns=NUMBER_COLUMNS,
            ),
        ),
        document=f"""\
# The demo's keyspace: two MySQL servers and the stand-in for vtgate, all of them part of the stack.
kind: vitess
vtgate: {{host: {LOOPBACK}, port: {vtgate_port}}}
keyspace: {DATABASE}
include_tables: ['shop\\..*']
events: {{transaction_metadata: on}}
""",
        shop=MysqlShop(
            Shop(
                tuple(ShopPart(port, f"vt_{DATABASE}_{shard}") for shard, port in zip(SHARDS, ports, strict=True)),
                part_of=shard_of,
            )
        ),
        remarks=(
            "two real MySQL servers are the shards; a stand-in is vtgate (libs/stand_ins/vtgate); no real Vitess was seen: "
            "docs/vitess-stand-in.md",
            _WHOLE_SECONDS,
        ),
    )


def _oracle() -> DemoSource:
    (port,) = free_ports(1)
    user = f"C##{READER_USER.upper()}"
    return DemoSource(
        servers=OwnServers(oracle=OwnOracle(port=port, users={user: READER_PASSWORD, SCHEMA: OWNER_PASSWORD})),
        document=f"""\
# The demo's stand-in for an Oracle server; it is part of the stack and listens on loopback only.
kind: oracle
database: {{host: {LOOPBACK}, port: {port}, service_name: {SERVICE}, user: '{user}', password: {READER_PASSWORD}}}
include_tables: ['{SCHEMA}\\..*']
transaction_metadata: true
""",
        shop=OracleShop(OraclePlace(port)),
        remarks=(
            "a stand-in is the Oracle server, with a tenth of the rows (libs/stand_ins/oracle); no real Oracle was ever seen: "
            "docs/oracle.md",
            _WHOLE_SECONDS,
        ),
        rows_share=0.1,
        has_capitals=True,
    )


DEMO_SOURCES: Final[Mapping[str, Callable[[], DemoSource]]] = {
    "mysql": _mysql,
    "dts": _dts,
    "vitess": _vitess,
    "oracle": _oracle,
}
WITHOUT_MYSQL: Final = frozenset({"oracle"})
"""Kinds whose demo runs no MySQL server."""

_CIPHER: Final = Cipher(TripleDES(bytes(24)), modes.ECB())  # noqa: S305 - it hides nothing: Vitess hashes so


def shard_of(number: int) -> int:
    """Which of SHARDS a number lies in, by Vitess's ``hash`` vindex (Vitess documentation, "Vindexes").

    The number is encrypted by DES with a key of zeros; the first bit of the result decides between two halves.
    """
    encryptor = _CIPHER.encryptor()
    return encryptor.update(number.to_bytes(8, "big"))[0] >> 7
