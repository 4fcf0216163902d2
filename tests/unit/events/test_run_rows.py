"""Rows in protobuf's wire form are read by protobuf itself as the same rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.events.run_rows import RunRows, joined
from protos.headwater.changes.v1.change_batch_pb2 import Run

payloads = st.binary(max_size=20) | st.sampled_from([127, 128, 16_383, 16_384, 70_000]).map(bytes)


@given(st.lists(st.tuples(st.sampled_from(b"cudrtDC"), payloads, payloads), max_size=40))
def test_protobuf_reads_what_was_appended(rows: list[tuple[int, bytes, bytes]]) -> None:
    run = RunRows()
    for row in rows:
        run.append(*row)
    encoded = run.encoded()
    parsed = Run.FromString(encoded)
    assert len(run) == len(rows)
    assert list(zip(run.ops, parsed.keys, parsed.values, strict=True)) == rows
    assert run.size_bytes == len(encoded)
    assert encoded == Run(keys=[key for _, key, _ in rows], values=[value for *_, value in rows]).SerializeToString()


@given(st.lists(st.binary(max_size=20) | st.lists(st.tuples(payloads, payloads), max_size=5), max_size=6))
def test_runs_are_joined_as_they_are_encoded(parts: list[bytes | list[tuple[bytes, bytes]]]) -> None:
    """Between other bytes, without a copy before; and each is afterwards as it was."""
    given_parts = [part if isinstance(part, bytes) else run_of(part) for part in parts]

    whole = joined(tuple(given_parts))

    assert whole == b"".join(part if isinstance(part, bytes) else part.encoded() for part in given_parts)


def run_of(rows: list[tuple[bytes, bytes]]) -> RunRows:
    run = RunRows()
    for key, value in rows:
        run.append(ord("c"), key, value)
    return run


def test_only_a_large_run_is_worth_keeping() -> None:
    assert not run_of([(b"k", bytes(60_000))]).is_large
    assert run_of([(b"k", bytes(70_000))]).is_large


def test_what_is_no_bytes_is_not_joined() -> None:
    with pytest.raises(TypeError):
        joined((b"x", bytearray(b"y")))  # type: ignore[arg-type]
