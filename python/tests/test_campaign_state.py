import errno
import gzip
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from conftest import ROOT, SMALL, Command
from distributed import LocalCluster

from fullpipe.campaign import RunSpec, expand, read_campaign
from fullpipe.campaign.cost import calibration, estimate, model_s
from fullpipe.campaign.execute import record_path
from fullpipe.campaign.lock import LOCK, locked
from fullpipe.campaign.progress import Eta, duration
from fullpipe.campaign.state import inspect
from fullpipe.errors import UsageError
from fullpipe.record import read_outcome
from fullpipe.run import LabPath


def test_only_whole_records_count_as_done(tmp_path: Path, small: list[RunSpec]) -> None:
    for run in small[:4]:
        synthetic.write(tmp_path, run)
    torn = record_path(small[1], tmp_path)
    torn.write_text(torn.read_text()[:-50])
    headless = record_path(small[2], tmp_path)
    headless.write_text(headless.read_text().splitlines()[0] + "\n")
    stopped = synthetic.write(tmp_path, small[4])
    stopped.write_text(stopped.read_text().replace('"kind":"result",', '"kind":"result","interrupted":true,'))
    state = inspect(small, tmp_path)
    assert state.done == [small[0], small[3]]
    assert state.missing == [small[1], small[2], *small[4:]]


def test_packed_records_count_as_done(tmp_path: Path, small: list[RunSpec], command: Command) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    out = tmp_path / "runs" / "small"
    files = [synthetic.write(out, run, samples=2) for run in small]
    unpacked = inspect(small, out)
    subprocess.run(["gzip", *files], check=True)
    assert not list(out.glob("*.ndjson"))
    assert inspect(small, out) == unpacked
    told = command("campaign", "run", "small.toml", FULLPIPE="/bin/false")
    assert told.returncode == 0 and "all 32 runs are done" in told.stderr, told.stderr
    torn, stopped, plain = (file.with_name(f"{file.name}.gz") for file in files[:3])
    text = gzip.decompress(stopped.read_bytes())
    torn.write_bytes(torn.read_bytes()[:-50])
    stopped.write_bytes(
        gzip.compress(text.replace(b'"kind":"result",', b'"kind":"result","interrupted":true,'))
    )
    files[2].write_bytes(gzip.decompress(plain.read_bytes())[:-50])
    assert inspect(small, out).missing == small[:2], "the packed record is whole where the other is not"


def test_the_result_of_a_large_packed_record_is_found(tmp_path: Path) -> None:
    lines = ['{"kind":"run"}', *['{"kind":"sample","x":"%s"}' % ("x" * 300_000)] * 12]
    file = tmp_path / "x.ndjson.gz"
    file.write_bytes(gzip.compress("\n".join([*lines, '{"kind":"result","bytes":5}\n\n']).encode()))
    assert read_outcome(file) == {"kind": "result", "bytes": 5}
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert read_outcome(file) is None


@pytest.mark.parametrize("real", [5, {"wall_s": "long"}, {"wall_s": -3}, {"wall_s": True}])
def test_a_damaged_time_calibrates_nothing(tmp_path: Path, small: list[RunSpec], real: object) -> None:
    record = synthetic.write(tmp_path, small[0])
    *lines, last = record.read_text().splitlines()
    record.write_text("\n".join([*lines, json.dumps(json.loads(last) | {"real": real})]) + "\n")
    state = inspect(small, tmp_path)
    assert state.done == small[:1] and state.factor == 1


def test_a_result_longer_than_the_first_reach_is_found(tmp_path: Path) -> None:
    record = tmp_path / "x.ndjson"
    record.write_text('{"kind":"run"}\n' + json.dumps({"kind": "result", "streams": ["x" * 300_000]}) + "\n")
    found = read_outcome(record)
    assert found is not None
    assert found["kind"] == "result"


def test_calibration_and_estimate(small: list[RunSpec]) -> None:
    assert calibration([]) == 1.0
    factor = calibration((run, 3 * model_s(run)) for run in small)
    assert factor == pytest.approx(3)
    total = sum(map(model_s, small))
    assert estimate(small, 2, factor).core_s == pytest.approx(3 * total)
    assert estimate(small, 2).wall_s == pytest.approx(total / 2)
    assert estimate(small, 10_000).wall_s == pytest.approx(max(map(model_s, small)))


def test_udt_and_disks_take_longer(small: list[RunSpec]) -> None:
    run = replace(small[0], duration=10_000_000_000, size=None)
    assert isinstance(run.path, LabPath)
    disks = replace(run, path=replace(run.path, disk_a="1GB/s+size:20GB", disk_b="1GB/s+size:20GB"))
    assert model_s(run) < model_s(replace(run, cc="udt")) < model_s(disks)


