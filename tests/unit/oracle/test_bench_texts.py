"""The statements of ``bench.oracle``."""

import re

from bench.oracle import SCHEMA, decoder_section, measure_decoder, redo_texts
from libs.oracle.redo_rows import redo_decoder


def test_statements_are_read_compiled() -> None:
    """Else the bench would measure the plain reading."""
    decoder = redo_decoder(SCHEMA)
    texts = redo_texts(500)

    for text in texts:
        decoder.decoded(text.encode())

    assert decoder.plain_rows == 0
    assert {text.split()[0] for text in texts} == {"insert", "update", "delete"}
    assert 430 <= sum(map(len, texts)) / len(texts) <= 480


def test_each_way_has_a_rate() -> None:
    section = decoder_section(measure_decoder(rows=20, rounds=1))

    assert len(re.findall(r"\| [\d,]*[1-9][\d,]* \|", section)) == 3
