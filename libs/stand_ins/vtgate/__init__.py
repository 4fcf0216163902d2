"""A stand-in for Vitess: VTGate's VStream over real MySQL shards, because no real Vitess can be had here.

Values, GTIDs and concurrency are MySQL's own; the order and form of the events follow Vitess's source and
``tests/golden/cases/h_vitess_vstream.json``. From the gRPC call down to the binlog:

| module | does the work in Vitess of |
|---|---|
| ``service``, ``__main__`` | vtgate's and vtctld's gRPC server, with its authentication |
| ``vstream`` | vtgate's vstream_manager: one stream out of the shards' |
| ``execute`` | vtgate's statements: SHOW, and writes routed by the vindex |
| ``tablet_stream``, ``copy_phase`` | vttablet's uvstreamer: the copy, then the log |
| ``log_stream``, ``row_values``, ``fields``, ``rules`` | vttablet's vstreamer: the binlog as events |
| ``schemas``, ``schema_tracker`` | vttablet's historian: columns as they were |
| ``topology``, ``vindex``, ``reshard`` | keyspaces, shards, tablets, and moving between them |
| ``faults`` | failures on demand, which Vitess itself lacks |
| ``replay`` | a recorded stream, at full speed |
"""
