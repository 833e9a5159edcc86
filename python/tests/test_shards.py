import gzip
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic
from conftest import ROOT, SMALL, Command, campaign_of

from fullpipe import read_runs
from fullpipe.campaign import RunSpec, expand, read_campaign
from fullpipe.campaign.cost import model_s
from fullpipe.campaign.merge import merge
from fullpipe.campaign.shard import Shard, parse_shard, take
from fullpipe.campaign.state import inspect, prepare
from fullpipe.cli.campaign import _mixtures
from fullpipe.errors import FailedError, RecordError, UsageError
from fullpipe.record import read_failures
from fullpipe.run import LabPath

CLUSTERS = ROOT / "docs" / "howto" / "campaigns-on-a-cluster.md"


def shards(folder: Path, runs: list[RunSpec], count: int = 3) -> list[Path]:
    """The folders of all shards of a campaign, with made-up records of all runs."""
    folders = []
    for number in range(1, count + 1):
        out = folder / f"s{number}"
        part = take(runs, Shard(number, count))
        prepare(out, part, Path("small.toml"), "a title", runs, Shard(number, count))
        for run in part:
            synthetic.write(out, run, samples=2)
        folders.append(out)
    return folders


@pytest.mark.parametrize("count", [1, 2, 3, 7, 32])
def test_shards_are_disjoint_and_complete(small: list[RunSpec], count: int) -> None:
    parts = [take(small, Shard(number, count)) for number in range(1, count + 1)]
    assert sorted(run.name for part in parts for run in part) == sorted(run.name for run in small)
    assert all(parts) and sum(map(len, parts)) == len(small)
    order = {run: index for index, run in enumerate(small)}
    assert all(part == sorted(part, key=order.__getitem__) for part in parts)


def test_every_machine_finds_the_same_shards(small: list[RunSpec]) -> None:
    """Another split would mix up the shards of machines with another version, or an older folder's."""
    assert [run.name for run in take(small, Shard(1, 7))] == [
        "htcp-n1-b1GB-rtt11.8ms-s1-85070de473",
        "cubic-n1-b250KB-rtt183ms-s1-7861d9d6e7",
        "htcp-n4-b250KB-rtt183ms-s2-9c1ad12ddc",
    ]
    assert [run.name for run in take(small, Shard(7, 7))] == [
        "htcp-n1-b250KB-rtt11.8ms-s2-c690e8e1fe",
        "htcp-n4-b1GB-rtt11.8ms-s2-26e208aa1d",
        "htcp-n1-b1GB-rtt183ms-s1-2eb4962d14",
        "htcp-n4-b250KB-rtt183ms-s1-f00254a7f0",
        "htcp-n4-b1GB-rtt183ms-s2-bc62ddc4a3",
    ]


def test_shards_take_about_equally_long() -> None:
    runs = expand(read_campaign(ROOT / "campaigns" / "hpdc17.toml"))
    costs = [sum(map(model_s, take(runs, Shard(number, 10)))) for number in range(1, 11)]
    assert max(costs) < 1.01 * min(costs)


def test_runs_to_one_real_host_are_in_one_shard(small: list[RunSpec]) -> None:
    real = [replace(run, path=host) for run in small[:4] for host in ("dtn2:7412", "dtn3:7412")]
    parts = [take([*real, *small], Shard(number, 4)) for number in range(1, 5)]
    for host in ("dtn2:7412", "dtn3:7412"):
        assert sorted(sum(run.path == host for run in part) for part in parts) == [0, 0, 0, 4]
    with pytest.raises(UsageError, match="3 shards are too many for 8 runs, of which .* give at most 2"):
        take(real, Shard(1, 3))


