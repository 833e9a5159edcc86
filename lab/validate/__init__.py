"""Validation of the testbed: what it emulates, held against arithmetic and closed forms.

Run it from the repository's root: `python3 -m lab.validate`. Needs nothing besides Python and a built
fullpipe with its guest kernel.
"""
