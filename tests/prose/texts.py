"""The English that a file holds, as sentences: prose of Markdown; docstrings, comments and messages of code.

Fenced blocks and pictures are left out, because they are no prose. A cell of a table and an item of a list are read as
paragraphs of their own.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

LEAST_WORDS = 4
"""A string of code counts as a message from so many words on."""

_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_MARKUP = re.compile(r"<!--.*?-->|\]\([^)]*\)|\[\[|[\[*]", re.DOTALL)
_CODE = re.compile(r"``.+?``|`[^`\n]+`|\{[^{}]*\}|https?://\S+")
_ITEM = re.compile(r"^ *(?:[-*>]|\d+\.) +|^#+ +", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')”]*\s+(?=[^a-z])|(?<=:)\s*\n")
_JAVA_TEXT = re.compile(r'/\*.*?\*/|(?://[^\n]*\n\s*)+|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
_SQL = re.compile(r"\s*(?:SELECT|CREATE|ALTER|INSERT|UPDATE|DELETE|MERGE|DROP|GRANT|SET|WITH)\b")
_NO_TEXT = frozenset({tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})


def texts_of(file: Path) -> list[str]:
    """Every text of English in ``file``, in the order of its lines."""
    content = file.read_text(encoding="utf-8")
    match file.suffix:
        case ".md":
            return _paragraphs_of_markdown(content)
        case ".java":
            return [_bare(found.group()) for found in _JAVA_TEXT.finditer(content)]
        case _:
            return list(_texts_of_python(content))


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, code replaced by one word each; without the blocks that click prints as they stand."""
    blocks = (block for block in re.split(r"\n\s*\n", text) if not block.lstrip(" ").startswith("\b"))
    paragraphs = (part for block in blocks for part in _ITEM.split(block))
    plain = (_CODE.sub("code", paragraph) for paragraph in paragraphs)
    return [sentence for part in plain for sentence in _SENTENCE_END.split(part) if _WORD.search(sentence)]


def words_of(sentence: str) -> list[str]:
    return _WORD.findall(sentence)


def _paragraphs_of_markdown(content: str) -> list[str]:
    rows, prose = [], []
    for line in _FENCE.sub("\n", content).splitlines():
        if line.lstrip().startswith("|"):
            rows.extend(cell for cell in line.split("|") if len(words_of(cell)) >= LEAST_WORDS)
        else:
            prose.append(line)
    return [_MARKUP.sub("", text) for text in ("\n".join(prose), *rows)]


def _bare(text: str) -> str:
    """A text of Java without its marks; empty where it is too short a string for a message."""
    if text.startswith('"'):
        return text[1:-1] if _is_message(text[1:-1]) else ""
    return re.sub(r"^\s*(?:/\*+|\*+/?|//+)|\*/", "", text, flags=re.MULTILINE)


def _is_message(text: str) -> bool:
    return not _SQL.match(text) and len([word for word in words_of(text) if word.islower()]) >= LEAST_WORDS


def _texts_of_python(content: str) -> Iterator[str]:
    """Comments of adjoining lines as one text, strings that stand side by side as one, docstrings among them."""
    comment: list[str] = []
    string: list[str] = []
    last_line = 0
    for token in _tokens(content):
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] > last_line + 1:
                yield " ".join(comment)
                comment = []
            comment.append(token.string.lstrip("#: "))
            last_line = token.start[0]
        elif token.type == tokenize.STRING:
            string.append(_value_of(token.string))
        elif token.type not in _NO_TEXT:
            if string and _is_message("".join(string)):
                yield "".join(string)
            string = []
            if comment:
                yield " ".join(comment)
                comment = []
        elif token.type == tokenize.NEWLINE and string:
            yield "".join(string) if _is_message("".join(string)) else ""
            string = []
    yield " ".join(comment)


def _tokens(content: str) -> Iterator[tokenize.TokenInfo]:
    """An f-string as one token, as Python 3.11 has it: later ones cut it at its braces."""
    lines, depth, start = content.splitlines(keepends=True), 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            start = token.start if depth == 0 else start
            depth += 1
        elif kind == "FSTRING_END":
            depth -= 1
            if depth == 0:
                text = _between(lines, start, token.end)
                yield tokenize.TokenInfo(tokenize.STRING, text, start, token.end, token.line)
        elif depth == 0:
            yield token


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text from one place to another, as tokens have places: lines from 1, columns from 0."""
    cut = lines[start[0] - 1 : end[0]]
    cut[-1] = cut[-1][: end[1]]
    cut[0] = cut[0][start[1] :]
    return "".join(cut)


def _value_of(literal: str) -> str:
    """What a string literal of code says; an f-string with its braces, bytes not at all."""
    prefix = re.match("[A-Za-z]*", literal)
    letters = prefix.group().lower() if prefix else ""
    if "b" in letters:
        return ""
    value = ast.literal_eval(("r" if "r" in letters else "") + literal[len(letters) :])
    return str(value)
