"""Compares the papers' findings with the testbed's: `python -m lab.papers`."""
