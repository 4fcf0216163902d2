"""From changes to versions: each row's values with their period (slowly changing dimension, type 2).

A version opens with a change of a tracked column, with an insert, and after a delete; it ends where the next one opens, or
with a delete or a truncation. A change of other columns only rewrites the version that it falls into (type 1), in one pass.

Changes that come late are put where they belong: the stored versions of their rows are taken up beside them, and the same rules
give what should have been stored. What was stored already, and repeats, change nothing. Only of changes that opened no version
nothing is known any more.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import VariantType
from pyspark.sql.window import WindowSpec

from libs.types.warehouse import (
    CLOSED_BY_COLUMN,
    COMMITTED_AT_COLUMN,
    IS_CURRENT_COLUMN,
    OP_COLUMN,
    OPENED_BY_COLUMN,
    ORDER_COLUMN,
    UNAVAILABLE_COLUMN,
    VALID_FROM_COLUMN,
    VALID_TO_COLUMN,
)
from spark.transforms.cut_envelope import DELETE, TRUNCATE
from spark.transforms.sql_text import quoted

STORED_COLUMN: Final = "_headwater_stored"
"""For a version to be written: the opener of the stored one that it replaces; NULL where it is new."""
IS_GONE_COLUMN: Final = "_headwater_is_gone"
"""The stored version is no version any more: a late change made it one with the version before."""
UNTOLD: Final = "+resync"
"""After the order of a row's last change, in the order that ended its version: it was gone when all rows were listed. As
text it is greater than that order, and less than that of any later change."""
# Columns on the way have Headwater's prefix: a source may call its own ``at`` or ``stored``.
_OWN: Final = (OP_COLUMN, ORDER_COLUMN, COMMITTED_AT_COLUMN, UNAVAILABLE_COLUMN)


def has_late_changes(changes: DataFrame, current: DataFrame, *, key: Sequence[str], known_order: str) -> bool:
    """Whether a change is as old as those that the table holds, up to ``known_order``, and may be of an ended version: it is
    older than the opener of the current one, or there is no current one."""
    names = [quoted(name) for name in key]
    old = changes.where((sf.col(OP_COLUMN) != TRUNCATE) & (sf.col(ORDER_COLUMN) <= known_order))
    oldest = old.groupBy(*names).agg(sf.min(ORDER_COLUMN).alias("_headwater_oldest"))
    opened = current.select(*names, sf.col(OPENED_BY_COLUMN).alias("_headwater_opened"))
    return (
        not oldest.join(opened, _same(oldest, opened, key), "left")
        .where("_headwater_opened IS NULL OR _headwater_oldest < _headwater_opened")
        .isEmpty()
    )


def versions_of(
    changes: DataFrame, stored: DataFrame, *, key: Sequence[str], tracked: Sequence[str], has_truncations: bool
) -> DataFrame:
    """The versions to write: those of ``stored`` that are other ones now, and new ones.

    ``changes`` have the table's columns, op, order and commit time, and may have ``UNAVAILABLE_COLUMN``; ``stored`` the
    table's columns and Headwater's. With ``has_truncations``, rows of ``changes`` without a key are truncations: they end
    the versions of the rows that ``changes`` have, others are not looked at.
    """
    names = [name for name in changes.columns if name not in _OWN]
    plain = [name for name in names if name not in key]
    rows = changes.where(f"{OP_COLUMN} <> '{TRUNCATE}'")
    keys = rows.select(*map(quoted, key)).distinct()
    met = stored.join(keys, _same(stored, keys, key), "left_semi")
    parts = [_changed(rows, names), _opened(met, names), _closed(met, names, key)]
    if has_truncations:
        parts.append(_truncated(changes, keys, names, key))
    elements = functools.reduce(DataFrame.unionByName, parts).transform(_once(key))
    if UNAVAILABLE_COLUMN in changes.columns:
        elements = elements.transform(_last_known(key, plain))
    return (
        elements.transform(_joined(names, key, tracked))
        .transform(_that_differ)
        .select(
            *_version_columns(names, key),
            sf.col("_headwater_row.stored").alias(STORED_COLUMN),
            sf.col("_headwater_row.is_gone").alias(IS_GONE_COLUMN),
        )
    )


def replaced_versions(
    changes: DataFrame,
    stored: DataFrame,
    *,
    key: Sequence[str],
    tracked: Sequence[str],
    has_truncations: bool,
    order: str,
    committed_at_us: int,
) -> DataFrame:
    """All versions of a table whose present rows are all in ``changes``, and that holds ``stored``; ``order`` and
    ``committed_at_us``: of the newest change that the table has seen.

    Of a listed row the stored versions count up to its last change, and give way to a change in the same place. Of a row that
    is not listed, its current version ends, just after the last change that is known of it (``UNTOLD``), at the moment of the
    newest change; a stored row with a greater order than that is no version.
    """
    names = [name for name in changes.columns if name not in _OWN]
    plain = [name for name in names if name not in key]
    columns = [quoted(name) for name in key]
    rows = changes.where(f"{OP_COLUMN} <> '{TRUNCATE}'")
    listed = rows.groupBy(*columns).agg(sf.max(ORDER_COLUMN).alias("_headwater_newest_event"))
    elements = _opened(stored, names).unionByName(_closed(stored, names, key))
    believed = elements.transform(_believed(listed, key, order))
    parts = [_changed(rows, names), believed, _ends_without_event(believed, listed, names, key, committed_at_us)]
    if has_truncations:
        keys = stored.select(*columns).unionByName(listed.select(*columns)).distinct()
        parts.append(_truncated(changes, keys, names, key))
    is_event = [sf.lit(place == 0).alias("_headwater_is_event") for place in range(len(parts))]
    marked = [part.select("*", mark) for part, mark in zip(parts, is_event, strict=True)]
    elements_now = functools.reduce(DataFrame.unionByName, marked).transform(
        _once(key, before=["NOT _headwater_is_event"])
    )
    elements_now = elements_now.drop("_headwater_is_event")
    if UNAVAILABLE_COLUMN in changes.columns:
        elements_now = elements_now.transform(_last_known(key, plain))
    return (
        elements_now.transform(_joined(names, key, tracked))
        .where("NOT _headwater_row.is_gone")
        .select(*_version_columns(names, key))
    )


# --- elements: a row's changes and its stored versions, in one order -----------------------------------------------------


def _element(
    names: Sequence[str], *, at: Column, order: Column, committed_at: Column, is_end: Column, **more: Column
) -> list[Column]:
    """``at`` is the place among the row's elements, ``order`` that of the values."""
    none = sf.lit(None)
    return [
        *(sf.col(quoted(name)) for name in names),
        at.alias("_headwater_at"),
        order.alias("_headwater_values_order"),
        committed_at.alias("_headwater_values_committed_at"),
        more.get("since", committed_at).alias("_headwater_since"),
        is_end.alias("_headwater_is_end"),
        more.get("stored", none.cast("string")).alias("_headwater_stored"),
        more.get("stored_closed_by", none.cast("string")).alias("_headwater_stored_closed_by"),
        more.get("unavailable", sf.array().cast("array<string>")).alias("_headwater_unavailable"),
    ]


