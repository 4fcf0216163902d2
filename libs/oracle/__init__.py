"""Oracle's redo as LogMiner prints it: statements, LOB fragments, undo, chains of logs, internal formats.

Nothing here opens a connection or knows a driver. ``docs/oracle.md`` says how far
the source is built.
"""