def test_shards_as_they_are_typed() -> None:
    assert parse_shard(" 3/10") == Shard(3, 10)
    assert str(Shard(3, 10)) == "3/10"
    for text, said in (
        ("3", "'3' is not a shard: .* as in '3/10'"), ("3/", "not a shard"), ("-1/3", "not a shard"),
        ("0/3", "there is no shard 0/3: give a number from 1 to 3"), ("4/3", "from 1 to 3"),
        ("0/0", "there is no shard 0/0"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            parse_shard(text)


def test_a_merge_loses_nothing(tmp_path: Path, small: list[RunSpec]) -> None:
    folders = shards(tmp_path, small)
    before = {f: f.read_bytes() for folder in folders for f in folder.iterdir()}
    found = merge(tmp_path / "all", list(reversed(folders)))
    assert (found.runs, found.records, found.missing, found.others) == (32, 32, 0, [])
    records = {f.name: f.read_bytes() for f in (tmp_path / "all").glob("*.ndjson")}
    assert records == {f.name: content for f, content in before.items() if f.suffix == ".ndjson"}
    assert before == {f: f.read_bytes() for folder in folders for f in folder.iterdir()}
    state = inspect(small, tmp_path / "all")
    assert (len(state.done), state.missing) == (32, [])
    about = json.loads((tmp_path / "all" / "campaign.json").read_text())
    assert (about["file"], about["title"], about["runs"]) == ("small.toml", "a title", 32)
    assert "shard" not in about and about["out"] == str(tmp_path / "all")
    assert merge(tmp_path / "all", folders) == found, "again, with all of it there"
    prepare(tmp_path / "all", small, Path("small.toml"), "a title")
    assert json.loads((tmp_path / "all" / "campaign.json").read_text()) == about


def test_a_partial_merge_and_what_is_added_to_it(tmp_path: Path, small: list[RunSpec]) -> None:
    one, two, three = shards(tmp_path, small)
    gone = next(two.glob("*.ndjson"))
    kept = gone.read_bytes()
    torn = next(three.glob("*.ndjson"))
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-40])
    failure = {"kind": "failed", "name": gone.stem, "reason": "x"}
    (two / "failed.ndjson").write_text(json.dumps(failure) + "\n")
    gone.unlink()
    with pytest.raises(FailedError, match=r"2 of 32 runs have no record") as caught:
        merge(tmp_path / "all", [one, two, three])
    assert f"\n  shard 2/3 in {two}: 1 of " in str(caught.value)
    assert f"\n  shard 3/3 in {three}: 1 of " in str(caught.value)
    assert not (tmp_path / "all").exists(), "nothing is written before the checks have passed"
    found = merge(tmp_path / "all", [one, two], partial=True)
    assert found.records == found.runs - found.missing == len(list((tmp_path / "all").glob("*-*.ndjson")))
    assert [f["name"] for f in read_failures(tmp_path / "all")] == [gone.stem]
    gone.write_bytes(kept)
    found = merge(tmp_path / "all", [one, two, three], partial=True)
    assert (found.records, found.missing) == (31, 1)
    assert read_failures(tmp_path / "all") == []
    assert not (tmp_path / "all" / torn.name).exists(), "an incomplete record is no record"
    torn.write_bytes(whole)
    found = merge(tmp_path / "all", [one, two, three])
    assert (found.records, found.missing) == (32, 0)
    assert (tmp_path / "all" / torn.name).read_bytes() == whole


def test_records_of_other_campaigns_are_copied_too(tmp_path: Path, small: list[RunSpec]) -> None:
    folders = shards(tmp_path, small)
    other = synthetic.write(folders[1], replace(small[0], seed=77), samples=2)
    found = merge(tmp_path / "all", folders)
    assert (found.records, found.missing, found.others) == (33, 0, [other.stem])
    assert (tmp_path / "all" / other.name).read_bytes() == other.read_bytes()


def test_a_merge_without_a_shard_does_not_hide_what_is_missing(
    tmp_path: Path, small: list[RunSpec], command: Command
) -> None:
    one, two, three = shards(tmp_path, small)
    of_three = len(take(small, Shard(3, 3)))
    assert merge(tmp_path / "none", [one, two], partial=True).missing == of_three
    gone = next(two.glob("*.ndjson"))
    kept = gone.read_bytes()
    gone.unlink()
    others = [synthetic.write(one, replace(small[0], seed=seed), samples=2) for seed in range(70, 90)]
    found = merge(tmp_path / "all", [one, two], partial=True)
    assert (found.missing, found.others, found.unknown) == (1, [], len(others))
    assert len(others) > of_three, "records of other campaigns never stand for a listed run"
    told = command("campaign", "merge", "all", one, two, "--partial")
    assert "warning: at least 1 of 32 runs is missing" in told.stderr
    gone.write_bytes(kept)
    told = command("campaign", "merge", "all", one, two, "--partial")
    assert "20 records in all may be of their runs or of another campaign" in told.stderr
    (tmp_path / "all" / gone.name).unlink()
    gone.unlink()
    found = merge(tmp_path / "all", [one, two, three], partial=True)
    assert (found.missing, found.unknown) == (1, 0)
    assert found.others == sorted(file.stem for file in others)


