import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import synthetic
from click.testing import CliRunner
from conftest import Command, campaign_of

import fullpipe
from fullpipe.analysis import PARTS, analyze, read_analysis, stored, tables, words
from fullpipe.analysis.build import tidy
from fullpipe.analysis.dynamics import dynamics, sustained
from fullpipe.analysis.model import phases
from fullpipe.analysis.pipeline import analyze_folder
from fullpipe.campaign import RunSpec, expand
from fullpipe.cli.analyze import analyze as analyze_command
from fullpipe.dynamics import Traces
from fullpipe.errors import RecordError, UsageError
from fullpipe.profile import point
from fullpipe.report import report

GRID = """
[[grid]]
seeds = {seeds}
sample = "100ms"
path = {{ rtt = {rtts}, rate = {rate} }}
transport = {{ cc = {ccs}, buffer = "1GB" }}
workload = {{ size = "1GB" }}
"""
RTTS = ["11.8ms", "22.6ms", "45.6ms", "91.6ms", "183ms", "366ms"]


def grid(
    folder: Path, seeds: int = 3, rtts: list[str] = RTTS, rate: Any = "10gbit", ccs: Any = "cubic"
) -> list[RunSpec]:
    parts = {"rtts": json.dumps(rtts), "rate": json.dumps(rate), "ccs": json.dumps(ccs)}
    return expand(campaign_of(folder, GRID.format(seeds=seeds, **parts)))


def rtt_of(run: RunSpec) -> float:
    assert not isinstance(run.path, str)
    return run.path.rtt / 1e6


def of(folder: Path, runs: list[RunSpec], gbps: Any = None, **how: Any) -> dict[str, Any]:
    """The analysis of made-up runs; `gbps` gives each one's goodput."""
    for run in runs:
        synthetic.write(folder / "r", run, None if gbps is None else gbps(run) * 1e9, samples=8)
    return analyze(fullpipe.read_runs(folder / "r"), **how)


def transport(found: dict[str, Any], number: int = 0) -> dict[str, Any]:
    (section,) = found["sections"]
    entry = section["transports"][number]
    assert isinstance(entry, dict)
    return entry


def trace(rates: np.ndarray[Any, Any], rtt_s: float = 0.01, interval: float = 0.1) -> Traces:
    """As if these streams had been sampled after half a second of ramp-up."""
    ramp = np.linspace(0.02, 0.5, 5) * rates.mean(axis=1, keepdims=True)
    whole = np.concatenate([ramp, rates], axis=1)
    t = interval * np.arange(1, whole.shape[1] + 1)
    return Traces("x", t, whole.sum(axis=0), whole, 0.0, interval, rtt_s)


