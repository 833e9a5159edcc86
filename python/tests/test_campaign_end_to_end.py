"""Runs tiny campaigns in the testbed with the `fullpipe` binary, which `make` builds first."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Command, built_program

from fullpipe import read_runs
from fullpipe.campaign.lab_mount import check_mount
from fullpipe.errors import UsageError
from fullpipe.profile import profile
from fullpipe.storage import read_storage

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


def start(folder: Path, environment: dict[str, str], seeds: int = 4) -> "subprocess.Popen[str]":
    (folder / "tiny.toml").write_text(CAMPAIGN.replace("seeds = 4", f"seeds = {seeds}"))
    return subprocess.Popen(
        [sys.executable, "-m", "fullpipe.cli.campaign", "run", "tiny.toml", "--workers", "1", "--json"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # These tests may run below nohup.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
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


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_killed_and_started_again_only_what_is_missing_runs(
    tmp_path: Path, environment: dict[str, str], how: signal.Signals
) -> None:
    first = start(tmp_path, environment)
    wait_for_one(tmp_path, first)
    first.send_signal(how)
    _, words = first.communicate(timeout=60)
    assert first.returncode == (-9 if how is signal.SIGKILL else 130), words
    assert "Traceback" not in words
    assert how is signal.SIGKILL or "stopped; run the same command again" in words, words
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
    assert "of other runs" not in words
    _, words = start(tmp_path, environment, seeds=1).communicate(timeout=60)
    assert "also has 3 records of other runs" in words


def test_a_run_over_its_limit_fails_alone(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "long.toml").write_text(CAMPAIGN.replace("seeds = 4", "seeds = 1").replace("2GB", "200GB"))
    done = subprocess.run(
        [sys.executable, "-m", "fullpipe.cli.campaign", "run", "long.toml", "--limit", "2s"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "raise --limit" in done.stderr
    assert not list((tmp_path / "runs" / "long").glob("*-s1-*"))


MOUNTS = """
title = "mounts"
[[grid]]
[grid.path]
rtt = ["2ms", "20ms"]
rate = "1gbit"
mount = ["nfs", "nfs+nconnect:2+read_ahead:4MiB"]
[grid.storage]
operation = "read"
threads = 2
block = "1MiB"
direct = "off"
[grid.workload]
size = "20MB"
"""


def test_a_campaign_of_mounts(tmp_path: Path, command: Command) -> None:
    """Each run is a record of storage, as `measure` makes it; only what is missing is run again."""
    program = built_program()
    (tmp_path / "mounts.toml").write_text(MOUNTS)
    done = command("campaign", "run", "mounts.toml", "--workers", 1, FULLPIPE=program)
    assert done.returncode == 0, done.stderr
    assert "wrote storage-profile.json in runs/mounts\nall 4 runs are done" in done.stderr
    folder = tmp_path / "runs" / "mounts"
    runs = read_storage(folder).runs
    assert sorted(runs["id"]) == sorted(record.stem for record in folder.glob("*.ndjson"))
    assert (runs.height, set(runs["threads"]), set(runs["block_bytes"])) == (4, {2}, {1 << 20})
    assert (set(runs["direct"]), set(runs["cached_bytes"])) == ({False}, {0})
    rates = {}
    for rate, path in zip(runs["rate_bps"], map(json.loads, runs["path"]), strict=True):
        rates[path["rtt"], path["mount"]] = rate
    # The read-ahead limits what is under way, whatever the path carries.
    assert rates["20ms", "nfs"] < 0.3 * rates["2ms", "nfs"]
    assert rates["20ms", "nfs+nconnect:2+read_ahead:4MiB"] > 1.5 * rates["20ms", "nfs"]
    assert not list(folder.glob("*.parquet")) and not (folder / "profile.json").exists()

    direct = subprocess.run(
        [program, "measure", "lab:rtt=20ms,rate=1gbit,mount=nfs", "--read", "--threads", "2", "--block",
         "1MiB", "--direct", "off", "--size", "20MB", "--json"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    result = json.loads(direct.stdout.splitlines()[-1])
    assert result["rate_bps"] == rates["20ms", "nfs"]

    before = {record: record.stat().st_mtime_ns for record in folder.glob("*.ndjson")}
    gone = min(before)
    gone.unlink()
    again = command("campaign", "run", "mounts.toml", "--json", FULLPIPE=program)
    events = [json.loads(line) for line in again.stdout.splitlines()]
    assert [event["name"] for event in events if event["event"] == "run"] == [gone.stem], again.stderr
    assert {record: record.stat().st_mtime_ns for record in before if record != gone} == {
        record: time for record, time in before.items() if record != gone
    }
    plan = json.loads(command("campaign", "run", "mounts.toml", "--dry-run", "--json").stdout)
    assert (plan["done"], plan["missing"]) == (4, 0) and plan["calibration"] != 1

    analyzed = command("analyze", folder)
    assert analyzed.returncode == 0, analyzed.stderr
    assert "mount=nfs+nconnect:2+read_ahead:4MiB, queue=1 BDP: Gb/s" in " ".join(analyzed.stdout.split())


def test_mounts_in_shards(tmp_path: Path, command: Command) -> None:
    """Shards are merged, packed or not, beside runs of a transport."""
    program = built_program()
    text = MOUNTS.replace('["2ms", "20ms"]', '"2ms"') + CAMPAIGN.partition('title = "tiny"')[2]
    (tmp_path / "mounts.toml").write_text(text.replace("2GB", "20MB").replace("seeds = 4", "seeds = 1"))
    for number in (1, 2):
        done = command(
            "campaign", "run", "mounts.toml", "--shard", f"{number}/2", "-o", f"s{number}", FULLPIPE=program
        )
        assert done.returncode == 0, done.stderr
    packed, other = tmp_path.glob("s?/mount-*.ndjson")
    subprocess.run(["gzip", packed], check=True)
    other.write_text(other.read_text().replace('"kernel":"', '"kernel":"0.', 1))
    merged = command("campaign", "merge", "all", "s1", "s2", "--json")
    assert merged.returncode == 0, merged.stderr
    assert json.loads(merged.stdout)["records"] == 3
    assert "warning: the shards ran with guest kernels 0." in merged.stderr
    assert {file.name for file in (tmp_path / "all").glob("*.json")} == {
        "campaign.json", "profile.json", "storage-profile.json"
    }  # fmt: skip


@pytest.mark.parametrize(
    "mount",
    [
        "nfs",
        "nfs+vers:4.1+nconnect:16+rsize:64KiB+wsize:4096B+read_ahead:1GiB+slots:1024+sync:yes+size:64MB",
        "nfs+vers:4.0", "nfs+vers:4.0+slots:8", "nfs+vers:3", "nfs+nconnect:0", "nfs+nconnect:17",
        "nfs+rsize:5000B", "nfs+wsize:2MiB", "nfs+read_ahead:2GiB", "nfs+read_ahead:64", "nfs+slots:1025",
        "nfs+sync:on", "nfs+size:63MB", "nfs+size:2TiB", "nfs+async:yes", "nfs+nconnect", "nfs+", "smb", "",
    ],
)  # fmt: skip
def test_a_campaign_takes_the_mounts_that_the_program_takes(mount: str) -> None:
    told = subprocess.run(
        [built_program(), "measure", f"lab:rtt=2ms,rate=1gbit,mount={mount}", "--streams", "2"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert told.returncode == 2
    is_taken = "--streams is for a path that carries streams" in told.stderr
    try:
        check_mount(mount)
    except UsageError:
        assert not is_taken, told.stderr
    else:
        assert is_taken, told.stderr
