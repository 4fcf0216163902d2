"""Bugs that are planted into a copy of the code, to see that the gate's tests catch them.

    python -m tests.planted                   all of them, one after another
    python -m tests.planted replay mask       two by name

Exit code 1: a bug was planted, and the tests that should catch it passed.
"""
