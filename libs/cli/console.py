"""Tables on a terminal, with names and values of sources, which nobody here chose."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from libs.config.plain_text import printable


class PlainConsole(Console):
    """Rich's console, without control characters from the text that it shows: the terminal obeys rich's own colours alone."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of ``renderable``."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