def _changed(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    unavailable = {"unavailable": sf.col(UNAVAILABLE_COLUMN)} if UNAVAILABLE_COLUMN in rows.columns else {}
    order, is_end = sf.col(ORDER_COLUMN), sf.col(OP_COLUMN) == DELETE
    return rows.select(
        *_element(names, at=order, order=order, committed_at=sf.col(COMMITTED_AT_COLUMN), is_end=is_end, **unavailable)
    )


def _opened(met: DataFrame, names: Sequence[str]) -> DataFrame:
    """The stored versions, each where it opened."""
    return met.select(
        *_element(
            names,
            at=sf.col(OPENED_BY_COLUMN),
            order=sf.col(ORDER_COLUMN),
            committed_at=sf.col(COMMITTED_AT_COLUMN),
            is_end=sf.lit(False),
            since=sf.col(VALID_FROM_COLUMN),
            stored=sf.col(OPENED_BY_COLUMN),
            stored_closed_by=sf.col(CLOSED_BY_COLUMN),
        )
    )


def _closed(met: DataFrame, names: Sequence[str], key: Sequence[str]) -> DataFrame:
    """Where they closed; of two versions side by side ``_once`` keeps the opener of the second."""
    closed = met.where(f"{CLOSED_BY_COLUMN} IS NOT NULL")
    blank = closed.select(
        *(
            sf.col(quoted(name)) if name in key else sf.lit(None).cast(closed.schema[name].dataType).alias(name)
            for name in names
        ),
        CLOSED_BY_COLUMN,
        VALID_TO_COLUMN,
    )
    at = sf.col(CLOSED_BY_COLUMN)
    return blank.select(*_element(names, at=at, order=at, committed_at=sf.col(VALID_TO_COLUMN), is_end=sf.lit(True)))


def _truncated(changes: DataFrame, keys: DataFrame, names: Sequence[str], key: Sequence[str]) -> DataFrame:
    """Each truncation, for each row."""
    truncations = changes.where(f"{OP_COLUMN} = '{TRUNCATE}'").drop(*key)
    order = sf.col(ORDER_COLUMN)
    return keys.crossJoin(truncations).select(
        *_element(names, at=order, order=order, committed_at=sf.col(COMMITTED_AT_COLUMN), is_end=sf.lit(True))
    )


def _believed(listed: DataFrame, key: Sequence[str], order: str) -> Callable[[DataFrame], DataFrame]:
    """Of stored elements those that may be true, ``listed`` being the order of each listed row's last change, and ``order`` the
    newest. Values that claim to be as new as the last change, or newer, are those that the version opened with."""

    def believe(elements: DataFrame) -> DataFrame:
        joined = elements.join(listed, _same(elements, listed, key), "left")
        last, values = sf.col("_headwater_newest_event"), sf.col("_headwater_values_order")
        is_too_new = sf.coalesce(values >= last, sf.lit(False)) | (values > order)
        kept = [elements[quoted(name)] for name in elements.columns if name != "_headwater_values_order"]
        return joined.where(sf.col("_headwater_at") <= sf.coalesce(last, sf.lit(order))).select(
            *kept, sf.when(is_too_new, sf.col("_headwater_at")).otherwise(values).alias("_headwater_values_order")
        )

    return believe


def _ends_without_event(
    believed: DataFrame, listed: DataFrame, names: Sequence[str], key: Sequence[str], committed_at_us: int
) -> DataFrame:
    """An end after all known facts of each row that is not reported; for one that has ended it is nothing new."""
    last = (
        believed.join(listed, _same(believed, listed, key), "left_anti")
        .groupBy(*map(quoted, key))
        .agg(
            sf.greatest(sf.max("_headwater_at"), sf.max("_headwater_values_order")).alias("_headwater_last"),
            sf.greatest(sf.max("_headwater_since"), sf.timestamp_micros(sf.lit(committed_at_us))).alias(
                "_headwater_moment"
            ),
        )
    )
    blank = last.select(
        *(
            sf.col(quoted(name)) if name in key else sf.lit(None).cast(believed.schema[name].dataType).alias(name)
            for name in names
        ),
        sf.concat("_headwater_last", sf.lit(UNTOLD)).alias("_headwater_end"),
        "_headwater_moment",
    )
    end, moment = sf.col("_headwater_end"), sf.col("_headwater_moment")
    return blank.select(*_element(names, at=end, order=end, committed_at=moment, is_end=sf.lit(True)))


def _once(key: Sequence[str], *, before: Sequence[str] = ()) -> Callable[[DataFrame], DataFrame]:
    """Of the elements at one place, the stored version, else a change, else an end; an element that ``before`` puts first
    wins over all."""

    def keep(elements: DataFrame) -> DataFrame:
        # In the order that ``_by_place`` asks for, too: later steps sort no more.
        at, is_new = sf.col("_headwater_at"), sf.col("_headwater_stored").isNull()
        in_order = Window.partitionBy(*map(quoted, key)).orderBy(at, *map(sf.expr, before), is_new, "_headwater_is_end")
        return (
            elements.withColumn("_headwater_behind", sf.lag(at).over(in_order))
            .where("_headwater_behind IS NULL OR _headwater_behind <> _headwater_at")
            .drop("_headwater_behind")
        )

    return keep


def _last_known(key: Sequence[str], plain: Sequence[str]) -> Callable[[DataFrame], DataFrame]:
    def fill(elements: DataFrame) -> DataFrame:
        so_far = _so_far(key)

        def known(name: str) -> Column:
            is_known = ~sf.array_contains("_headwater_unavailable", name)
            value = sf.when(is_known, sf.struct(sf.col(quoted(name)).alias("value")))
            return sf.last(value, ignorenulls=True).over(so_far).getField("value").alias(name)

        others = [sf.col(quoted(name)) for name in elements.columns if name not in plain]
        return elements.select(*others, *(known(name) for name in plain))

    return fill


# --- versions ----------------------------------------------------------------------------------------------------------


def _joined(names: Sequence[str], key: Sequence[str], tracked: Sequence[str]) -> Callable[[DataFrame], DataFrame]:
    """Elements that are one version (a segment), as one, in the place of its last; and each stored version among them but the
    first, with ``is_gone``: there the version is another one.

    By windows alone, all in the order of ``_once``: rows are shuffled once and sorted once.
    """
    so_far = _so_far(key)
    begins, ends, segment = (sf.col(f"_headwater_{name}") for name in ("begins", "ends", "segment"))
    stored, values_order = sf.col("_headwater_stored"), sf.col("_headwater_values_order")

    def join(elements: DataFrame) -> DataFrame:
        values = [sf.col(quoted(name)) for name in names if name not in key]
        itself = sf.struct(*values, values_order, "_headwater_values_committed_at")
        # The greatest or least within a segment is so by its number first: segments are counted up.
        newest = sf.max_by(sf.when(~(begins & ends), itself), sf.struct(segment, values_order))
        stored_as = {
            "segment": -segment,
            "opened_by": stored,
            "closed_by": sf.col("_headwater_stored_closed_by"),
            "values_order": values_order,
        }
        first_stored = sf.min(sf.when(stored.isNotNull(), _struct(stored_as)))
        segments = elements.transform(_in_segments(key, tracked)).withColumns(
            {"_headwater_newest": newest.over(so_far), "_headwater_first_stored": first_stored.over(so_far)}
        )
        first = sf.col("_headwater_first_stored")
        has_stored = sf.coalesce(first["segment"] == -segment, sf.lit(False))
        is_gone = stored.isNotNull() & (first["opened_by"] < stored)
        version = _struct({"stored": sf.when(has_stored, first["opened_by"]), "is_gone": sf.lit(False)})
        rows = sf.array(sf.when(ends, version), sf.when(is_gone, _struct({"stored": stored, "is_gone": sf.lit(True)})))
        return (
            segments.where(~sf.col("_headwater_is_end") & (ends | is_gone))
            .withColumns(
                {
                    "_headwater_newest": sf.when(begins & ends, itself).otherwise(sf.col("_headwater_newest")),
                    "_headwater_stored_as": sf.when(has_stored, first),
                    "_headwater_row": sf.explode(rows),
                }
            )
            .where("_headwater_row IS NOT NULL")
        )

    return join


def _in_segments(key: Sequence[str], tracked: Sequence[str]) -> Callable[[DataFrame], DataFrame]:
    """Which elements begin a segment and which end one, its number, where and when it began, and the closer of the last."""
    by_place, so_far = _by_place(key), _so_far(key)
    begins, at, since = (sf.col(f"_headwater_{name}") for name in ("begins", "at", "since"))

    def divide(elements: DataFrame) -> DataFrame:
        listed = [_comparable(elements, name) for name in tracked]
        differs = [~value.eqNullSafe(sf.lag(value).over(by_place)) for value in listed]
        is_other = functools.reduce(operator.or_, differs, sf.lit(False))
        is_behind_end = sf.coalesce(sf.lag("_headwater_is_end").over(by_place), sf.lit(True))
        begin = sf.last(sf.when(begins, _struct({"at": at, "since": since})), ignorenulls=True)
        return elements.withColumns(
            {
                "_headwater_begins": sf.col("_headwater_is_end") | is_behind_end | is_other,
                "_headwater_closed_by": sf.lead(at).over(by_place),
                "_headwater_until": sf.lead(since).over(by_place),
            }
        ).withColumns(
            {
                "_headwater_segment": sf.count_if(begins).over(so_far),
                "_headwater_ends": sf.coalesce(sf.lead(begins).over(by_place), sf.lit(True)),
                "_headwater_begin": begin.over(so_far),
            }
        )

    return divide


def _struct(members: Mapping[str, Column]) -> Column:
    return sf.struct(*(value.alias(name) for name, value in members.items()))


def _comparable(rows: DataFrame, name: str) -> Column:
    """A VARIANT, which Spark does not compare, by its text: of equal documents it is the same, but for how a number is held."""
    value = sf.col(quoted(name))
    return sf.to_json(value) if isinstance(rows.schema[name].dataType, VariantType) else value


def _that_differ(versions: DataFrame) -> DataFrame:
    """The result of ``_joined`` without versions that are stored already."""
    stored = sf.col("_headwater_stored_as")
    is_same = (
        ~sf.col("_headwater_row.is_gone")
        & (stored["opened_by"] == sf.col("_headwater_begin.at"))
        & (stored["values_order"] == sf.col("_headwater_newest._headwater_values_order"))
        & stored["closed_by"].eqNullSafe(sf.col("_headwater_closed_by"))
    )
    return versions.where(~sf.coalesce(is_same, sf.lit(False)))


def _version_columns(names: Sequence[str], key: Sequence[str]) -> list[Column]:
    """The result of ``_joined`` in the table's columns."""
    return [
        *(sf.col(quoted(name)) for name in key),
        *(sf.col("_headwater_newest").getField(name).alias(name) for name in names if name not in key),
        sf.col("_headwater_begin.since").alias(VALID_FROM_COLUMN),
        sf.col("_headwater_until").alias(VALID_TO_COLUMN),
        sf.col("_headwater_closed_by").isNull().alias(IS_CURRENT_COLUMN),
        sf.col("_headwater_newest._headwater_values_order").alias(ORDER_COLUMN),
        sf.col("_headwater_newest._headwater_values_committed_at").alias(COMMITTED_AT_COLUMN),
        sf.col("_headwater_begin.at").alias(OPENED_BY_COLUMN),
        sf.col("_headwater_closed_by").alias(CLOSED_BY_COLUMN),
    ]


def _same(left: DataFrame, right: DataFrame, key: Sequence[str]) -> Column:
    """NULL is a value of a key like any other."""
    return functools.reduce(operator.and_, (left[quoted(name)].eqNullSafe(right[quoted(name)]) for name in key))


def _by_place(key: Sequence[str]) -> WindowSpec:
    return Window.partitionBy(*map(quoted, key)).orderBy("_headwater_at")


def _so_far(key: Sequence[str]) -> WindowSpec:
    return _by_place(key).rowsBetween(Window.unboundedPreceding, Window.currentRow)
