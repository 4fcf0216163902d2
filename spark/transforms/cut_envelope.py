"""From an event's text to its parts, without a parse: ``op``, ``committed_at_us`` and the row's ``image``, still text.

A parse costs by the byte, and two thirds of an event are the row's other image and the source block. Debezium's envelope
is ``{"before":…,"after":…,"source":{…},…,"op":…}``, so it is cut at those names: at the ``source`` that begins with a
version, and at the last ``after`` before it. Within a value a quote is escaped, so only a column of such a name that holds an
object looks like them. No object of a row begins with a version; a column named ``after`` would be cut at, and is known by
how its object begins.
"""

import functools
import operator
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark.transforms.partial_rows import is_partial

DELETE: Final = "d"
INSERT: Final = "c"
SNAPSHOT: Final = "r"
TRUNCATE: Final = "t"
UPDATE: Final = "u"
_OPS: Final = (INSERT, UPDATE, SNAPSHOT, DELETE)
_BEFORE: Final = '{"before":{"'
_BEFORE_NULL: Final = '{"before":null,'
_AFTER: Final = ',"after":{"'
_AFTER_NULL: Final = ',"after":null'
_NEW: Final = _BEFORE_NULL.removesuffix(",") + _AFTER
_SOURCE: Final = ',"source":{"version":"'
_OP: Final = ',"op":"'
# How the objects begin that a row may hold: Debezium's Geometry and Geography, Point, VariableScaleDecimal. A row that begins
# so itself is parsed for its parts, which is slower and gives the same.
_OBJECTS: Final = ('wkb":', 'x":', 'scale":')
# JsonConverter with schemas.enable writes {"schema":…,"payload":…}; Debezium's envelope begins with "before".
_WRAPPED: Final = '{"schema":'
_UNREADABLE: Final = "not an event"


def cut_envelope(events: DataFrame, *, with_before: bool = False) -> DataFrame:
    """``text`` gives way to ``op``, ``committed_at_us``, ``image`` and ``is_partial``; others stay.

    ``committed_at_us`` is ``source.ts_us``, or, where a source's ``events.remove_fields`` takes that out, ``source.ts_ms``.
    ``image`` is the row after the change, of a delete before it; NULL for a truncation only. ``is_partial``: the log does not
    hold all of its values (see ``partial_rows``). ``with_before``: ``before`` is there too, an update's row before it, NULL
    where the log does not hold that one. An envelope with other spaces or another order of its members is parsed for its
    parts. What is no event gets an image that fails the parse of the row.
    """
    others = [name for name in events.columns if name != "text"]
    # Texts are looked for from the end, and each byte on the way costs: the row's other image is never gone through. What was
    # found is left out by its bytes. Characters are not counted: Java's expressions count in UTF-16, most of Spark's functions
    # in characters, one by one; a cut by the one at a place of the other is wrong beyond U+FFFF.
    cut = (
        events.withColumn("behind_op", sf.substring_index("text", _OP, -1))
        .withColumn("behind_rows", sf.substring_index("text", _SOURCE, -1))
        .withColumn("rows", _bytes_of("text", 0, _bytes("text") - _bytes("behind_rows") - len(_SOURCE)))
        .withColumn("source", _bytes_of("behind_rows", 0, _bytes("behind_rows") - _bytes("behind_op") - len(_OP)))
        .withColumn("cut_op", sf.substring_index("behind_op", '"', 1))
        .withColumn("row", _row())
        .withColumn("is_cut", _is_row())
        .select(
            *others,
            sf.when(sf.col("is_cut"), sf.col("cut_op")).otherwise(_parsed("op")).alias("op"),
            sf.coalesce(_committed_at("ts_us"), 1_000 * _committed_at("ts_ms")).alias("committed_at_us"),
            sf.when(sf.col("is_cut"), sf.concat(sf.lit('{"'), "row")).otherwise(_parsed_image()).alias("image"),
            *(["is_cut", "text", "rows", "row"] if with_before else []),
        )
    )
    is_lacking = (sf.col("op") != DELETE) & is_partial(sf.col("image"))
    if with_before:
        before = sf.when(sf.col("op") == UPDATE, _before_of_update())
        cut = cut.withColumn("before", before).drop("is_cut", "text", "rows", "row")
        is_lacking = is_lacking | sf.coalesce(is_partial(sf.col("before")), sf.lit(False))
    return cut.withColumn("is_partial", is_lacking)


