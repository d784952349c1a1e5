"""Fuzzing campaigns that test the library with odd input, damaged files, full disks and signals.

    PYTHONPATH=tests python -m fuzz --help

A campaign is a function ``case(rng, folder, number)`` that raises AssertionError if a law does not
hold; any other exception it raises is a failure too. Each case has its own random generator and
folder, so that a seed and a number repeat the case exactly.
"""