def test_packed_records_count(tmp_path: Path, small: list[RunSpec]) -> None:
    folders = shards(tmp_path, small)
    file = next(folders[0].glob("*.ndjson"))
    subprocess.run(["gzip", file], check=True)
    assert merge(tmp_path / "all", folders).missing == 0
    packed = folders[0] / f"{file.name}.gz"
    assert (tmp_path / "all" / packed.name).exists()
    text = gzip.decompress(packed.read_bytes())
    packed.write_bytes(
        gzip.compress(text.replace(b'"kind":"result",', b'"kind":"result","interrupted":true,'))
    )
    assert merge(tmp_path / "some", folders, partial=True).missing == 1, "as for one that is not packed"


def test_shards_that_do_not_fit_together(tmp_path: Path, small: list[RunSpec]) -> None:
    one, two, three = shards(tmp_path / "a", small)
    out = tmp_path / "all"
    with pytest.raises(UsageError, match="shard 2/3 is missing; give all 3 folders, or .* --partial"):
        merge(out, [one, three])
    with pytest.raises(UsageError, match="shards 1/3, 3/3 are missing"):
        merge(out, [two])
    with pytest.raises(UsageError, match=f"{one} and {one} are both shard 1/3; leave one out"):
        merge(out, [one, one, two, three])
    other = shards(tmp_path / "b", small[:20])
    with pytest.raises(UsageError, match=r"different campaigns: .* \(32 runs\), .* \(20 runs\)"):
        merge(out, [one, other[1], three])
    five = shards(tmp_path / "c", small, 5)
    with pytest.raises(UsageError, match="is shard 1/3 and .* is shard 2/5: the numbers of shards differ"):
        merge(out, [one, five[1]])
    with pytest.raises(UsageError, match=f"{two} is itself shard 2/3"):
        merge(two, [one, two, three])
    with pytest.raises(UsageError, match=f"{two} has shard 2/3; give another folder"):
        merge(two, [one, three], partial=True)
    prepare(tmp_path / "whole", small, Path("small.toml"), None)
    with pytest.raises(UsageError, match="is no shard, but a campaign that ran without --shard"):
        merge(out, [tmp_path / "whole", two, three])
    with pytest.raises(UsageError, match="has another campaign already"):
        prepare(tmp_path / "x", small[:3], Path("x.toml"), None)
        merge(tmp_path / "x", [one, two, three])
    with pytest.raises(RecordError, match="none: no such folder"):
        merge(out, [tmp_path / "none", two, three])
    with pytest.raises(RecordError, match="has no readable campaign.json"):
        (tmp_path / "empty").mkdir()
        merge(out, [tmp_path / "empty", two, three])
    assert not out.exists()


def test_the_folder_of_a_shard_takes_no_whole_campaign(tmp_path: Path, small: list[RunSpec]) -> None:
    one, *_ = shards(tmp_path, small)
    before = (one / "campaign.json").read_bytes()
    with pytest.raises(
        UsageError, match=f"{one} has shard 1/3; add --shard 1/3 .* another folder with --out"
    ):
        prepare(one, small, Path("small.toml"), None)
    assert (one / "campaign.json").read_bytes() == before
    prepare(one, take(small, Shard(1, 3)), Path("small.toml"), None, small, Shard(1, 3))


def test_runs_that_are_there_twice(tmp_path: Path, small: list[RunSpec]) -> None:
    one, two, three = shards(tmp_path, small)
    file = next(one.glob("*.ndjson"))
    (two / file.name).write_bytes(file.read_bytes())
    with pytest.raises(UsageError, match=f"{file.stem} has a record in {one} and in {two}; remove one"):
        merge(tmp_path / "all", [one, two, three])
    (two / file.name).unlink()
    about = json.loads((two / "campaign.json").read_text())
    (two / "campaign.json").write_text(json.dumps(about | {"names": [*about["names"], file.stem]}))
    with pytest.raises(UsageError, match="belongs to shard 1/3 and to shard 2/3: different versions"):
        merge(tmp_path / "all", [one, two, three])
    (two / "campaign.json").write_text(json.dumps(about | {"names": about["names"][1:]}))
    with pytest.raises(UsageError, match="the shards together are not the whole campaign"):
        merge(tmp_path / "all", [one, two, three])
    damaged: list[dict[str, Any]] = [
        {"names": None}, {"names": "x"}, {"shard": "x"}, {"runs": "many"}, {"file": None}, {"title": 5},
    ]  # fmt: skip
    lacking = [{name: value for name, value in about.items() if name != gone} for gone in ("file", "title")]
    for content in (*(about | wrong for wrong in damaged), *lacking):
        (two / "campaign.json").write_text(json.dumps(content))
        with pytest.raises(RecordError, match="damaged or of another version"):
            merge(tmp_path / "all", [one, two, three])


