"""The walkthrough runs from its first cell to its last, on real runs where the testbed's kernel is there."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import nbformat
import numpy as np
import pytest
import synthetic
from conftest import ROOT, campaign_of
from nbclient import NotebookClient

import fullpipe
from fullpipe import labels
from fullpipe.campaign import expand
from fullpipe.profile import Group, point
from fullpipe.report.figures import error_bars

NOTEBOOK = ROOT / "docs" / "tutorial" / "walkthrough.ipynb"
BINARY = ROOT / "target" / "release" / "fullpipe"
MISSING = 3
CAMPAIGN = """
title = "walkthrough"
[[grid]]
seeds = 2
sample = "20ms"
[grid.path]
rtt = ["0.4ms", "11.8ms", "22.6ms", "45.6ms", "91.6ms"]
rate = "1gbit"
[grid.transport]
cc = ["cubic", "htcp"]
buffer = "64MB"
[grid.workload]
duration = "2s"
"""


def emulates(binary: str) -> bool:
    """Whether emulated paths work here; what else goes wrong is no reason to do without."""
    small = [binary, "measure", "lab:rtt=10ms,rate=1gbit", "--size", "1MB", "--quiet"]
    try:
        done = subprocess.run(small, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        return False
    assert done.returncode in (0, MISSING), done.stderr
    return done.returncode == 0


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder, campaign = tmp_path / "runs", campaign_of(tmp_path, CAMPAIGN)
    binary = os.environ.get("FULLPIPE", str(BINARY))
    if emulates(binary):
        done = subprocess.run(
            [sys.executable, "-m", "fullpipe.cli.campaign", "run", "campaign.toml", "--out", str(folder)],
            cwd=tmp_path, env=os.environ | {"FULLPIPE": binary}, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    else:
        for run in expand(campaign):
            synthetic.write(folder, run, samples=100)
    return folder


def test_the_walkthrough_runs(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULLPIPE_RUNS", str(runs))
    monkeypatch.setenv("FULLPIPE", os.environ.get("FULLPIPE", str(BINARY)))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    for piece in ("20 runs", "Decomposition(", "95% sure", "1 Gb/s, ", "dual sigmoid", "limited by"):
        assert piece in printed, piece


def test_the_intervals_are_those_of_the_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means at the path's capacity, where the interval is cut on one side; the best is at every RTT."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    (cell,) = (cell for cell in notebook.cells if "plt.errorbar(rtt_ms, mean" in cell.source)

    def group(cc: str, rates: list[float], rtts: list[float]) -> Group:
        points = [
            point(rtt, [rate - 0.008e9, rate + 0.008e9], 9.927e9)
            for rtt, rate in zip(rtts, rates, strict=True)
        ]
        transport = {"cc": cc, "streams": 1, "buffer": "1GB", "pacing": None}
        return Group({"transport": transport, "points": points}, {})

    full = group("cubic", [9.918e9, 5e9], [11.8, 183.0])
    found = [group("htcp", [9.9e9], [11.8]), full, group("reno", [9e9, 4e9], [11.8, 183.0])]
    monkeypatch.setattr("fullpipe.profile.groups", lambda _: found)
    plt = Mock()
    exec(
        cell.source,
        {
            "fullpipe": fullpipe,
            "labels": labels,
            "np": np,
            "plt": plt,
            "runs": Mock(),
            "error_bars": error_bars,
            "dict": lambda _: {},
        },
    )
    _, mean, bars = plt.errorbar.call_args.args
    assert mean.tolist() == [9.918, 5.0]
    assert bars == pytest.approx(np.array([[0.10165, 0.10165], [0.009, 0.10165]]), rel=1e-3)


def test_the_notebook_is_small() -> None:
    assert NOTEBOOK.stat().st_size < 200_000
