"""MySQL's character sets as Python codecs (MySQL 9 manual, 12.13 "Supported Character Sets and Collations").

Where Python's codec of that name reads some bytes otherwise than the server, or lacks the set, one of our own stands in its
place: every byte and pair of bytes that the server knows is read as the server reads it
(``tests/integration/test_mysql_values.py`` asks it). Decoding is strict: bytes without a character are an error.
"""

import codecs
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from libs.errors import PipelineHalted

_CODECS: Final = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "greek": "headwater_mysql_greek",
    "hebrew": "headwater_mysql_hebrew",
    "big5": "headwater_mysql_big5",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "gb18030": "headwater_mysql_gb18030",
    "sjis": "headwater_mysql_sjis",
    "cp932": "cp932",
    "ujis": "headwater_mysql_ujis",
    "eucjpms": "headwater_mysql_eucjpms",
    "euckr": "cp949",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "headwater_mysql_cp866",
    "koi8r": "koi8_r",
    "koi8u": "headwater_mysql_koi8u",
    "tis620": "tis_620",
    "macroman": "mac_roman",
    "macce": "mac_latin2",
    "hp8": "hp_roman8",
    "armscii8": "headwater_mysql_armscii8",
    "dec8": "headwater_mysql_dec8",
    "geostd8": "headwater_mysql_geostd8",
    "keybcs2": "headwater_mysql_keybcs2",
    "swe7": "headwater_mysql_swe7",
    # MySQL's latin1 is Windows-1252, with its five undefined bytes read as C1 controls (manual 12.10.2).
    "latin1": "headwater_mysql_latin1",
}


_COLLATION_IDS: Final = {
    "armscii8": (32, 64), "ascii": (11, 65), "big5": (1, 84), "cp1250": (26, 34, 44, 66, 99), "cp1251": (14, 23, 50, 51, 52),
    "cp1256": (57, 67), "cp1257": (29, 58, 59), "cp850": (4, 80), "cp852": (40, 81), "cp866": (36, 68), "cp932": (95, 96),
    "dec8": (3, 69), "eucjpms": (97, 98), "euckr": (19, 85), "gb18030": (248, 249, 250), "gb2312": (24, 86), "gbk": (28, 87),
    "geostd8": (92, 93), "greek": (25, 70), "hebrew": (16, 71), "hp8": (6, 72), "keybcs2": (37, 73), "koi8r": (7, 74),
    "koi8u": (22, 75), "latin1": (5, 8, 15, 31, 47, 48, 49, 94), "latin2": (2, 9, 21, 27, 77), "latin5": (30, 78),
    "latin7": (20, 41, 42, 79), "macce": (38, 43), "macroman": (39, 53), "sjis": (13, 88), "swe7": (10, 82),
    "tis620": (18, 89), "ucs2": (35, 90, *range(128, 152), 159), "ujis": (12, 91), "utf16": (54, 55, *range(101, 125)),
    "utf16le": (56, 62), "utf32": (60, 61, *range(160, 184)), "utf8mb3": (33, 76, 83, *range(192, 216), 223), "binary": (63,),
}  # fmt: skip
"""``information_schema.COLLATIONS`` of MySQL 9.7, without utf8mb4; a test compares."""
_UTF8MB4_IDS: Final = frozenset({45, 46, *range(224, 248), *range(255, 324)})
_CHARSET_OF_ID: Final = {number: charset for charset, numbers in _COLLATION_IDS.items() for number in numbers}


def charset_of_collation_id(collation: int) -> str:
    """The character set of a collation, by MySQL's number of it; utf8mb4 also for numbers that are not MySQL 9's."""
    return _CHARSET_OF_ID.get(collation, "utf8mb4")


def known_charset_of_collation_id(collation: int) -> str | None:
    """The same; None for a number that MySQL 9.7 lacks."""
    return _CHARSET_OF_ID.get(collation) or ("utf8mb4" if collation in _UTF8MB4_IDS else None)


def python_codec(charset: str) -> str:
    """The Python codec for a MySQL character set. Raises PipelineHalted for one that Python cannot read."""
    codec = _CODECS.get(charset.lower())
    if codec is None:
        raise PipelineHalted(
            f"character set {charset!r} has no codec: convert the column to utf8mb4 or exclude its table"
        )
    return codec


