"""The reader's pre-flight, asked by a person: can the server of a source's document be followed?"""

from libs.local.documents import SourceDocument
from libs.mysql.preflight import PreflightReport, check_source
from libs.source.mysql.client import connect
from libs.source.mysql.settings import DatabaseSettings


def preflight(document: SourceDocument) -> PreflightReport:
    """Every fault of the source's server, each with its mend; changes nothing. Blocks.

    Raises SourceUnavailable, AccessDenied.
    """
    database = document.database
    connection = connect(
        DatabaseSettings(host=database.host, port=database.port, user=database.user, password=database.password)
    )
    try:
        return check_source(connection, needs_full_images=document.values.unavailable_placeholder is None)
    finally:
        connection.close()
