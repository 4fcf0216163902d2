"""Names in MySQL statements (MySQL manual, "Schema Object Names")."""

from libs.types.table import TableId


def quote_identifier(name: str) -> str:
    """``name`` as a statement may hold it, whatever characters it has.

    >>> quote_identifier("odd`name")
    '`odd``name`'
    """
    return "`" + name.replace("`", "``") + "`"


def quote_table(table_id: TableId) -> str:
    """The table's full name as a statement may hold it.

    >>> quote_table(TableId(database="shop", table="orders"))
    '`shop`.`orders`'
    """
    return f"{quote_identifier(table_id.database)}.{quote_identifier(table_id.table)}"
