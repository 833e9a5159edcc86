"""Validates the testbed: compares what it emulates with arithmetic and closed forms.

Run `python3 -m lab.validate` in the root of the repository. It needs only Python and a built fullpipe with
its guest kernel.
"""
