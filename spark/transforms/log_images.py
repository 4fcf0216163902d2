"""A log of changes: which image of its row each change holds, and the rows before updates, as rows of their own."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs.types.warehouse import IMAGE_COLUMN, OP_COLUMN
from spark.transforms.cut_envelope import DELETE, TRUNCATE

AFTER: Final = "after"
_BEFORE: Final = "before"


def name_image(changes: DataFrame) -> DataFrame:
    """Adds ``IMAGE_COLUMN`` to changes of which each has its usual image (``cut_envelope``)."""
    op = sf.col(OP_COLUMN)
    return changes.withColumn(IMAGE_COLUMN, sf.when(op == DELETE, _BEFORE).when(op != TRUNCATE, AFTER))


def name_before_image(changes: DataFrame) -> DataFrame:
    """Adds ``IMAGE_COLUMN`` to changes made of ``before_images``."""
    return changes.withColumn(IMAGE_COLUMN, sf.lit(_BEFORE))


def before_images(events: DataFrame) -> DataFrame:
    """The updates among ``events`` whose log holds the row before them, with that as their ``image``."""
    return events.where(sf.col("before").isNotNull()).withColumn("image", sf.col("before"))