def test_a_record_is_never_replaced_by_another(tmp_path: Path, small: list[RunSpec]) -> None:
    folders = shards(tmp_path, small)
    merge(tmp_path / "all", folders)
    file = next(folders[0].glob("*.ndjson"))
    there = tmp_path / "all" / file.name
    there.write_text(there.read_text().replace('"wall_s":1.5', '"wall_s":1.6'))
    kept = there.read_bytes()
    with pytest.raises(UsageError, match=f"{there} exists already and differs from {file}"):
        merge(tmp_path / "all", folders)
    assert there.read_bytes() == kept


def test_the_commands(tmp_path: Path, small: list[RunSpec], command: Command) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    plan = command("campaign", "run", "small.toml", "--shard", "2/5", "--dry-run", "--workers", 1)
    part = take(small, Shard(2, 5))
    assert f"shard 2/5: {len(part)} runs, 0 done, {len(part)} to do" in plan.stdout
    as_json = command("campaign", "run", "small.toml", "--shard", "2/5", "--dry-run", "--json")
    assert json.loads(as_json.stdout)["shard"] == "2/5"
    for number in range(1, 6):
        failed = command("campaign", "run", "small.toml", "--shard", f"{number}/5", FULLPIPE="/bin/false")
        assert failed.returncode == 1, failed.stderr
    folders = [tmp_path / "runs" / f"small-shard-{number}-of-5" for number in range(1, 6)]
    assert [len(read_failures(folder)) for folder in folders] == [
        len(take(small, Shard(number, 5))) for number in range(1, 6)
    ]
    lacking = command("campaign", "merge", "all", *folders)
    assert lacking.returncode == 1
    assert "32 of 32 runs have no record" in lacking.stderr
    for number, folder in enumerate(folders, start=1):
        for run in take(small, Shard(number, 5)):
            synthetic.write(folder, run, samples=2)
    told = command("campaign", "merge", "all", *folders, "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout) == {
        "event": "merge", "shards": 5, "runs": 32, "records": 32, "missing": 0,
    }  # fmt: skip
    assert told.stderr == "merged 5 shards: 32 records in all\n"
    assert (tmp_path / "all" / "profile.json").exists() and not read_failures(tmp_path / "all")
    done = command("campaign", "run", "small.toml", "-o", "all", "--dry-run")
    assert "32 runs, 32 done, 0 to do" in done.stdout


