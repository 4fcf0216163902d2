"""Rows of a table as Spark has them, by its own JDBC reader.

Every value comes as text, in the form that ``copy_text`` wrote it in, and becomes Spark's type there: the driver's own dates
know another calendar before 1582, and its numbers no more than 38 digits.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from libs.postgresql.names import column_name, quoted
from spark.sinks.postgresql.settings import Settings

_FETCHED_ROWS: Final = 10_000


def read_rows(
    spark: SparkSession, settings: Settings, columns: Mapping[str, str], source: str, *, snapshot: str | None = None
) -> DataFrame:
    """``columns``: Spark's types by the source's names; ``source``: the text after FROM, the table as ``t``.

    ``snapshot``: that of a transaction that still runs, as ``pg_export_snapshot`` named it; without it each read of the rows
    finds the rows that are there then.
    """
    # The reader begins a transaction before it (Spark: PostgresDialect.beforeFetch), of which these are the first statements.
    begin = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
    as_of = {} if snapshot is None else {"sessionInitStatement": f"{begin}; SET TRANSACTION SNAPSHOT '{snapshot}'"}
    listed = ", ".join(f"{_text_of(name, kind)} AS c{number}" for number, (name, kind) in enumerate(columns.items()))
    texts = (
        spark.read.format("jdbc")
        .option("driver", "org.postgresql.Driver")
        .option("url", jdbc_url(settings))
        .option("user", settings.user)
        .option("password", settings.password.reveal())
        .option("query", f"SELECT {listed} FROM {source}")
        .options(**as_of)
        .option("fetchsize", _FETCHED_ROWS)
        .load()
    )
    return texts.select(
        *(_value_of(sf.col(f"c{number}"), kind).alias(name) for number, (name, kind) in enumerate(columns.items()))
    )


def jdbc_url(settings: Settings) -> str:
    """As ``libs.postgresql.connection`` connects, by the driver's names."""
    more = {
        "sslmode": settings.tls_mode.value,
        "connectTimeout": str(settings.connect_timeout_s),
        "ApplicationName": "headwater-sink-read",
        "options": "-c DateStyle=ISO -c extra_float_digits=1",
        **({} if settings.tls_ca_file is None else {"sslrootcert": settings.tls_ca_file}),
    }
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"jdbc:postgresql://{host}:{settings.port}/{settings.database}?{urlencode(more)}"


def _text_of(name: str, spark_type: str) -> str:
    column = f"t.{quoted(column_name(name))}"
    match spark_type:
        case "binary":
            return f"encode({column}, 'hex')"
        case "timestamp":
            return f"({column} AT TIME ZONE 'UTC')::text"
        case _:
            return f"{column}::text"


def _value_of(text: SparkColumn, spark_type: str) -> SparkColumn:
    match spark_type:
        case "binary":
            return sf.unhex(text)
        case _:
            return text.cast(spark_type)  # the session's zone is UTC
