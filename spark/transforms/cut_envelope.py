"""From an event's text to its parts, without a parse: ``op``, ``committed_at_us`` and the row's ``image``, still text.

A parse costs by the byte, and two thirds of an event are the row's other image and the source block. Debezium's envelope
is ``{"before":…,"after":…,"source":{…},…,"op":…}``, so it is cut at those names: from the first ``after`` to the ``source``
that begins with a version. Within a value a quote is escaped, so only a column of such a name that holds an object looks like
them. No object of a row begins with a version; a column named ``after`` would be cut at, and is known by how its object begins.
"""

import functools
import operator
import re
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark.transforms.partial_rows import is_partial

DELETE: Final = "d"
TRUNCATE: Final = "t"
UPDATE: Final = "u"
_OPS: Final = ("c", UPDATE, "r", DELETE)
_BEFORE: Final = '{"before":'
_AFTER: Final = ',"after":'
_SOURCE: Final = '},"source":{"version":"'
# How the objects begin that a row may hold: Debezium's Geometry and Geography, Point, VariableScaleDecimal. A row that begins
# so itself is parsed for its parts, which is slower and gives the same.
_OBJECTS: Final = ('{"wkb":', '{"x":', '{"scale":')
# JsonConverter with schemas.enable writes {"schema":…,"payload":…}; Debezium's envelope begins with "before".
_WRAPPED: Final = '{"schema":'
_UNREADABLE: Final = "not an event"


def cut_envelope(events: DataFrame, *, with_before: bool = False) -> DataFrame:
    """``text`` gives way to ``op``, ``committed_at_us`` (``source.ts_us``), ``image`` and ``is_partial``; others stay.

    ``image`` is the row after the change, of a delete before it; NULL for a truncation only. ``is_partial``: the log does not
    hold all of its values (see ``partial_rows``). ``with_before``: ``before`` is there too, an update's row before it, NULL
    where the log does not hold that one. An envelope with other spaces or
    another order of its members is parsed for its parts. What is no event gets an image that fails the parse of the row.
    """
    others = [name for name in events.columns if name != "text"]
    # From the end, where both are near: the envelope ends in op and times of its own, the source's are right before it.
    op = sf.substring_index(sf.substring_index("text", '"op":"', -1), '"', 1)
    committed_at_us = sf.substring_index(sf.substring_index("text", '"ts_us":', -2), ",", 1)
    is_object = functools.reduce(operator.or_, (sf.startswith("cut_image", sf.lit(begin)) for begin in _OBJECTS))
    found = sf.startswith("cut_image", sf.lit('{"')) & sf.col("cut_op").isin(*_OPS) & ~is_object
    before = sf.when(
        sf.col("op") == UPDATE,
        sf.when(sf.col("is_cut") & sf.startswith("text", sf.lit(_BEFORE)), _cut_before_update()).otherwise(
            _parsed("before")
        ),
    )
    cut = (
        events.withColumn("cut_op", op)
        .withColumn("cut_image", sf.when(sf.col("cut_op") == DELETE, _cut_before()).otherwise(_cut_after()))
        .withColumn("is_cut", found)
        .select(
            *others,
            sf.when(sf.col("is_cut"), sf.col("cut_op")).otherwise(_parsed("op")).alias("op"),
            sf.when(sf.col("is_cut"), committed_at_us)
            .otherwise(_parsed("source.ts_us"))
            .try_cast("bigint")
            .alias("committed_at_us"),
            sf.when(sf.col("is_cut"), sf.col("cut_image")).otherwise(_parsed_image()).alias("image"),
            *(["is_cut", "text"] if with_before else []),
        )
    )
    is_lacking = (sf.col("op") != DELETE) & is_partial(sf.col("image"))
    if with_before:
        cut = cut.withColumn("before", before).drop("is_cut", "text")
        is_lacking = is_lacking | sf.coalesce(is_partial(sf.col("before")), sf.lit(False))
    return cut.withColumn("is_partial", is_lacking)


def _cut_before() -> Column:
    end = _place_of(f"}}{_AFTER}null{_SOURCE.removeprefix('}')}")
    image = sf.substr("text", sf.lit(len(_BEFORE) + 1), end - len(_BEFORE))
    return sf.when(sf.startswith("text", sf.lit(_BEFORE)), image)


def _cut_before_update() -> Column:
    end = _place_of(f'{_AFTER}{{"')
    image = sf.substr("text", sf.lit(len(_BEFORE) + 1), end - len(_BEFORE) - 1)
    return sf.when(sf.startswith("text", sf.lit(_BEFORE + "{")), image)


def _cut_after() -> Column:
    begin, end = _place_of(f'{_AFTER}{{"') + len(_AFTER), _place_of(_SOURCE)
    return sf.when(begin > len(_AFTER), sf.substr("text", begin, end - begin + 1))


def _place_of(name: str) -> Column:
    """In characters from 1; 0: nowhere.

    By an expression that is a mere text: Java skips ahead by its length, where Spark's own functions compare at every byte,
    which costs as much as a parse.
    """
    return sf.regexp_instr("text", sf.lit(re.escape(name)))


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