def test_import_loads_nothing_heavy_and_reaches_everything() -> None:
    code = (
        "import sys, fullpipe\n"
        "heavy = {'polars', 'numpy', 'scipy', 'sklearn', 'matplotlib', 'distributed'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "print([name for name in fullpipe.__all__ if getattr(fullpipe, name) is None])\n"
        "print(fullpipe.transition.fit_shape.__name__, fullpipe.profile.point.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["[]", "[]"], done
    assert lines[2] == "fit_shape point"
    assert set(fullpipe.__all__) <= set(dir(fullpipe))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fullpipe.nothing


def test_a_profile_that_turns(tmp_path: Path) -> None:
    runs = grid(tmp_path)
    level = {11.8: 9.5, 22.6: 9.0, 45.6: 7.5, 91.6: 4.0, 183.0: 2.0, 366.0: 1.5}
    found = of(tmp_path, runs, lambda run: level[rtt_of(run)] + 0.02 * (run.seed - 2))
    entry = transport(found)
    fit = entry["transition"]["fit_shape"]
    assert (fit["shape"], fit["between_ms"]) == ("dual", [45.6, 91.6])
    assert words.shape(entry["transition"], 0.95) == (
        "concave up to a point between 45.6 and 91.6 ms, convex beyond (95% sure)"
    )
    assert words.dual_sigmoid(entry["transition"]).startswith("turns between 45.6 and 91.6 ms; ")
    z = words.second_differences(entry["transition"])
    assert z.startswith("z −") and "+" in z
    assert fit["noise_bps"] == pytest.approx(0.02e9, rel=1e-6)


def test_ties_and_how_many_runs_would_tell(tmp_path: Path) -> None:
    runs = grid(tmp_path, ccs=["cubic", "htcp", "scalable"], rtts=["11.8ms", "91.6ms"])
    base = {"cubic": 9.0, "htcp": 8.99, "scalable": 5.0}
    found = of(tmp_path, runs, lambda run: base[run.cc] + 0.05 * (run.seed - 2), parts=["decision"])
    (section,) = found["sections"]
    for entry in section["decision"]:
        assert (entry["best"], entry["tied"]) == ("cubic × 1, 1GB", ["htcp × 1, 1GB"])
        assert words.tied(entry) == "cannot be distinguished from htcp × 1, 1GB"
        assert entry["more_runs"]["more_of_each"] > 100
        assert "of each, to tell it from htcp × 1, 1GB" in words.more_runs(entry)
        assert 0.5 < entry["probability"]["cubic × 1, 1GB"] < 0.7
    assert "profile" not in section["transports"][0]


def test_one_run_of_each_says_so(tmp_path: Path) -> None:
    found = of(tmp_path, grid(tmp_path, seeds=1, ccs=["cubic", "htcp"]))
    entry = transport(found)
    assert words.shape(entry["transition"], 0.95).startswith(
        "cannot say: without repeats the noise is unknown"
    )
    assert words.second_differences(entry["transition"]).startswith("cannot say: without repeats")
    decision = found["sections"][0]["decision"][0]
    assert words.tied(decision).startswith("cannot say: one run of each has no spread")
    assert words.more_runs(decision) == ""


@pytest.mark.parametrize("rtts", [["11.8ms"], ["11.8ms", "366ms"]])
def test_few_rtts_say_so(tmp_path: Path, rtts: list[str]) -> None:
    entry = transport(of(tmp_path, grid(tmp_path, rtts=rtts)))
    assert words.shape(entry["transition"], 0.95).startswith(
        "cannot say: curvature needs runs at 3 distinct RTTs"
    )
    assert words.fits(entry["model"]).startswith("cannot say: ")
    assert words.closest(entry["model"]) == "cannot say"


@pytest.mark.parametrize("count", [1, 3, 5, 6])
def test_forms_are_compared_at_six_rtts_or_more(tmp_path: Path, count: int) -> None:
    model = transport(of(tmp_path, grid(tmp_path, rtts=RTTS[:count])))["model"]
    few = f"cannot say: {count} RTT{'s' * (count > 1)}, too few to compare the forms; measure at 6 or more"
    assert (words.fits(model) == few) == ("too few" in words.fits(model)) == (count < 6)


def test_equal_throughput_says_so(tmp_path: Path) -> None:
    found = of(tmp_path, grid(tmp_path, ccs=["cubic", "htcp"]), lambda run: 5.0)
    said = words.shape(transport(found)["transition"], 0.95)
    assert said == "cannot say: throughput is the same at every RTT"
    assert words.fits(transport(found)["model"]) == said
    decision = found["sections"][0]["decision"][0]
    assert decision["tied"] == ["htcp × 1, 1GB"]
    assert "too close for any number of runs" in words.more_runs(decision)


def test_capacities_are_sections_of_their_own(tmp_path: Path) -> None:
    found = of(tmp_path, grid(tmp_path, rate=["1gbit", "10gbit"]), parts=["profile", "decision"])
    assert [s["conditions"].split(",")[0] for s in found["sections"]] == ["1 Gb/s", "10 Gb/s"]
    assert all(d["candidates"] == 1 for s in found["sections"] for d in s["decision"])
    assert words.tied(found["sections"][0]["decision"][0]).startswith(
        "cannot say: there is no other transport"
    )


def test_phases_of_a_trace() -> None:
    found = phases(trace(np.full((1, 95), 1e9)))
    assert found["sustain_mean_bps"] == pytest.approx(1e9)
    assert found["ramp_s"] == pytest.approx(0.5)
    assert found["f_r"] == pytest.approx(0.05)
    point = {"rtt_ms": 10.0, "n": 1, "said": 1} | found
    assert tables.phases_cell(point) == "0.5 → 1.00"
    assert words.phases_at(point) == "ramps up for 0.5 s, 5% of the time, sustains 1.00 Gb/s"


def test_chaos_is_found_in_the_sum_and_noise_in_the_streams() -> None:
    random = np.random.default_rng(3)
    logistic = np.empty(400)
    logistic[0] = 0.3
    for i in range(1, 400):
        logistic[i] = 3.9 * logistic[i - 1] * (1 - logistic[i - 1])
    noise = 1e8 * random.standard_normal(400)
    streams = np.stack([5e9 + noise, 1e9 + 4e9 * logistic - noise])
    found = dynamics(trace(streams))
    assert 390 < found["points"] <= 400
    assert (found["interval_s"], len(found["streams"])) == (0.1, 2)
    whole = found["aggregate"]["lyapunov"]
    assert whole["verdict"] == "chaotic"
    assert whole["exponent"] == pytest.approx(0.5, abs=0.1)
    assert whole["surrogate_percentile"] >= 97.5
    assert found["streams"][0]["lyapunov"]["verdict"] == "stable"
    assert "1 stable" in words.verdicts(found["streams"])
    assert words.window_held({"bottleneck": "rwnd"}) and not words.window_held({"bottleneck": "path"})


def test_maps_have_intervals_of_an_rtt_and_every_stream() -> None:
    random = np.random.default_rng(1)
    rates = 1e9 + 1e7 * random.standard_normal((2, 400))
    assert sustained(trace(rates, rtt_s=0.366)).interval_s == pytest.approx(0.4)
    assert sustained(trace(rates, rtt_s=0.1)).interval_s == pytest.approx(0.1)
    rates[1, 300:] = 0
    rest = sustained(trace(rates))
    assert rest.per_stream.shape == (2, 299)
    assert rest.aggregate.min() > 1.5e9


@pytest.mark.parametrize("count", [20, 49])
def test_short_traces_have_no_dynamics(count: int) -> None:
    found = dynamics(trace(np.full((1, count), 1e9)))
    assert found["cannot_say"].startswith("fewer than 50 intervals")


def test_a_constant_trace_has_no_exponent() -> None:
    found = dynamics(trace(np.full((1, 100), 1e9)))
    assert "constant" in found["aggregate"]["lyapunov"]["cannot_say"]


def test_quick_leaves_the_exponents_out() -> None:
    found = dynamics(trace(1e9 + 1e7 * np.random.default_rng(1).standard_normal((2, 100))), quick=True)
    assert found["aggregate"]["lyapunov"] is None
    assert found["aggregate"]["poincare"]["sd1_bps"] > 0


def test_json_has_no_number_that_is_none() -> None:
    content = {"a": np.array([1.0, math.inf, math.nan]), "b": np.float64(1 / 3), "c": (1, "x", None, True)}
    assert tidy(content) == {"a": [1.0, None, None], "b": 0.3333333, "c": [1, "x", None, True]}


def test_the_command_stores_and_prints_the_same(tmp_path: Path, command: Command) -> None:
    for run in grid(tmp_path, ccs=["cubic", "htcp"]):
        synthetic.write(tmp_path / "r", run, samples=30)
    told = command("analyze", "r")
    assert told.returncode == 0, told.stderr
    for piece in ("Best at each RTT", "papers' dual sigmoid", "Ramp-up, s", "cannot say: ", "cubic × 1, 1GB"):
        assert piece in told.stdout
    assert told.stderr.endswith("36 runs\n")
    text = (tmp_path / "r" / "analysis.json").read_text()
    again = command("analyze", "r", "--json")
    assert again.stdout == text
    content = read_analysis(tmp_path / "r" / "analysis.json")
    assert (content["kind"], content["version"], content["parts"]) == ("analysis", 2, list(PARTS))
    assert content["records"]["count"] == 36
    assert content["runs"] == 36
    assert (tmp_path / "r" / "profile.json").exists()
    assert "NaN" not in text and "Infinity" not in text


def test_only_some_parts(tmp_path: Path, command: Command) -> None:
    for run in grid(tmp_path, seeds=2, rtts=["11.8ms"]):
        synthetic.write(tmp_path / "r", run, samples=3)
    told = command("analyze", "r", "--only", "decision,profile", "-o", "out")
    assert told.returncode == 0, told.stderr
    assert "Profile" in told.stdout and "Ramp-up" not in told.stdout
    content = json.loads((tmp_path / "out" / "analysis.json").read_text())
    assert content["parts"] == ["profile", "decision"]
    wrong = command("analyze", "r", "--only", "chaos")
    assert wrong.returncode == 2
    assert "'chaos' is not a part of an analysis; choose from profile, decision" in wrong.stderr
    assert command("analyze", "r", "--only", ",").returncode == 2


def test_parquet_without_records(tmp_path: Path, command: Command) -> None:
    runs = grid(tmp_path, seeds=2, rtts=["11.8ms", "45.6ms", "183ms"])
    for run in runs:
        synthetic.write(tmp_path / "r", run, samples=8)
    assert command("analyze", "r", "-o", "p", "--quick").returncode == 0
    first = (tmp_path / "p" / "analysis.json").read_text()
    assert command("analyze", "p", "--quick").returncode == 0
    second = (tmp_path / "p" / "analysis.json").read_text()
    assert json.loads(first)["sections"] == json.loads(second)["sections"]

    file = tmp_path / "p" / "runs.parquet"
    whole, frame = file.read_bytes(), pl.read_parquet(file)
    frame.drop("bottleneck").write_parquet(file)
    other = command("analyze", "p")
    assert other.returncode == 5
    assert "another version of fullpipe" in other.stderr and "'bottleneck'" in other.stderr
    frame.with_columns(pl.col("rtt_ms").cast(pl.Float32)).write_parquet(file)
    assert command("analyze", "p").returncode == 5
    file.write_bytes(whole[: len(whole) // 2])
    torn = command("analyze", "p")
    assert torn.returncode == 5
    assert "cannot be read as Parquet" in torn.stderr and "Traceback" not in torn.stderr
    file.write_bytes(whole)
    samples = tmp_path / "p" / "samples.parquet"
    content = bytearray(samples.read_bytes())
    content[8 : len(content) // 2] = bytes(len(content) // 2 - 8)
    samples.write_bytes(content)
    assert command("analyze", "p").returncode == 5


def test_a_stored_analysis_counts_only_for_its_records(tmp_path: Path, command: Command) -> None:
    runs = grid(tmp_path, seeds=2, rtts=["11.8ms", "45.6ms"])
    folder = tmp_path / "r"
    for run in runs:
        synthetic.write(folder, run, samples=4)
    assert stored(folder) is None
    assert command("analyze", "r", "--quick").returncode == 0
    assert stored(folder) is None
    assert command("analyze", "r").returncode == 0
    assert stored(folder) is not None
    synthetic.write(folder, replace(runs[0], seed=9), samples=4)
    assert stored(folder) is None
    (folder / "analysis.json").write_text("{")
    assert stored(folder) is None


def test_records_of_folders_in_a_folder_are_read_again(tmp_path: Path) -> None:
    runs = grid(tmp_path, seeds=3, rtts=["11.8ms"])
    failed = '{"kind":"failed","name":"x","reason":"the guest died"}\n'
    for name, run in zip("ab", runs, strict=False):
        synthetic.write(tmp_path / "r" / name, run, samples=8)
        (tmp_path / "r" / name / "failed.ndjson").write_text(failed)
    assert report(tmp_path / "r", tmp_path / "first.html") == 2
    assert analyze_folder(tmp_path / "r", tmp_path / "r", quick=True)[1].runs.height == 2
    synthetic.write(tmp_path / "r" / "b", runs[2], samples=8)
    arguments = [str(tmp_path / "r"), "--quick", "--openmetrics", str(tmp_path / "metrics")]
    again = CliRunner().invoke(analyze_command, arguments, standalone_mode=False)
    assert again.exception is None and (tmp_path / "metrics").stat().st_size > 0
    assert read_analysis(tmp_path / "r" / "analysis.json")["records"]["count"] == 3
    files = pl.read_parquet(tmp_path / "r" / "runs.parquet")["file"]
    assert files.to_list() == [f"{'abb'[i]}/{run.name}.ndjson" for i, run in enumerate(runs)]
    assert report(tmp_path / "r", tmp_path / "second.html") == 3
    assert "the guest died" in (tmp_path / "second.html").read_text()


def test_an_analysis_of_another_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "analysis.json"
    for text, why in (
        ('{"kind": "analysis", "version": 99}', "version 99; this program reads version 2"),
        ('{"kind": "analysis", "version": 1}', "version 1; this program reads version 2"),
        ('{"kind": "profile"}', "is not an analysis"),
        ("[", "is damaged"),
        ("[" * 100_000, "is damaged"),
    ):
        file.write_text(text)
        with pytest.raises(RecordError, match=why):
            read_analysis(file)
    with pytest.raises(RecordError, match="run 'fullpipe analyze' first"):
        read_analysis(tmp_path / "none.json")


def test_parts_are_checked(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "r", grid(tmp_path)[0], samples=2)
    with pytest.raises(UsageError, match="not a part of an analysis"):
        analyze(fullpipe.read_runs(tmp_path / "r"), parts=["luck"])


def test_what_limited_runs_is_told_with_the_decision(tmp_path: Path, command: Command) -> None:
    for run in grid(tmp_path, ccs=["cubic", "bbr"], rtts=["183ms"]):
        file = synthetic.write(tmp_path / "r", run, samples=2)
        text = re.sub(r'"bottleneck":"\w+"', '"bottleneck":"sndbuf"', file.read_text())
        file.write_text(text)
    told = command("analyze", "r", "--only", "profile,decision")
    assert told.returncode == 0, told.stderr
    words_of = " ".join(told.stdout.split())
    assert re.search(r"sndbuf in \d+ of \d+ runs", words_of), told.stdout
    assert "183! " in told.stdout
    warning = "! at 183 ms the windows limited all (sndbuf in 6 of 6 runs): compare again with larger buffers"
    assert warning in told.stdout
    assert re.search(r"n=\d+ sndbuf", told.stdout)
    entry = read_analysis(tmp_path / "r" / "analysis.json")["sections"][0]["decision"][0]
    assert set(entry["bottlenecks"]) == {"sndbuf"} and len(entry["window_limited"]) == entry["candidates"]
    report(tmp_path / "r", tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert warning in html and '<th scope="row">183!</th>' in html


def test_windows_are_named_in_every_table(tmp_path: Path, command: Command) -> None:
    for run in grid(tmp_path, ccs=["cubic", "bbr"], rtts=["11.8ms", "91.6ms", "183ms"]):
        file = synthetic.write(tmp_path / "r", run, 5e9, samples=200)
        if run.cc == "cubic" and rtt_of(run) > 50:
            name = "rwnd" if rtt_of(run) == 183 or run.seed == 1 else "sndbuf"
            file.write_text(re.sub(r'"bottleneck":"\w+"', f'"bottleneck":"{name}"', file.read_text()))
    told = command("analyze", "r", "--quick")
    assert told.returncode == 0, told.stderr
    printed = re.sub(r" +\n", "\n", told.stdout)
    parts = re.split(r"\n(?=Best at each|cubic × 1, 1GB\n|bbr × 1, 1GB\n|Ramp-up, s|Dynamics after)", printed)
    profile, decisions, of_bbr, of_cubic, model, _ = parts
    assert re.search(r"cubic × 1, 1GB .* path .* sndbuf .* rwnd\n", profile)
    assert "\n 11.8 " in decisions and "\n 91.6! " in decisions and "\n 183! " in decisions
    assert (
        "! at 91.6 ms the windows limited cubic × 1, 1GB (sndbuf in 2 of 3 runs, rwnd in 1 of 3 runs): "
        "compare again with larger buffers" in decisions
    )
    said = r"limited by window +sndbuf at 91.6 ms; rwnd at 183 ms: there the rate is window/RTT"
    assert re.search(said, of_cubic) and "limited by window" not in of_bbr
    assert re.search(r"cubic × 1, 1GB +\? +\? sndbuf +\? rwnd\n", model), "made-up traces never end ramp-up"
    assert re.search(r"bbr × 1, 1GB +\? +\? +\?\n", model)
    entry = read_analysis(tmp_path / "r" / "analysis.json")["sections"][0]
    cubic = next(t for t in entry["transports"] if t["transport"]["cc"] == "cubic")
    assert cubic["window_limited"] == [
        {"rtt_ms": 91.6, "bottlenecks": {"sndbuf": 2, "rwnd": 1}},
        {"rtt_ms": 183.0, "bottlenecks": {"rwnd": 3}},
    ]
    assert entry["decision"][2]["window_bottlenecks"] == {"cubic × 1, 1GB": {"rwnd": 3}}


@pytest.mark.parametrize(("bottleneck", "said"), [("rwnd", "* rwnd"), ("sndbuf", "* sndbuf"), ("path", "")])
def test_the_window_of_a_run_is_named_with_its_dynamics(bottleneck: str, said: str) -> None:
    rates = 1e9 + 1e7 * np.random.default_rng(1).standard_normal((1, 100))
    for quick in (True, False):
        run: dict[str, Any] = {"rtt_ms": 10.0, "bottleneck": bottleneck}
        run |= dynamics(trace(rates), bottleneck, quick)
        ((_, row),) = tables.dynamics_rows({"transports": [{"name": "x", "dynamics": [run]}]})
        assert row[4] == ("" if quick else run["aggregate"]["lyapunov"]["verdict"]) + said


def test_two_kinds_of_windows_together_are_most_runs() -> None:
    about = {"mean_bps": 1e9, "n": 7, "high_bps": None, "bottlenecks": {"path": 3, "rwnd": 2, "sndbuf": 2}}
    assert tables.profile_cell(about) == "1.00 n=7 rwnd/sndbuf"
    assert (
        tables.profile_cell(about | {"bottlenecks": {"path": 3, "rwnd": 3, "sndbuf": 1}}) == "1.00 n=7 rwnd"
    )
    assert tables.profile_cell(about | {"bottlenecks": {"path": 4, "rwnd": 3}}) == "1.00 n=7 path"


def test_bottlenecks_of_as_many_runs_are_all_named() -> None:
    about = {"mean_bps": 1e9, "n": 2, "high_bps": None, "bottlenecks": {"cwnd": 1, "path": 1}}
    assert tables.profile_cell(about) == "1.00 n=2 cwnd/path"
    assert tables.profile_cell(about | {"n": 3, "bottlenecks": {"cwnd": 2, "path": 1}}) == "1.00 n=3 cwnd"


def test_no_interval_is_above_the_capacity() -> None:
    found = point(11.8, [9.9e9, 9.5e9], 9.92e9)
    assert found["high_bps"] == 9.92e9 and found["low_bps"] < 9.5e9
    assert point(11.8, [1e6, 2e8], 1e9)["low_bps"] == 0


def test_one_file_replaces_no_analysis_of_its_folder(tmp_path: Path, command: Command) -> None:
    of(tmp_path, grid(tmp_path, seeds=1, rtts=RTTS[:1]))
    (file,) = (tmp_path / "r").glob("*.ndjson")
    done = command("analyze", file)
    assert done.returncode == 2 and "is one file; give its folder" in done.stderr, done.stderr
    assert list((tmp_path / "r").iterdir()) == [file]
    assert command("analyze", file, "--out", tmp_path / "one", "--quick").returncode == 0
    assert (tmp_path / "one" / "profile.json").exists()


def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    of(tmp_path, grid(tmp_path, seeds=2))
    command = [sys.executable, "-m", "fullpipe.cli.analyze", "r", "--quick"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.close()
        told = run.stderr.read()
        assert run.wait(timeout=120) == 0, told
