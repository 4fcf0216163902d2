"""The transactions that a MySQL server has committed."""

import pymysql

from libs.source.mysql.client import as_ours, connect_to_any
from libs.source.mysql.settings import DatabaseSettings


def gtid_executed(settings: DatabaseSettings) -> str:
    """``gtid_executed`` as the server prints it, over a connection of its own.

    Raises:
        SourceUnavailable: it does not answer.
        AccessDenied, SourceMisconfigured: user, password, grants or names are wrong.
    """
    with connect_to_any(settings) as connection:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT @@GLOBAL.gtid_executed")
                return str(cursor.fetchall()[0][0])
        except pymysql.Error as error:
            raise as_ours(error, settings) from error
