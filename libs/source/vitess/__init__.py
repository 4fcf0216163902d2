"""What a keyspace's reader and the stack's documents share: how a keyspace is reached, and what is asked of it."""