_CHARACTER_BYTES: Final = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}
"""The fewest bytes of a character, of sets of which that is more than one."""


_WITHOUT_SURROGATES: Final = ("utf8mb3", "utf8", "ucs2")
"""Sets whose last character is U+FFFF; Python's codecs of them know more."""


def storable(text: str, charset: str) -> str:
    """``text`` as the server keeps it in a definition: a question mark for each character that the charset lacks."""
    if charset == "binary":
        return text
    if charset in _WITHOUT_SURROGATES:
        return "".join(char if char <= "\uffff" else "?" for char in text)
    variant = _VARIANTS.get(charset)
    own = set() if variant is None else {*map(chr, variant.changed.values()), *variant.added.values()}
    return "".join(char if char in own or _has(char, python_codec(charset)) else "?" for char in text)


def _has(char: str, codec: str) -> bool:
    try:
        char.encode(codec)
    except UnicodeEncodeError:
        return False
    return True


def text_of_bytes(value: bytes, charset: str) -> str:
    """Bytes of a hex literal as text, padded on the left as the server pads them; bytes without a character are replaced."""
    if charset == "binary":
        charset = "utf8mb4"
    missing = -len(value) % _CHARACTER_BYTES.get(charset, 1)
    return (b"\0" * missing + value).decode(python_codec(charset), errors="replace")


_OWN: Final = "headwater_mysql_"
_UNDEFINED: Final = "\ufffe"
"""Python's mark of a byte that has no character (codecs.charmap_decode)."""
_ASCII: Final = bytes(range(128)).decode("ascii")

_TABLES: Final = {
    "latin1": "".join(bytes([byte]).decode("cp1252", errors="ignore") or chr(byte) for byte in range(256)),
    "swe7": _ASCII[:127].translate(str.maketrans("@[\\]^`{|}~", "ÉÄÖÅÜéäöåü")),
    "armscii8": _ASCII
    + (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f"
        "\xa0❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէ"
        "ԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշ"
        "ՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'"
    ),
    "dec8": _ASCII
    + (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f"
        "\xa0¡¢£\ufffe¥\ufffe§¤©ª«\ufffe\ufffe\ufffe\ufffe°±²³\ufffeµ¶·\ufffe¹º»¼½\ufffe¿"
        "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏ\ufffeÑÒÓÔÕÖŒØÙÚÛÜŸ\ufffeß"
        "àáâãäåæçèéêëìíîï\ufffeñòóôõöœøùúûüÿ\ufffe\ufffe"
    ),
    "geostd8": _ASCII
    + (
        "€\ufffe‚\ufffe„…†‡\ufffe‰\ufffe‹\ufffe\ufffe\ufffe\ufffe\ufffe‘’“”•–—\ufffe\ufffe\ufffe›\ufffe\ufffe\ufffe\ufffe"
        "\xa0¡¢£¤¥¦§¨©ª«¬\xad®¯°±²³´µ¶·¸¹º»¼½¾¿"
        "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწ"
        "ჭხჴჯჰჵ\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe№\ufffe\ufffe"
    ),
    "keybcs2": _ASCII
    + (
        "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘť"
        "áíóúňŇŮÔšřŕŔ¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐"
        "└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀"
        "αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0"
    ),
}
"""Sets of one byte, as MySQL 9.7 converts them: the character of each byte from 0 on."""


@dataclass(frozen=True, slots=True)
class _Variant:
    """A codec of Python's that reads some bytes otherwise than MySQL 9.7."""

    base: str
    changed: Mapping[int, int] = field(default_factory=dict)
    """By the character that the base gives."""
    added: Mapping[bytes, str] = field(default_factory=dict)
    """By bytes of which the base knows none."""


