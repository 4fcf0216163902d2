"""Rows of this process as a frame, by way of Arrow."""

from collections.abc import Sequence
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def local_rows(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: str | StructType) -> DataFrame:
    """A frame of ``rows``; ``schema`` as a DDL string, or Spark's own.

    Of a list, ``createDataFrame`` makes an RDD that Python workers read first: half a second wherever the frame is used, and
    processes of 60 MB each.
    """
    import pyarrow as pa  # a sixth of the driver's memory, which most jobs never need

    fields = to_arrow_schema(cast(StructType, StructType.fromDDL(schema)) if isinstance(schema, str) else schema)
    columns = [pa.array([row[number] for row in rows], type=field.type) for number, field in enumerate(fields)]
    return spark.createDataFrame(pa.Table.from_arrays(columns, schema=fields))
