"""Shared by all readers of MySQL's changes: connections, the snapshot, settings of both."""
