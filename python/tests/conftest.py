"""What several tests share."""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fullpipe.campaign import Campaign, RunSpec, expand, read_campaign

ROOT = Path(__file__).resolve().parents[2]
Command = Callable[..., "subprocess.CompletedProcess[str]"]

SMALL = """
[[grid]]
seeds = 2
[grid.path]
rtt = ["11.8ms", "183ms"]
rate = "10gbit"
[grid.transport]
cc = ["cubic", "htcp"]
streams = [1, 4]
buffer = ["250KB", "1GB"]
[grid.workload]
size = "1GB"
"""


def built_program() -> str:
    """The program to test: `FULLPIPE`, that on PATH, or that of the release build."""
    built = ROOT / "target" / "release" / "fullpipe"
    named = os.environ.get("FULLPIPE") or shutil.which("fullpipe") or str(built)
    found = shutil.which(named)
    assert found, f"the fullpipe binary is not at {named}; run 'make' first"
    return found


def campaign_of(folder: Path, text: str) -> Campaign:
    file = folder / "campaign.toml"
    file.write_text(text)
    return read_campaign(file)


@pytest.fixture
def small(tmp_path: Path) -> list[RunSpec]:
    """32 runs."""
    return expand(campaign_of(tmp_path, SMALL))


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs `fullpipe-VERB` as a person would, in a folder of its own."""

    def run(verb: str, *arguments: object, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", f"fullpipe.cli.{verb}", *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture
def frozen_garbage() -> Iterator[None]:
    """Makes each correction for many tests quick: statsmodels collects all garbage in it."""
    gc.freeze()
    yield
    gc.unfreeze()
