"""Hooks of MkDocs: the pages are written for a reader of the repository, and shown as a site.

* Pages outside of docs/ (README, a service's README, the bench's results) become pages of the site.
* A link to a page leads to it there. A link to a source file becomes the file's name: the site has no source files.
* A list or table may follow a line of text, as GitHub shows it; headings have GitHub's anchors.
* Reference pages are made from the code (``docs.site.reference``).
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from docs.site import reference

REPOSITORY: Final = Path(__file__).parents[2]
OUTSIDE: Final = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "bench-results.md": "bench/RESULTS.md",
    "internals/simulation.md": "tests/simulation/README.md",
    **{
        f"internals/{folder.name}.md": f"services/{folder.name}/README.md"
        for folder in sorted((REPOSITORY / "services").iterdir())
        if (folder / "README.md").exists()
    },
}
"""Pages of the site, by their place there, that lie outside of docs/."""
_PLACES: Final = {repository: site for site, repository in OUTSIDE.items()}
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE: Final = re.compile(r"^( *)```.*?^\1```[^\n]*$", re.MULTILINE | re.DOTALL)
_LIST: Final = re.compile(r"^( *)(?:[-*]|\d+\.) ")


def on_config(config: Any) -> Any:
    """Headings get the anchors that the pages' links name, and every page of docs/ a place in the navigation."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    docs = REPOSITORY / "docs"
    named = set(_leaves(config.nav))
    unnamed = [page for path in sorted(docs.rglob("*.md")) if (page := str(path.relative_to(docs))) not in named]
    decisions = [page for page in unnamed if page.startswith("adr/")]
    further = [page for page in unnamed if not page.startswith("adr/")]
    config.nav = [*config.nav, {"Decisions": decisions}, *([{"Further pages": further}] if further else [])]
    return config


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    children = nav.values() if isinstance(nav, dict) else nav
    return [leaf for child in children for leaf in _leaves(child)]


def slug(heading: str, _separator: str) -> str:
    """A heading's anchor as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"<[^>]*>", "", heading).lower()).replace(" ", "-")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie elsewhere, and those that the code makes."""
    from mkdocs.structure.files import File  # not in the repository's environment

    made = {site: (REPOSITORY / place).read_text(encoding="utf-8") for site, place in OUTSIDE.items()}
    for site, text in {**made, **reference.pages()}.items():
        files.append(File.generated(config, site, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page's text as the site needs it."""
    site = page.file.src_uri
    here = OUTSIDE.get(site, f"docs/{site}")
    pieces = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        pieces += [_prose(markdown[end : fence.start()], here, site), fence[0]]
        end = fence.end()
    pieces.append(_prose(markdown[end:], here, site))
    return "".join(pieces)


def _prose(text: str, here: str, site: str) -> str:
    return _spaced(_LINK.sub(lambda link: _link(link, here, site), text))


def _link(link: re.Match[str], here: str, site: str) -> str:
    image, label, target = link.groups()
    path, _, anchor = target.partition("#")
    if ":" in target or not path:
        return link[0]
    place = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
    if place in _PLACES:
        there = _PLACES[place]
    elif place.startswith("docs/") and not place.endswith(".py") and (REPOSITORY / place).is_file():
        there = place.removeprefix("docs/")
    elif f"{place}/README.md" in _PLACES:
        there = _PLACES[f"{place}/README.md"]
    elif not (REPOSITORY / place).exists():
        return link[0]  # MkDocs says that it is broken
    else:
        return label if "`" in label else f"{label} (`{place}`)"
    relative = posixpath.relpath(there, posixpath.dirname(site) or ".")
    return f"{image}[{label}]({relative}{'#' if anchor else ''}{anchor})"


def _spaced(text: str) -> str:
    """Lists and tables with an empty line before them, and nested lists by four spaces."""
    lines: list[str] = []
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        is_item, was_item = bool(_LIST.match(line)), bool(_LIST.match(before)) or before.startswith("  ")
        begins_list = is_item and bool(before.strip()) and not was_item
        begins_table = line.startswith("|") and bool(before.strip()) and not before.startswith("|")
        if begins_list or begins_table:
            lines.append("")
        if is_item and line.startswith(("  -", "  *")) and not line.startswith("    "):
            line = f"  {line}"
        lines.append(line)
    return "\n".join(lines)
