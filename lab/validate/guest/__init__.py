"""Programs that run on the two ends of an emulated path.

They are handed over as text (`python3 -c`), so that it does not matter where the repository lies: a guest
has a `/tmp` of its own.
"""

from pathlib import Path


def source(name: str) -> str:
    """The text of one of the programs beside this file."""
    return (Path(__file__).parent / f"{name}.py").read_text()
