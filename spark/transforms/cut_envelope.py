"""From an event's text to its parts, without a parse: ``op``, ``committed_at_us`` and the row's ``image``, still text.

A parse costs by the byte, and two thirds of an event are the row's other image and the source block. Debezium's envelope
is ``{"before":…,"after":…,"source":{…},…,"op":…}``, so it is cut at those names: at the ``source`` that begins with a
version, and at the last ``after`` before it. Within a value a quote is escaped, so only a column of such a name that holds an
object looks like them. No object of a row begins with a version; a column named ``after`` would be cut at, and is known by
how its object begins.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark.jvm.java import column_function
from spark.transforms.partial_rows import PLACEHOLDERS, holds_placeholder

DELETE: Final = "d"
INSERT: Final = "c"
SNAPSHOT: Final = "r"
TRUNCATE: Final = "t"
UPDATE: Final = "u"
_CLASS: Final = "CutEnvelope"
_PARTS: Final = "op string, committed_at_us bigint, image string, before string, is_partial boolean"
# JsonConverter with schemas.enable writes {"schema":…,"payload":…}; Debezium's envelope begins with "before".
_WRAPPED: Final = '{"schema":'
_UNREADABLE: Final = "not an event"


def cut_envelope(events: DataFrame, *, with_before: bool = False) -> DataFrame:
    """``text`` gives way to ``op``, ``committed_at_us``, ``image`` and ``is_partial``; others stay.

    ``committed_at_us`` is ``source.ts_us``, or, where a source's ``events.remove_fields`` takes that out, ``source.ts_ms``.
    ``image`` is the row after the change, of a delete before it, or its ``key`` where the event has no row before; NULL for a
    truncation only. ``is_partial``: of an update; the log does not hold all of its values (see ``partial_rows``).
    ``with_before``: ``before`` is there too, an update's row before it, NULL where the log does not hold that one. An envelope
    with other spaces or another order of its members is parsed for its parts. A text that is no event gets an image that
    fails the parse of the row.
    """
    others = [name for name in events.columns if name != "text"]
    image, before = _parsed_image(has_key="key" in others), sf.when(_parsed("op") == UPDATE, _parsed("before"))
    lacks_before = holds_placeholder(sf.coalesce(_parsed("before"), sf.lit(PLACEHOLDERS[0])))
    is_lacking = (_parsed("op") == UPDATE) & holds_placeholder(image) & lacks_before
    parsed = {
        "op": _parsed("op"),
        "committed_at_us": sf.coalesce(_committed_at("ts_us"), 1_000 * _committed_at("ts_ms")),
        "image": image,
    }
    if with_before:
        parsed["before"] = before
        is_lacking = is_lacking | sf.coalesce(holds_placeholder(before), sf.lit(False))
    parsed["is_partial"] = is_lacking
    parts = cut_parts(events, with_before=with_before).alias("parts")
    is_cut = sf.col("parts").isNotNull()
    return events.select(*others, "text", parts).select(
        *others, *(sf.when(is_cut, sf.col("parts")[name]).otherwise(each).alias(name) for name, each in parsed.items())
    )


def cut_parts(events: DataFrame, *, with_before: bool) -> Column:
    """The parts of ``text`` as a struct; NULL where it has to be parsed for them."""
    cut = column_function(_CLASS, "cut", _PARTS)
    return cut(sf.col("text"), with_before, *PLACEHOLDERS)


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


def _committed_at(name: str) -> Column:
    return _parsed(f"source.{name}").try_cast("bigint")


def _parsed_image(*, has_key: bool) -> Column:
    # The router leaves the row before out of a delete that is too large with it; which row it was, the key says.
    deleted = sf.coalesce(_parsed("before"), sf.col("key")) if has_key else _parsed("before")
    image = sf.when(_parsed("op") == DELETE, deleted).otherwise(_parsed("after"))
    is_truncation = sf.coalesce(_parsed("op") == TRUNCATE, sf.lit(False))
    return sf.when(is_truncation, None).otherwise(sf.coalesce(image, sf.lit(_UNREADABLE)))
