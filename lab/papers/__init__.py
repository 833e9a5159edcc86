"""The papers' findings beside ours, from the testbed: `python -m lab.papers`."""
