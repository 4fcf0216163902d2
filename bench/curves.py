"""Curves as SVG, both axes logarithmic: for figures by a number of tenants or tables."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

_WIDTH: Final = 760
_HEIGHT: Final = 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 250, 40, 50
_COLOURS: Final = ("#1b6ca8", "#c1440e", "#3a7d44", "#7b4b94", "#a07f1a", "#444444", "#0f8b8d")


def curves_svg(title: str, across: str, upward: str, curves: Mapping[str, Mapping[int, float]]) -> str:
    """A picture of ``curves``, by their names: of each the figures by number. All figures are above 0."""
    numbers = sorted({number for curve in curves.values() for number in curve})
    figures = [figure for curve in curves.values() for figure in curve.values()]
    decades = range(math.floor(math.log10(min(figures))), math.ceil(math.log10(max(figures))) + 1)

    def x(number: int) -> float:
        share = math.log(number / numbers[0]) / (math.log(numbers[-1] / numbers[0]) or 1.0)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(figure: float) -> float:
        share = (math.log10(figure) - decades[0]) / ((decades[-1] - decades[0]) or 1)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 22, title, size=14),
        _text(_LEFT, _HEIGHT - 12, across),
        _text(_LEFT, 36, upward, size=11),
    ]
    for decade in decades:
        place = y(10.0**decade)
        parts.append(f'<path d="M{_LEFT} {place:.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>')
        parts.append(_text(_LEFT - 8, place + 4, f"{10.0**decade:g}", anchor="end"))
    for number in numbers:
        parts.append(_text(x(number), _HEIGHT - _BOTTOM + 18, f"{number:,}", anchor="middle"))
    for place, (name, curve) in enumerate(curves.items()):
        parts += _curve(name, [(x(number), y(figure)) for number, figure in sorted(curve.items())], place)
    return "\n".join([*parts, "</svg>", ""])


def _curve(name: str, points: Sequence[tuple[float, float]], place: int) -> list[str]:
    colour, legend = _COLOURS[place % len(_COLOURS)], _TOP + 12 + 20 * place
    path = "L".join(f"{across:.1f} {upward:.1f}" for across, upward in points)
    dots = [f'<circle cx="{across:.1f}" cy="{upward:.1f}" r="3" fill="{colour}"/>' for across, upward in points]
    begin = _WIDTH - _RIGHT + 15
    return [
        f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *dots,
        f'<path d="M{begin} {legend - 4}h18" stroke="{colour}" stroke-width="3"/>',
        _text(begin + 24, legend, name),
    ]


def _text(across: float, upward: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{across:.1f}" y="{upward:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
