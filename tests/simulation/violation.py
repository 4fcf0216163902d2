"""The error with which a simulation ends when a promise is broken."""


class Violation(AssertionError):
    """A promise is broken; the text says which, and where."""
