"""Shared by all that ask an Oracle database: the connection, its errors, the settings of a source."""