def test_mounts_take_as_long_as_their_bytes() -> None:
    # 12 runs of 1 GB over 0.4 to 366 ms took 4.0 to 8.0 core seconds, writes 4.2 and reads 5.6 on average.
    runs = expand(read_campaign(ROOT / "campaigns" / "icccn17-mounts.toml"))
    assert model_s(runs[0]) < model_s(next(run for run in runs if run.reverse))
    assert 4.9 / 1.2 < estimate(runs, 2).core_s / len(runs) < 4.9 * 1.2


def test_runs_to_one_host_queue_up() -> None:
    runs = [
        RunSpec("dtn2:7412", "cubic", 1, None, None, None, 10**10, seed, 10**8) for seed in range(1, 5)
    ]  # fmt: skip
    assert estimate(runs, 4).wall_s == pytest.approx(estimate(runs, 4).core_s)


def test_time_left_is_weighted_by_cost() -> None:
    eta = Eta(total=100.0, workers=2)
    assert eta.left_s(0.0) == 50.0
    eta.done = 80.0
    assert eta.left_s(40.0) == pytest.approx(10.0)


def test_dry_run_counts_and_runs_nothing(tmp_path: Path, small: list[RunSpec], command: Command) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    for run in small[:5]:
        synthetic.write(tmp_path / "runs" / "small", run)
    plan = command("campaign", "run", "small.toml", "--dry-run", "--json", "--workers", 2)
    assert plan.returncode == 0, plan.stderr
    found = json.loads(plan.stdout)
    assert (found["runs"], found["done"], found["missing"]) == (32, 5, 27)
    assert found["core_hours"] < found["core_hours_of_all"]
    words = command("campaign", "run", "small.toml", "--dry-run", "--workers", 1)
    assert "32 runs, 5 done, 27 to do" in words.stdout
    assert re.search(r"about \d+ s with 1 worker \(about \d+ s of one core\)", words.stdout)
    assert not list((tmp_path / "runs" / "small").glob("*.parquet"))


def test_a_missing_binary_is_said_at_once(tmp_path: Path, command: Command) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    found = command("campaign", "run", "small.toml", FULLPIPE="", PATH=str(tmp_path))
    assert found.returncode == 3
    assert found.stderr.startswith("error: the fullpipe program is neither")
    found = command("campaign", "run", "small.toml", FULLPIPE="/no/such/fullpipe")
    assert found.returncode == 3
    assert "/no/such/fullpipe" in found.stderr