def _committed_at(name: str) -> Column:
    """A time of the source block; NULL where it has none of that name. The envelope has times of the same names behind it."""
    time = sf.substring_index(sf.substring_index("source", f'"{name}":', -1), ",", 1)
    return sf.when(sf.col("is_cut"), time).otherwise(_parsed(f"source.{name}")).try_cast("bigint")


def _row() -> Column:
    """Of ``rows``, the one that counts, without what it begins with."""
    deleted = _bytes_of("rows", len(_BEFORE), _bytes("rows") - len(_BEFORE) - len(_AFTER_NULL))
    new = sf.when(sf.startswith("rows", sf.lit(_NEW)), _bytes_of("rows", len(_NEW)))
    return sf.when(sf.col("cut_op") == DELETE, deleted).otherwise(new.otherwise(sf.substring_index("rows", _AFTER, -1)))


def _is_row() -> Column:
    """Whether ``row`` is one: the texts that it lies between were found, and it is none of a row's own objects."""
    is_object = functools.reduce(operator.or_, (sf.startswith("row", sf.lit(begin)) for begin in _OBJECTS))
    is_deleted = sf.startswith("rows", sf.lit(_BEFORE)) & sf.endswith("rows", sf.lit(f"}}{_AFTER_NULL}"))
    is_after = sf.endswith("rows", sf.lit("}")) & (_bytes("row") < _bytes("rows"))
    is_row = sf.when(sf.col("cut_op") == DELETE, is_deleted).otherwise(is_after)
    is_in_order = _bytes("behind_op") < _bytes("behind_rows")
    return sf.col("cut_op").isin(*_OPS) & is_in_order & is_row & ~is_object


def _before_of_update() -> Column:
    row_bytes = _bytes("rows") - _bytes("row") - len(_AFTER) - len(_BEFORE)
    row = sf.concat(sf.lit('{"'), _bytes_of("rows", len(_BEFORE), row_bytes))
    is_there = sf.startswith("text", sf.lit(_BEFORE))
    is_null = sf.startswith("text", sf.lit(_BEFORE_NULL))
    is_cut = sf.col("is_cut")
    return sf.when(is_cut & is_there, row).when(is_cut & is_null, None).otherwise(_parsed("before"))


def _bytes(text: str) -> Column:
    return sf.octet_length(text)


def _bytes_of(text: str, skipped: int, taken: Column | None = None) -> Column:
    """What is behind so many bytes, or so many of that."""
    return sf.substring(sf.col(text).cast("binary"), skipped + 1, 2**31 - 1 if taken is None else taken).cast("string")


def payload_of(text: Column) -> Column:
    """A key without its Connect schema; NULL stays NULL."""
    # A plain key may have a column named schema; its value is no object.
    is_wrapped = text.startswith(_WRAPPED) & text.rlike(r'^\{"schema":\s*\{')
    payload = sf.coalesce(sf.get_json_object(text, "$.payload"), sf.lit(_UNREADABLE))
    return sf.when(is_wrapped, payload).otherwise(text)


def _parsed(path: str) -> Column:
    """A member of the envelope, by a parse of the whole text."""
    place = sf.when(sf.startswith("text", sf.lit(_WRAPPED)), sf.get_json_object("text", f"$.payload.{path}"))
    return place.otherwise(sf.get_json_object("text", f"$.{path}"))


def _parsed_image() -> Column:
    image = sf.when(_parsed("op") == DELETE, _parsed("before")).otherwise(_parsed("after"))
    is_truncation = sf.coalesce(_parsed("op") == TRUNCATE, sf.lit(False))
    return sf.when(is_truncation, None).otherwise(sf.coalesce(image, sf.lit(_UNREADABLE)))
