"""Names that Avro takes, made as Debezium's ``schema.name.adjustment.mode`` and ``field.name.adjustment.mode`` make them.

Avro's names are letters, digits and ``_``, no digit first; a schema's name may have dots (Avro specification, "Names").
Read off ``SchemaNameAdjuster`` of Debezium 3.5.0, code and differences between its modes included.
"""

from typing import Final

from libs.types.tenant import NameAdjustment

_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS: Final = frozenset("0123456789")


def adjust_schema_name(name: str, mode: NameAdjustment) -> str:
    """A schema's name, its dots kept.

    >>> adjust_schema_name("eu-1.shop.orders.Value", NameAdjustment.AVRO)
    'eu_1.shop.orders.Value'
    """
    return _adjust(name, mode, also_kept="._")


def adjust_field_name(name: str, mode: NameAdjustment) -> str:
    """A field's name. Two columns' names may become one: the caller looks.

    >>> adjust_field_name("unit-price", NameAdjustment.AVRO), adjust_field_name("a_b", NameAdjustment.AVRO_UNICODE)
    ('unit_price', 'a_u005fb')
    """
    return _adjust(name, mode, also_kept="_")


def _adjust(name: str, mode: NameAdjustment, *, also_kept: str) -> str:
    match mode:
        case NameAdjustment.NONE:
            return name
        case NameAdjustment.AVRO:
            first_kept, kept = _LETTERS | {"_"}, _LETTERS | _DIGITS | set(also_kept)
            if name and name[0] in _DIGITS:
                name = f"_{name}"
            return "".join(
                letter if letter in (kept if place else first_kept) else "_" for place, letter in enumerate(name)
            )
        case NameAdjustment.AVRO_UNICODE:
            # "_" begins each code, so it becomes one itself: a_u002d and a- stay apart.
            kept = _LETTERS | _DIGITS | (set(also_kept) - {"_"})
            return "".join(
                letter if letter in (kept if place else _LETTERS) else _unicode(letter)
                for place, letter in enumerate(name)
            )


def _unicode(letter: str) -> str:
    """Debezium writes four digits of a code that needs one or two, and three of a code that needs three."""
    digits = f"{ord(letter):x}"
    return f"_u00{digits}" if len(digits) <= 2 else f"_u{digits}"
