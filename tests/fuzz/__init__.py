"""Campaigns that throw odd input, damaged files, full disks and signals at the library.

    PYTHONPATH=tests python -m fuzz --help

A campaign is a function ``case(rng, folder, number)`` that raises AssertionError where a law does
not hold; every other exception that leaves it is a failure too. Its random numbers and its folder
are its own, so that a seed and a number repeat one case exactly.
"""
