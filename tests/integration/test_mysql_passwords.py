"""Passwords of any characters, as MySQL itself takes them."""

from libs.config.load import Secret
from libs.source.mysql.client import connect
from libs.source.mysql.settings import DatabaseSettings, TlsMode
from tests.conftest import MysqlServer

PASSWORDS = ("plain", "pä$$wörd", "→€ 日本", "\U0001f511", "'\"\\`", "ÿ")


def test_a_password_of_any_characters_lets_the_reader_in(mysql_server: MysqlServer) -> None:
    """With TLS and without; PyMySQL alone refuses characters that Latin-1 lacks, and sends other bytes for those that it
    has."""
    for number, password in enumerate(PASSWORDS):
        user = f"anybody_{number}"
        with mysql_server.connect() as root, root.cursor() as cursor:
            cursor.execute(f"CREATE USER {user} IDENTIFIED BY %s", (password,))
        try:
            for mode in (TlsMode.REQUIRED, TlsMode.DISABLED):
                settings = DatabaseSettings(
                    host=mysql_server.host,
                    port=mysql_server.port,
                    user=user,
                    password=Secret(password),
                    tls_mode=mode,
                )
                with connect(settings) as connection, connection.cursor() as cursor:
                    cursor.execute("SELECT CURRENT_USER()")
                    assert cursor.fetchone() == (f"{user}@%",), (password, mode)
        finally:
            mysql_server.execute(f"DROP USER {user}")