def _user_defined(prefix: bytes, first: int) -> dict[bytes, str]:
    """Rows 85 to 94 of a Japanese set, its users' own, are Unicode's private use area from ``first`` on."""
    return {prefix + bytes((0xF5 + place // 94, 0xA1 + place % 94)): chr(first + place) for place in range(10 * 94)}


_PRIVATE: Final = _user_defined(b"", 0xE000) | _user_defined(b"\x8f", 0xE3AC)
_NEC_ROW_13: Final = (
    "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ\ufffe㍉㌔㌢㍍㌘㌧㌃㌶㍑㍗㌍㌦㌣㌫㍊㌻"
    "㎜㎝㎞㎎㎏㏄㎡\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe㍻〝〟№㏍℡㊤㊥㊦㊧㊨㈱㈲㈹㍾㍽㍼≒≡∫∮∑√⊥∠∟⊿∵∩∪\ufffe\ufffe"
)
_IBM_EXTENSIONS: Final = (
    "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤﨎咊坙﨏塚增寬峵嵓﨑德悅愠敎昻晥晴朗栁﨓﨔橫"
    "櫢淸淲瀨凞猪甁皂皞益礰礼神祥福竧靖精綠緖羽荢﨟薰蘒﨡蠇諸譿賴赶﨣﨤逸郞都鄕﨧﨨閒隆﨩霻靍靑飯飼館馞髙魲鶴黑"
)
_EUCJPMS_ADDED: Final = {
    **_PRIVATE,
    **{bytes((0xAD, 0xA1 + place)): char for place, char in enumerate(_NEC_ROW_13) if char != _UNDEFINED},
    **{
        bytes((0x8F, 0xF3 + (place + 82) // 94, 0xA1 + (place + 82) % 94)): char
        for place, char in enumerate(_IBM_EXTENSIONS)
    },
}
_VARIANTS: Final = {
    "cp866": _Variant("cp866", str.maketrans("№¤", "ⁿ²")),
    "greek": _Variant("iso8859_7", str.maketrans("‘’", "ʽʼ")),
    "hebrew": _Variant("iso8859_8", str.maketrans("¯", "‾")),
    "koi8u": _Variant("koi8_u", str.maketrans("∙", "•")),
    "sjis": _Variant("shift_jis", str.maketrans("＼", "\\")),
    "ujis": _Variant("euc_jp", str.maketrans("＼", "\\"), _PRIVATE),
    "eucjpms": _Variant("euc_jp", str.maketrans("〜‖−¢£¬¦", "～∥－￠￡￢￤"), _EUCJPMS_ADDED),
    "gb18030": _Variant("gb18030", str.maketrans("\ue7c7ḿ", "ḿ\ue7c7")),
    "big5": _Variant("big5", added={bytes((0xF9, 0xD6 + place)): char for place, char in enumerate("碁銹裏墻恒粧嫺")}),
}


def _find(name: str) -> codecs.CodecInfo | None:
    charset = name.removeprefix(_OWN)
    if charset == name:
        return None
    if charset in _TABLES:
        return _table_codec(name, _TABLES[charset])
    return _variant_codec(name, _VARIANTS[charset]) if charset in _VARIANTS else None


def _table_codec(name: str, table: str) -> codecs.CodecInfo:
    encoding = codecs.charmap_build(table)
    return codecs.CodecInfo(
        name=name,
        encode=lambda text, errors="strict": codecs.charmap_encode(text, errors, encoding),
        decode=lambda data, errors="strict": codecs.charmap_decode(bytes(data), errors, table),
    )


def _variant_codec(name: str, variant: _Variant) -> codecs.CodecInfo:
    """Decodes only: nothing is written back to a source."""
    codecs.register_error(name, _adding(variant.added))

    def decode(data: Any, errors: str = "strict", /) -> tuple[str, int]:
        stored = bytes(data)
        text = stored.decode(variant.base, name if errors == "strict" else errors)
        return text.translate(variant.changed), len(stored)

    return codecs.CodecInfo(name=name, encode=codecs.lookup(variant.base).encode, decode=decode)


def _adding(added: Mapping[bytes, str]) -> Callable[[UnicodeError], tuple[str, int]]:
    """An error handler that knows some more bytes than the codec it is given to."""

    def handle(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        for size in (3, 2):
            found = error.object[error.start : error.start + size]
            if found in added:
                return added[found], error.start + len(found)
        raise error

    return handle


codecs.register(_find)
