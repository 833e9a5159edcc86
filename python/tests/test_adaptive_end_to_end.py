"""Finds the best transport of a tiny campaign in the testbed, with the binary that `make` builds."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Command, built_program

from fullpipe import read_runs

CAMPAIGN = """
title = "tiny"
[[grid]]
seeds = 2
path = { rtt = ["11.8ms", "91.6ms"], rate = "1gbit" }
transport = { cc = ["cubic", "htcp"], streams = [1, 4], buffer = ["64KB", "32MB"] }
workload = { size = "100MB" }
"""


@pytest.fixture
def binary() -> str:
    return built_program()


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_best_of_a_tiny_campaign(tmp_path: Path, command: Command, binary: str) -> None:
    (tmp_path / "tiny.toml").write_text(CAMPAIGN)
    search = ("campaign", "run", "tiny.toml", "--find-best", "--budget", "30%")
    planned = command(*search, "--dry-run", FULLPIPE=binary)
    assert planned.stdout.startswith("32 runs, 0 done, at most 9 to do\n")

    first = command(*search, "--json", FULLPIPE=binary)
    assert first.returncode == 0, first.stderr
    *told, end = events(first.stdout)
    ran = [event["name"] for event in told if event["event"] == "run"]
    found = [event for event in told if event["event"] == "best"]
    assert 2 <= len(ran) == len(set(ran)) <= 9
    assert (end["runs"], end["budget"], end["used"], end["ran"], end["failed"]) == (
        32,
        9,
        len(ran),
        len(ran),
        0,
    )
    assert [best["rtt_ms"] for best in found] == [11.8, 91.6]
    for best in found:
        assert best["transport"]["buffer"] == "32MB"
        assert best["n"] >= 1
        assert 0 < best["mean_bps"] < 1e9
        assert 0 < best["sure"] <= 1

    folder = tmp_path / "runs" / "tiny"
    assert {path.stem for path in folder.glob("*-s*.ndjson")} == set(ran)
    assert json.loads((folder / "profile.json").read_text())["runs"] == len(ran)
    runs = read_runs(folder, samples=False).runs
    for best in found:
        sent = best["transport"]
        mine = runs.filter(
            rtt_ms=best["rtt_ms"], cc=sent["cc"], streams=sent["streams"], buffer=sent["buffer"]
        )
        assert mine.height == best["n"]
        assert mine["goodput_bps"].mean() == pytest.approx(best["mean_bps"])

    again = command(*search, FULLPIPE=binary)
    assert again.returncode == 0, again.stderr
    assert f"{len(ran)} of 32 runs done" in again.stdout
    assert "91.6" in again.stdout
    assert "transfers of 100MB" in again.stdout
    assert len(list(folder.glob("*-s*.ndjson"))) == len(ran)


def test_what_cannot_be_asked_for(tmp_path: Path, command: Command) -> None:
    (tmp_path / "tiny.toml").write_text(CAMPAIGN)
    for arguments, words in (
        (["--budget", "9"], "--budget needs --find-best"),
        (["--find-best", "--budget", "1"], "a budget of 1 of 32 runs is less than one for each of 2"),
        (["--find-best", "--budget", "much"], "'much' is not a budget"),
    ):
        found = command("campaign", "run", "tiny.toml", *arguments)
        assert found.returncode == 2
        assert words in found.stderr
    (tmp_path / "disks.toml").write_text(CAMPAIGN.replace("path = {", 'path = { disk = "1GB/s",'))
    found = command("campaign", "run", "disks.toml", "--find-best", "--dry-run")
    assert found.returncode == 2
    assert "cannot search among runs from disk to disk" in found.stderr


def test_failures_are_told_and_end_it(tmp_path: Path, command: Command) -> None:
    (tmp_path / "tiny.toml").write_text(CAMPAIGN)
    found = command("campaign", "run", "tiny.toml", "--find-best", "--budget", "4", FULLPIPE="/bin/false")
    assert found.returncode == 1
    assert "4 of 32 runs failed" in found.stderr
    assert "Traceback" not in found.stderr
