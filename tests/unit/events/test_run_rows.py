"""Rows in protobuf's wire form are what protobuf itself reads."""

from hypothesis import given
from hypothesis import strategies as st

from libs.events.run_rows import RunRows
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
