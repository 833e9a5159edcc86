"""What is kept of the papers' runs, and the verdicts that are written from it."""

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import synthetic
from conftest import ROOT, campaign_of
from lab.papers import keep, page
from lab.papers.__main__ import texts
from lab.papers.cells import AXES, FOLDER
from lab.papers.keep import MAX_BYTES, Kept, dynamics, pack

from fullpipe.campaign import expand
from fullpipe.errors import RecordError, UsageError

CAMPAIGN = """
[[grid]]
seeds = 3
sample = "100ms"
path = { rtt = "11.8ms", modality = "10gige", queue_bdp = 1.0, host_noise = "10ms" }
transport = { cc = "cubic", streams = 2, buffer = "1GB" }
workload = { WORKLOAD }
"""


def _campaign(folder: Path, workload: str, samples: int | None = None) -> Path:
    folder.mkdir(parents=True)
    for run in expand(campaign_of(folder, CAMPAIGN.replace("WORKLOAD", workload))):
        synthetic.write(folder, run, samples=samples)
    (folder / "campaign.toml").unlink()
    return folder


def test_the_pages_say_what_follows_from_the_kept_runs() -> None:
    """After `pack`, `python -m lab.papers fit` and `judge` have to be run: the pages say nothing else."""
    kept = Kept.read()
    assert not kept.runs.is_empty()
    for file, text in texts(kept, ROOT).items():
        assert text == (ROOT / file).read_text(), file


def test_another_result_changes_the_page() -> None:
    kept = Kept.read()
    # A clause about these runs is a verdict on every page, and no profile has them.
    is_changed = (pl.col("cc") == "udt") & (pl.col("mtu") == 1500)
    assert kept.runs.select(is_changed.any()).item()
    rates = pl.when(is_changed).then(pl.col("goodput_gbps") * 4).otherwise("goodput_gbps")
    other = Kept(kept.runs.with_columns(rates.alias("goodput_gbps")), kept.traces)
    for file, text in texts(other, ROOT).items():
        assert text != (ROOT / file).read_text(), file


def test_the_kept_files_are_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.glob("*.parquet")) <= MAX_BYTES


def test_packed_runs_have_their_conditions_and_traces(tmp_path: Path) -> None:
    sized = _campaign(tmp_path / "sized", 'size = "1GB"')
    timed = _campaign(tmp_path / "timed", 'duration = "20s"')
    pack([sized, timed], "0123456", tmp_path / "kept")
    kept = Kept.read(tmp_path / "kept")
    axes = kept.runs.filter(pl.col("campaign") == "sized").select(AXES).unique()
    assert axes.rows(named=True) == [
        {
            "rtt_ms": 11.8, "rate_gbps": 10.0, "queue_bdp": 1.0, "mtu": 9000, "loss": 0.0,
            "modality": "10gige", "host_noise_ms": 10.0, "host": "tuned", "kernel": "default", "cc": "cubic",
            "streams": 2, "buffer": "1GB", "size_gb": 1, "duration_s": 0.0, "program": "0.1.0 0123456",
        }
    ]  # fmt: skip
    assert kept.runs["seed"].to_list() == [1, 2, 3, 1, 2, 3]
    assert kept.runs["machine"].to_list() == ["synthetic"] * 6
    assert set(kept.traces["id"]) == set(kept.runs.filter(pl.col("campaign") == "timed")["id"])
    seconds = kept.traces.group_by("id", "stream").len()
    assert seconds.height == 6
    assert set(seconds["len"]) <= {19, 20}


def test_a_campaign_replaces_its_earlier_records(tmp_path: Path) -> None:
    into = tmp_path / "kept"
    pack([_campaign(tmp_path / "a" / "one", 'size = "1GB"')], "old", into)
    pack([_campaign(tmp_path / "a" / "two", 'size = "2GB"')], "old", into)
    pack([_campaign(tmp_path / "b" / "one", 'size = "1GB"')], "new", into)
    runs = Kept.read(into).runs
    assert runs.group_by("campaign", "program").len().sort("campaign").rows() == [
        ("one", "0.1.0 new", 3),
        ("two", "0.1.0 old", 3),
    ]


