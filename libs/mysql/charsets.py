"""MySQL's character sets as Python codecs (MySQL 9 manual, 12.13 "Supported Character Sets and Collations")."""

import codecs
from typing import Final

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
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "big5": "big5hkscs",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "tis620": "tis_620",
    "macroman": "mac_roman",
    "macce": "mac_latin2",
    # MySQL's latin1 is Windows-1252, with its five undefined bytes read as C1 controls (manual 12.10.2).
    "latin1": "headwater_mysql_latin1",
}


def python_codec(charset: str) -> str:
    """The Python codec for a MySQL character set. Raises PipelineHalted for one that Python cannot read."""
    codec = _CODECS.get(charset.lower())
    if codec is None:
        raise PipelineHalted(
            f"character set {charset!r} has no codec: convert the column to utf8mb4 or exclude its table"
        )
    return codec


_LATIN1_DECODING: Final = "".join(bytes([byte]).decode("cp1252", errors="ignore") or chr(byte) for byte in range(256))
_LATIN1_ENCODING: Final = codecs.charmap_build(_LATIN1_DECODING)


def _find_latin1(name: str) -> codecs.CodecInfo | None:
    if name != "headwater_mysql_latin1":
        return None
    return codecs.CodecInfo(
        name=name,
        encode=lambda text, errors="strict": codecs.charmap_encode(text, errors, _LATIN1_ENCODING),
        decode=lambda data, errors="strict": codecs.charmap_decode(bytes(data), errors, _LATIN1_DECODING),
    )


codecs.register(_find_latin1)