@pytest.mark.parametrize(
    ("program", "reason"),
    [("/bin/false", "exit code 1 without an error message"), ("/bin/true", "left no complete record")],
)
def test_failed_runs_are_noted_and_do_not_stop_the_rest(
    tmp_path: Path, small: list[RunSpec], command: Command, program: str, reason: str
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    synthetic.write(tmp_path / "out", small[0])
    found = command("campaign", "run", "small.toml", "--out", "out", "--json", FULLPIPE=program)
    assert found.returncode == 1, found.stderr
    assert "31 of 32 runs failed" in found.stderr
    assert reason in found.stderr
    assert "Traceback" not in found.stderr
    events = [json.loads(line) for line in found.stdout.splitlines()]
    assert [event["event"] for event in events] == ["run"] * 31 + ["campaign"]
    failed = [json.loads(line) for line in (tmp_path / "out" / "failed.ndjson").read_text().splitlines()]
    assert {failure["name"] for failure in failed} == {run.name for run in small[1:]}
    assert all(reason in failure["reason"] for failure in failed)
    assert (tmp_path / "out" / "profile.json").exists()


def test_a_cluster_that_exists(
    tmp_path: Path, small: list[RunSpec], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.setenv("FULLPIPE", "/bin/false")  # the workers' own; they look for it themselves
    with LocalCluster(n_workers=1, protocol="tcp", dashboard_address=None) as cluster:
        found = command("campaign", "run", "small.toml", "--scheduler", cluster.scheduler_address)
    assert found.returncode == 1, found.stderr
    assert "32 of 32 runs failed" in found.stderr
    assert "32 × exit code 1 without an error message" in found.stderr


def test_two_campaigns_do_not_run_into_one_folder(tmp_path: Path, command: Command) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    out = tmp_path / "out"
    out.mkdir()
    failures = '{"kind":"failed","name":"x","reason":"y"}\n'
    (out / "failed.ndjson").write_text(failures)
    with locked(out):
        told = command("campaign", "run", "small.toml", "-o", "out", FULLPIPE="/bin/false")
        assert told.returncode == 2, told.stderr
        assert told.stderr == (
            "error: another 'fullpipe campaign run' is running into out; wait until it ends, or give another "
            "folder with --out\n"
        )
        assert {file.name for file in out.iterdir()} == {"failed.ndjson", LOCK}
        assert (out / "failed.ndjson").read_text() == failures
        assert command("campaign", "run", "small.toml", "-o", "out", "--dry-run").returncode == 0
        shard = command("campaign", "run", "small.toml", "--shard", "1/32", FULLPIPE="/bin/false")
        assert "1 of 1 run failed" in shard.stderr, "shards have folders of their own"
    with locked(out):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_stops_no_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with locked(tmp_path / "a" / "b"), locked(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / LOCK).exists()


def test_a_lock_that_another_user_made_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with locked(tmp_path):
        pass
    opened = os.open

    def as_other(path: Path, flags: int, *mode: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, flags, *mode)

    monkeypatch.setattr("os.open", as_other)
    with locked(tmp_path), pytest.raises(UsageError, match="wait until it ends"), locked(tmp_path):
        pass


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere"])
def test_a_cluster_that_does_not_exist(tmp_path: Path, command: Command, address: str) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    found = command("campaign", "run", "small.toml", "--scheduler", address)
    assert found.returncode == 3, found.stderr
    assert f"error: no Dask scheduler answers at {address}" in found.stderr
    assert "Traceback" not in found.stderr


def test_one_run_is_said_as_one(tmp_path: Path, command: Command) -> None:
    one = SMALL.replace("seeds = 2", "seeds = 1").replace('"11.8ms", ', "").replace('"cubic", ', "")
    (tmp_path / "one.toml").write_text(one.replace("1, 4", "1").replace('"250KB", ', ""))
    assert command("campaign", "run", "one.toml", "--dry-run").stdout.startswith("1 run, 0 done, 1 to do\n")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59, "59 s"), (87, "1.4 min"), (120, "2 min"), (1234, "21 min"), (5400, "1.5 h"),
     (40_000, "11 h"), (172_800, "2 days")],
)  # fmt: skip
def test_times_as_people_say_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_the_demo_is_estimated_as_it_was_measured() -> None:
    # 168 runs took 155 core seconds where the model's constants were measured.
    runs = expand(read_campaign(ROOT / "campaigns" / "demo.toml"))
    assert 155 / 1.2 < estimate(runs, 2).core_s < 155 * 1.2


def test_usage_errors_point_to_the_help_of_their_command(tmp_path: Path, command: Command) -> None:
    for arguments in (["run"], ["run", "--no-such"], ["run", "x.toml", "--limit", "10"]):
        found = command("campaign", *arguments)
        assert found.returncode == 2
        assert found.stderr.endswith("(see 'fullpipe campaign run --help')\n"), found.stderr
    assert "'10' is not a time: its unit is missing" in found.stderr
    assert "(see 'fullpipe campaign --help')" in command("campaign", "walk").stderr


@pytest.mark.parametrize("option", ["-o", "--out"])
def test_a_file_is_no_folder(tmp_path: Path, command: Command, option: str) -> None:
    (tmp_path / "file").write_text("")
    for verb in (["campaign", "run"], ["analyze"]):
        found = command(*verb, "x", option, "file")
        assert found.returncode == 2
        assert "file is a file, not a folder; give another name" in found.stderr


@pytest.mark.parametrize("verb", [["campaign", "run"], ["analyze"], ["report"]])
def test_every_option_says_what_it_does(command: Command, verb: list[str]) -> None:
    options = command(*verb, "--help").stdout.partition("Options:\n")[2]
    for entry in re.split(r"\n(?=  -)", options.rstrip()):
        assert len(entry.split()) > 5, entry


def test_bad_usage(tmp_path: Path, command: Command) -> None:
    for arguments in (["run"], ["run", "none.toml"], ["run", "none.toml", "--workers", "0"], ["walk"]):
        found = command("campaign", *arguments)
        assert found.returncode == 2, found.stderr
        assert found.stderr.startswith("error: ")
        assert "Traceback" not in found.stderr


def test_an_output_folder_that_cannot_be(tmp_path: Path, command: Command) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "file").write_text("")
    found = command("campaign", "run", "small.toml", "--out", "file/sub", FULLPIPE="/bin/true")
    assert found.returncode == 5, found.stderr
    assert "cannot be written" in found.stderr