def test_a_campaign_comes_in_parts(tmp_path: Path) -> None:
    into = tmp_path / "kept"
    pack([_campaign(tmp_path / "a" / "one", 'duration = "20s"')], "old", into)
    # The other part, and a run that both have.
    other = _campaign(tmp_path / "b" / "one", 'duration = "21s"')
    first = sorted((tmp_path / "a" / "one").glob("*.ndjson"))[0]
    shutil.copy(first, other)
    pack([other], "new", into, add=True)
    kept = Kept.read(into)
    assert sorted(kept.runs["program"]) == ["0.1.0 new"] * 4 + ["0.1.0 old"] * 2
    assert set(kept.traces["id"]) == set(kept.runs["id"]) and kept.runs["id"].n_unique() == 6


def test_a_run_of_two_campaigns_counts_once(tmp_path: Path) -> None:
    folders = [_campaign(tmp_path / name, 'size = "1GB"') for name in ("one", "two")]
    pack(folders, "0123456", tmp_path / "kept")
    kept = Kept.read(tmp_path / "kept")
    assert kept.runs.height == 6
    assert len(kept.cells.values("goodput_gbps", {"cc": "cubic"})) == 3


def test_too_large_records_leave_the_kept_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    into = tmp_path / "kept"
    pack([_campaign(tmp_path / "one", 'size = "1GB"')], "old", into)
    before = {file.name: file.read_bytes() for file in into.iterdir()}
    monkeypatch.setattr(keep, "MAX_BYTES", 100)
    with pytest.raises(UsageError, match="more than"):
        pack([_campaign(tmp_path / "two", 'size = "2GB"')], "new", into)
    assert {file.name: file.read_bytes() for file in into.iterdir()} == before


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(RecordError):
        pack([tmp_path / "none"], "0123456", tmp_path / "kept")


def test_dynamics_of_a_trace() -> None:
    noise = np.random.default_rng(1).normal(size=90)
    found = dynamics(9e9 + 1e8 * noise)
    assert found["variation"] == pytest.approx(1e8 * noise.std(ddof=1) / 9e9, rel=0.01)
    assert found["exponent"] is not None and found["exponent"] < 0
    assert found["exponent_size"] == -found["exponent"]
    assert dynamics(np.full(90, 9e9)) == {"variation": 0.0}
    assert dynamics(np.zeros(90)) == {}
    assert dynamics(9e9 + 1e8 * noise[:30]) == {}
    # Too short, or too few different values, for an exponent alone.
    for few in (9e9 + 1e8 * noise[:45], np.round(9 + noise) * 1e9):
        found = dynamics(few)
        assert found["exponent"] is None and found["exponent_size"] is None
        assert found["variation"] == pytest.approx(few.std(ddof=1) / few.mean())
        assert found["map_width"] is not None


def test_the_page_names_the_machine_as_far_as_it_is_kept(tmp_path: Path) -> None:
    into = tmp_path / "kept"
    pack([_campaign(tmp_path / "one", 'size = "1GB"')], "0123456", into)
    new = Kept.read(into).runs
    assert page.origin(new).endswith(" They were made on synthetic (3 runs).")
    # Files that were written before the machine was kept do not have the column.
    old = new.drop("machine").with_columns(pl.lit("two").alias("campaign"))
    old.write_parquet(into / "runs.parquet")
    read = Kept.read(into).runs
    assert read.columns == list(keep.RUNS)
    assert page.origin(read).endswith(" Which machine made them is not kept.")
    both = pl.concat([new, read])
    assert page.origin(both).endswith(" on synthetic (3 runs); of 3 runs the machine is not kept.")
    # Another campaign is packed beside them.
    pack([tmp_path / "one"], "0123456", into)
    assert Kept.read(into).runs["machine"].to_list() == ["synthetic"] * 3 + [None] * 3


def test_what_is_written_goes_between_the_marks() -> None:
    old = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"
    new = f"{page.BEGIN}\nnew\n{page.END}"
    assert page.insert(old, new) == f"before\n{new}\nafter\n"
    with pytest.raises(ValueError):
        page.insert("no marks\n", new)
