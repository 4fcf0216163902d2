"""What a simulation ends with when a promise is broken."""


class Violation(AssertionError):
    """A promise is broken; the text says which, and where."""
