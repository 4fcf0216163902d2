"""Shared by a keyspace's reader and the stack's documents: how a keyspace is reached, and the settings of its stream."""
