"""Runs tiny campaigns in the testbed with the `fullpipe` binary, which `make` builds first."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import built_program

from fullpipe import read_runs
from fullpipe.profile import profile

CAMPAIGN = """
title = "tiny"
[[grid]]
seeds = 4
[grid.path]
rtt = "11.8ms"
rate = "10gbit"
[grid.transport]
cc = "cubic"
buffer = "64MB"
[grid.workload]
size = "2GB"
"""


@pytest.fixture
def environment() -> dict[str, str]:
    return os.environ | {"FULLPIPE": built_program()}


def start(folder: Path, environment: dict[str, str]) -> "subprocess.Popen[str]":
    (folder / "tiny.toml").write_text(CAMPAIGN)
    return subprocess.Popen(
        [sys.executable, "-m", "fullpipe.cli.campaign", "run", "tiny.toml", "--workers", "1", "--json"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def records(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "runs" / "tiny").glob("*.ndjson")}


def wait_for_one(folder: Path, campaign: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 120
    while not records(folder):
        assert campaign.poll() is None, campaign.communicate()
        assert time.monotonic() < deadline, "no record after two minutes"
        time.sleep(0.02)


def alive(word: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line and int(process.name) != os.getpid():
            found.append(line)
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_started_again_only_what_is_missing_runs(
    tmp_path: Path, environment: dict[str, str], how: signal.Signals
) -> None:
    first = start(tmp_path, environment)
    wait_for_one(tmp_path, first)
    first.send_signal(how)
    _, words = first.communicate(timeout=60)
    assert first.returncode == (-9 if how is signal.SIGKILL else 130), words
    assert "Traceback" not in words
    deadline = time.monotonic() + 30
    while (left := alive(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    before = records(tmp_path)
    assert 0 < len(before) < 4

    second = start(tmp_path, environment)
    out, words = second.communicate(timeout=300)
    assert second.returncode == 0, words
    after = records(tmp_path)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before
    ran = [
        event["name"] + ".ndjson" for event in map(json.loads, out.splitlines()) if event["event"] == "run"
    ]
    assert sorted(ran) == sorted(after.keys() - before.keys())

    found = read_runs(tmp_path / "runs" / "tiny")
    (entry,) = profile(found.runs)["entries"]
    assert entry["points"][0]["n"] == 4
    assert 0 < entry["points"][0]["mean_bps"] < 10e9
    assert {"rtt", "snd_cwnd", "total_retrans"} <= set(found.samples.columns)
    assert {p.name for p in (tmp_path / "runs" / "tiny").glob("*.parquet")} == {
        "runs.parquet",
        "samples.parquet",
    }

    third, words = start(tmp_path, environment).communicate(timeout=60)
    assert json.loads(third)["ran"] == 0, words


def test_a_run_over_its_limit_fails_alone(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "long.toml").write_text(CAMPAIGN.replace("seeds = 4", "seeds = 1").replace("2GB", "200GB"))
    done = subprocess.run(
        [sys.executable, "-m", "fullpipe.cli.campaign", "run", "long.toml", "--limit", "2s"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "raise --limit" in done.stderr
    assert not list((tmp_path / "runs" / "long").glob("*-s1-*"))
