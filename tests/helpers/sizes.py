"""Amount of simulations, fuzzing or data that a test uses.

`make test` runs the short form of every test and `make test-long` the full one. Both test the same
law; the short form takes fewer cases, never a weaker law.
"""

import os

LONG = os.environ.get("BIV_TEST_LONG", "") not in ("", "0")


def size(short, full):
    """Return `short` in `make test`, and `full` in `make test-long`."""
    return full if LONG else short
