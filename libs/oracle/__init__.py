"""Oracle's redo as LogMiner prints it: statements, LOB fragments, undo, chains of logs, internal formats.

Nothing here opens a connection or knows a driver. No reader uses these modules yet: ``docs/oracle.md`` says how far
the source is built.
"""
