"""How a source's own SQL names a column and writes a key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from libs.check import oracle_values, values
from libs.mysql.identifiers import quote_identifier as quote_in_mysql
from libs.oracle.ddl_text import quote_identifier as quote_in_oracle


@dataclass(frozen=True, slots=True)
class SourceSql:
    """Of one dialect."""

    quoted: Callable[[str], str]
    """A column's name."""
    key_literal: Callable[[str, object], str | None]
    """A canonical value of a key, of a type; None: its row may not be found by it."""


MYSQL_SQL: Final = SourceSql(quote_in_mysql, values.key_literal)
ORACLE_SQL: Final = SourceSql(quote_in_oracle, oracle_values.key_literal)