def test_a_damaged_record_is_no_run_that_is_done(
    tmp_path: Path, small: list[RunSpec], command: Command
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    files = [synthetic.write(tmp_path / "runs" / "small", run, samples=2) for run in small]
    sound = command("campaign", "run", "small.toml", FULLPIPE="/bin/true")
    assert sound.returncode == 0 and "all 32 runs are done" in sound.stderr, sound.stderr
    files[3].write_text(files[3].read_text().replace('"goodput_bps":', '"goodput_bps":-'))
    for arguments in (["run", "small.toml"], ["merge", "all", *shards(tmp_path, small)]):
        if arguments[0] == "merge":
            copy = next((tmp_path / "s2").glob("*.ndjson"))
            copy.write_text(copy.read_text().replace('"goodput_bps":', '"goodput_bps":-'))
        told = command("campaign", *arguments, FULLPIPE="/bin/true")
        assert told.returncode == 1, told.stderr
        last = told.stderr.splitlines()[-1]
        assert last.startswith("error: 1 of 32 runs has a record that cannot be read, such as "), last
        assert re.search("; remove it(| here and in the shard, repeat the shard), and run the same", last)
        assert "all 32 runs are done" not in told.stderr


def test_other_kernels_are_told_of(tmp_path: Path, small: list[RunSpec], command: Command) -> None:
    folders = shards(tmp_path, small)
    for file in folders[0].glob("*.ndjson"):
        file.write_text(file.read_text().replace('"kernel":"6.12.0"', '"kernel":"6.1.9"'))
    told = command("campaign", "merge", "all", *folders[:2], "--partial")
    assert told.returncode == 0, told.stderr
    assert "warning: the shards ran with guest kernels 6.1.9, 6.12.0, and rates differ" in told.stderr
    assert re.search(r"warning: \d+ of 32 runs are missing; 'fullpipe campaign run FILE -o all'", told.stderr)


def test_other_kernels_and_versions_are_told_of_when_a_campaign_goes_on(
    tmp_path: Path, small: list[RunSpec], command: Command
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    out = tmp_path / "runs" / "small"
    files = [synthetic.write(out, run, samples=2) for run in small]
    alike = command("campaign", "run", "small.toml", FULLPIPE="/bin/true")
    assert alike.returncode == 0 and "warning" not in alike.stderr, alike.stderr
    files[0].write_text(files[0].read_text().replace('"kernel":"6.12.0"', '"kernel":"6.1.9"'))
    files[1].write_text(files[1].read_text().replace('"program":"0.1.0"', '"program":"0.2.0"'))
    told = command("campaign", "run", "small.toml", FULLPIPE="/bin/true")
    assert told.returncode == 0, told.stderr
    assert "warning: runs in runs/small are of guest kernels 6.1.9, 6.12.0, and rates differ" in told.stderr
    assert "warning: runs in runs/small are of fullpipe 0.1.0, 0.2.0, and rates may differ" in told.stderr


def test_named_kernels_and_real_hosts_differ_without_a_word(tmp_path: Path, small: list[RunSpec]) -> None:
    lab = small[0].path
    assert isinstance(lab, LabPath)
    runs = [replace(small[0], path=replace(lab, kernel=kernel)) for kernel in ("6.1.9", "6.12.0")]
    runs += [replace(small[0], path=host) for host in ("dtn2:7412", "dtn3:7412")]
    for i, file in enumerate([synthetic.write(tmp_path / "r", run, samples=2) for run in runs]):
        file.write_text(file.read_text().replace('"kernel":"6.12.0"', f'"kernel":"6.12.{i}"'))
    assert _mixtures(tmp_path / "r", read_runs(tmp_path / "r")) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "small.toml", "--shard", "11/10"], 2, "there is no shard 11/10"),
        (["run", "small.toml", "--shard", "1/2", "--find-best"], 2, "leave one out"),
        (["run", "small.toml", "--shard", "1/33"], 2, "33 shards are too many for 32 runs"),
        (["run", "small.toml", "--shard", "1/2", "-o", "s1"], 2, "s1 has shard 1/3 already"),
        (["run", "small.toml", "--shard", "1/3", "-o", "s1"], 2, "has shard 1/3 of another campaign"),
        (
            ["run", "small.toml", "--shard", "1/3", "-o", "w"],
            2,
            "a campaign that ran without --shard already",
        ),
        (["run", "small.toml", "-o", "s1"], 2, "s1 has shard 1/3; add --shard 1/3 to continue it, or give"),
        (["merge", "all"], 2, "SHARD..."),
        (["merge", "small.toml", "s1"], 2, "small.toml is a file, not a folder"),
        (["merge", "small.toml/x", "s1", "--partial"], 5, "cannot be written"),
    ],
)
def test_wrong_usage(
    tmp_path: Path, command: Command, arguments: list[str], code: int, said: str, small: list[RunSpec]
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    shards(tmp_path, small[:20])
    prepare(tmp_path / "w", small, Path("small.toml"), None)
    told = command("campaign", *arguments, FULLPIPE="/bin/true")
    assert told.returncode == code, told.stderr
    assert said in told.stderr and "Traceback" not in told.stderr


def test_a_report_says_how_to_repeat_a_shard(tmp_path: Path) -> None:
    from fullpipe.report.commands import campaign_of as described
    from fullpipe.report.commands import whole

    (tmp_path / "c").mkdir()
    runs = expand(campaign_of(tmp_path / "c", SMALL))
    prepare(tmp_path / "s", runs[:4], Path("small.toml"), None, runs, Shard(3, 8))
    said = whole(tmp_path / "s", described(tmp_path / "s"), Path("r.html"))
    assert said.startswith(
        f"fullpipe campaign run small.toml --out {tmp_path}/s --shard 3/8 && fullpipe report"
    )


SCHEDULERS = {
    "SBATCH": {
        "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "10", "SLURM_CPUS_PER_TASK": "8",
        "SLURM_SUBMIT_DIR": ".",
    },
    "PBS": {"PBS_ARRAY_INDEX": "3", "PBS_O_WORKDIR": "."},
}  # fmt: skip


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_job_scripts_of_the_documentation(tmp_path: Path, scheduler: str) -> None:
    """Each script, with the variables that its scheduler sets, does the third of ten shards."""
    scripts = re.findall(r"```text\n(#!/bin/bash\n.*?)```", CLUSTERS.read_text(), re.DOTALL)
    (script,) = (one for one in scripts if f"#{scheduler} " in one)
    assert re.search(rf"#{scheduler} (--array=|-J )1-10\n", script)
    stub = tmp_path / "fullpipe"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    environment = SCHEDULERS[scheduler] | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        "campaign", "run", "campaigns/hpdc17.toml", "--shard", "3/10", "--out", "runs/hpdc17-3",
        "--workers", "8",
    ]  # fmt: skip
