import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from conftest import Command, campaign_of

from fullpipe.analysis import Side, beyond_threshold, compare, read_side, words
from fullpipe.analysis.comparison import _mark_slower
from fullpipe.campaign import LabPath, RunSpec, expand
from fullpipe.confidence import p_not_below
from fullpipe.errors import FullpipeError, UsageError
from fullpipe.report.comparison import difference_figure

GRID = """
[[grid]]
seeds = {seeds}
path = {{ {path} }}
transport = {{ cc = {ccs}, buffer = "{buffer}" }}
workload = {{ {workload} }}
"""
PATH = 'rtt = ["11.8ms", "91.6ms"], rate = "1gbit"'


def grid(
    folder: Path, path: str = PATH, ccs: Any = "cubic", seeds: Any = 4, buffer: str = "1GB",
    workload: str = 'size = "1GB"',
) -> list[RunSpec]:  # fmt: skip
    folder.mkdir(exist_ok=True)
    text = GRID.format(path=path, ccs=json.dumps(ccs), seeds=seeds, buffer=buffer, workload=workload)
    return expand(campaign_of(folder, text))


def write(folder: Path, runs: list[RunSpec], gbps: Callable[[RunSpec], float], **replaced: str) -> Side:
    """Records of made-up runs; `replaced` are regular expressions with their replacement, by any name."""
    for run in runs:
        file = synthetic.write(folder, run, gbps(run) * 1e9, samples=2)
        for old, new in (pair.split(" => ") for pair in replaced.values()):
            file.write_text(re.sub(old, new, file.read_text()))
    return read_side(folder)


def around(gbps: float, spread: float = 0.01) -> Callable[[RunSpec], float]:
    return lambda run: gbps + spread * (run.seed - 2.5)


def rtt(run: RunSpec) -> float:
    assert isinstance(run.path, LabPath)
    return run.path.rtt / 1e6


def verdicts(content: dict[str, Any]) -> list[str]:
    return [cell["verdict"] for cell in content["cells"]]


def test_each_verdict(tmp_path: Path) -> None:
    runs = grid(tmp_path, 'rtt = ["1ms", "2ms", "3ms", "4ms"], rate = "1gbit"')
    level = {1.0: 0.9, 2.0: 0.7, 3.0: 0.803, 4.0: 0.8}
    old = write(tmp_path / "a", runs, around(0.8))
    few = [run for run in runs if rtt(run) < 4 or run.seed == 1]
    new = write(tmp_path / "b", few, lambda run: around(level[rtt(run)])(run))
    content = compare(old, new)
    assert verdicts(content) == ["faster", "slower", "no difference shown", "too few runs"]
    up, down, same, single = content["cells"]
    # Means 0.8 and 0.9, standard deviation 0.0129099, n = 4 of each.
    assert up["before"] == {
        "n": 4, "mean_bps": 0.8e9, "median_bps": 0.8e9, "sd_bps": 12_909_940, "bottlenecks": {"path": 4},
    }  # fmt: skip
    assert up["difference"] == pytest.approx(0.125)
    # ratio 1.125, t(0.975, 3) = 3.182446, variances of the means 1/24·1e-3.
    assert (up["low"], up["high"]) == pytest.approx((0.0870715, 0.1644130), rel=1e-5)
    assert down["high"] < 0 and same["low"] < 0 < same["high"]
    assert (single["low"], single["high"]) == (None, None)
    assert single["cannot_say"].startswith("one run has no spread")
    assert words.difference(up).startswith("+12.5% (+")
    assert words.difference(single) == "−1.9%"
    assert all(content[name] == [] for name in ("changed", "only_before", "only_after"))


def test_an_interval_without_an_upper_end_is_too_few_runs(tmp_path: Path) -> None:
    runs = grid(tmp_path, 'rtt = "1ms", rate = "1gbit"', seeds=2)
    old = write(tmp_path / "a", runs, lambda run: 0.8 * run.seed - 0.7)
    new = write(tmp_path / "b", runs, around(0.5, 0.001))
    (cell,) = compare(old, new)["cells"]
    assert (cell["verdict"], cell["high"]) == ("too few runs", None)
    assert re.fullmatch(r".+ \(above −\d+\.\d%\)", words.difference(cell))


def test_cells_that_only_one_side_has(tmp_path: Path) -> None:
    old = write(tmp_path / "a", grid(tmp_path, ccs=["cubic", "htcp"]), around(0.8))
    new = write(tmp_path / "b", grid(tmp_path, ccs=["cubic", "bbr"], seeds=3), around(0.8))
    content = compare(old, new)
    assert [cell["name"] for cell in content["cells"]] == ["cubic × 1, 1GB"] * 2
    only = [
        [(c["name"], c["rtt_ms"], c["n"]) for c in content[f"only_{side}"]] for side in ("before", "after")
    ]
    assert only[0] == [("htcp × 1, 1GB", 11.8, 4), ("htcp × 1, 1GB", 91.6, 4)]
    assert only[1] == [("bbr × 1, 1GB", 11.8, 3), ("bbr × 1, 1GB", 91.6, 3)]


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ('kernel = "6.1"', ("guest kernel", "none", "6.1")),
        ('host_b = "tuned+tcp_rmem:4096/131072/33554432"',
         ("host b", "tuned", "tuned+tcp_rmem:4096/131072/33554432")),
        ("loss = 0.001", ("loss", "0", "0.001")),
        ('rate = "2gbit"', ("rate", "1gbit", "2gbit")),
        ("queue_bdp = 0.5", ("queue", "1 BDP", "0.5 BDP")),
        ("mtu = 1500", ("mtu", "9000", "1500")),
    ],
)  # fmt: skip
def test_a_key_that_changed_everywhere_is_what_is_compared(
    tmp_path: Path, path: str, changed: tuple[str, str, str]
) -> None:
    base = 'rtt = ["11.8ms", "91.6ms"]' + ("" if "rate" in path else ', rate = "1gbit"')
    old = write(tmp_path / "a", grid(tmp_path), around(0.8))
    new = write(tmp_path / "b", grid(tmp_path, f"{base}, {path}"), around(0.7))
    content = compare(old, new)
    assert content["changed"] == [dict(zip(("what", "before", "after"), changed, strict=True))]
    assert verdicts(content) == ["slower", "slower"]
    assert [cell["rtt_ms"] for cell in content["cells"]] == [11.8, 91.6]


def test_a_key_that_varies_within_a_side_tells_cells_apart(tmp_path: Path) -> None:
    old = write(tmp_path / "a", grid(tmp_path, f"{PATH}, loss = [0, 0.001]"), around(0.8))
    new = write(tmp_path / "b", grid(tmp_path, f"{PATH}, loss = 0.001"), around(0.7))
    content = compare(old, new)
    assert content["changed"] == []
    assert [cell["path"]["loss"] for cell in content["cells"]] == [0.001, 0.001]
    assert [cell["path"]["loss"] for cell in content["only_before"]] == [0, 0]


def test_one_queue_is_one_cell_whatever_it_is_called(tmp_path: Path) -> None:
    """16 MB are a constant over three RTTs, and a multiple of the BDP at one."""
    three = grid(tmp_path, 'rtt = ["11.8ms", "91.6ms", "183ms"], rate = "1gbit", queue = "16MB"')
    old = write(tmp_path / "a", three, around(0.8))
    new = write(tmp_path / "b", [run for run in three if rtt(run) == 91.6], around(0.8))
    content = compare(old, new)
    assert [cell["rtt_ms"] for cell in content["cells"]] == [91.6]
    assert content["changed"] == [] and len(content["only_before"]) == 2


def test_real_hosts_and_their_kernels_sysctls_and_rtts(tmp_path: Path) -> None:
    runs = grid(tmp_path, 'host = "dtn2:7412"', workload='duration = "2s"')
    old = write(tmp_path / "a", runs, around(5))
    new = write(
        tmp_path / "b", runs, around(6),
        kernel='"kernel":"6.12.0","cc":"cubic" => "kernel":"6.18.1","cc":"cubic"',
        sysctl='"net.ipv4.tcp_timestamps":"1" => "net.ipv4.tcp_timestamps":"0"',
        rtt='"rtt_s":0.0916004 => "rtt_s":0.1100001',
    )  # fmt: skip
    content = compare(old, new)
    assert verdicts(content) == ["faster"]
    said = {change["what"]: (change["before"], change["after"]) for change in content["changed"]}
    assert said == {
        "sender kernel": ("6.12.0", "6.18.1"),
        "receiver kernel": ("6.12.0", "6.18.1"),
        "sender net.ipv4.tcp_timestamps": ("1", "0"),
        "receiver net.ipv4.tcp_timestamps": ("1", "0"),
        "RTT to dtn2:7412": ("91.6 ms", "110 ms"),
    }
    other = grid(tmp_path, 'host = "dtn3:7412"', workload='duration = "2s"')
    content = compare(old, write(tmp_path / "c", other, around(4)))
    assert (verdicts(content), content["changed"][0]["what"]) == (["slower"], "host")
    assert content["cells"][0]["conditions"].startswith("to dtn3:7412")


def test_windows_are_marked(tmp_path: Path, command: Command) -> None:
    runs = grid(tmp_path, seeds=9)
    write(tmp_path / "a", runs, around(0.5), bottleneck='"bottleneck":"\\w+" => "bottleneck":"sndbuf"')
    few = [run for run in runs if rtt(run) == 91.6 and run.seed < 4]
    write(tmp_path / "b", runs, around(0.5))
    write(tmp_path / "b", few, around(0.5), bottleneck='"bottleneck":"\\w+" => "bottleneck":"rwnd"')
    told = command("analyze", "--compare", "a", "b")
    assert told.returncode == 0, told.stderr
    assert " 11.8! " in told.stdout and " 91.6! " in told.stdout
    assert (
        "! cubic × 1, 1GB at 91.6 ms: limited by sndbuf in 9 of 9 runs before, and by cwnd in 6 of 9 runs, "
        "rwnd in 3 of 9 runs after" in told.stdout
    )
    assert "! a window limited these" in told.stdout
    cells = json.loads(command("analyze", "--compare", "a", "b", "--json").stdout)["cells"]
    assert [cell["window_limited"] for cell in cells] == [["before"], ["before"]]


def test_the_threshold_names_what_became_slower(tmp_path: Path, command: Command) -> None:
    runs = grid(tmp_path, 'rtt = ["1ms", "2ms", "3ms"], rate = "1gbit"', ccs=["cubic", "htcp"])
    write(tmp_path / "a", runs, around(0.8, 0.001))
    worse = {1.0: 0.8, 2.0: 0.77, 3.0: 0.7}
    kept = [run for run in runs if (rtt(run), run.cc) != (1.0, "htcp")]
    write(tmp_path / "b", kept, lambda run: around(worse[rtt(run)], 0.001)(run))
    told = command("analyze", "--compare", "a", "b", "--threshold", "5%")
    assert told.returncode == 1
    assert told.stdout.endswith("5 cells: 4 slower, 1 no difference shown\n")
    assert "error: 2 of 5 cells became slower by more than 5%" in told.stderr
    assert re.search(r"\n  cubic × 1, 1GB at 3 ms \(1 Gb/s, .*\): −12\.5% \(−.*% to −.*%\)", told.stderr)
    assert re.search(r"\n  htcp × 1, 1GB at 3 ms ", told.stderr)
    assert "at 2 ms" not in told.stderr
    assert "warning: 1 cell of a cannot be tested, since b lacks them" in told.stderr
    assert command("analyze", "--compare", "a", "b", "--threshold", "0.2").returncode == 0
    assert command("analyze", "--compare", "b", "a", "--threshold", "0").returncode == 0
    as_json = command("analyze", "--compare", "a", "b", "--threshold", "5%", "--json")
    assert as_json.returncode == 1
    content = json.loads(as_json.stdout)
    assert content["threshold"] == 0.05
    assert [cell["rtt_ms"] for cell in beyond_threshold(content)] == [3.0, 3.0]


def test_the_threshold_needs_confidence_over_all_cells(tmp_path: Path) -> None:
    """A fall by 8% with this spread has p = 0.02 for 5%: enough for one cell, not for one of twenty."""
    many = grid(tmp_path, f'rtt = {[f"{ms}ms" for ms in range(1, 21)]}, rate = "1gbit"'.replace("'", '"'))
    one = [run for run in many if rtt(run) == 1]

    def gbps(run: RunSpec) -> float:
        return around(0.736 if rtt(run) == 1 else 0.8, 0.006)(run)

    for number, (runs, found) in enumerate(((one, 1), (many, 0))):
        old = write(tmp_path / f"a{number}", runs, around(0.8, 0.006))
        new = write(tmp_path / f"b{number}", runs, gbps)
        content = compare(old, new, 0.05)
        assert content["cells"][0]["verdict"] == "slower"
        assert len(beyond_threshold(content)) == found


@pytest.mark.usefixtures("frozen_garbage")
def test_noise_alone_seldom_passes_the_threshold() -> None:
    """Where nothing changed, any of 20 cells is found in at most 5% of comparisons; the error is 0.9%."""
    rng, reps, found = np.random.default_rng(8), 600, 0
    for _ in range(reps):
        cells: list[dict[str, Any]] = [{} for _ in range(20)]
        p_values = [p_not_below(rng.normal(9, 0.3, 5), rng.normal(9, 0.3, 5), 1.0) for _ in cells]
        _mark_slower(cells, [*p_values])
        found += any(cell["beyond_threshold"] for cell in cells)
    assert found / reps <= 0.075


def test_cells_with_single_runs_are_not_tested(tmp_path: Path, command: Command) -> None:
    runs = grid(tmp_path, seeds=1)
    write(tmp_path / "a", runs, around(0.8))
    write(tmp_path / "b", runs, around(0.2))
    told = command("analyze", "--compare", "a", "b", "--threshold", "5%")
    assert told.returncode == 0
    why = "2 × one run has no spread; repeat it with other seeds"
    assert f"warning: 2 cells cannot be tested: {why}\n" in told.stderr
    assert "2 × one run has no spread" in told.stdout
    assert told.stdout.endswith("2 cells: 2 too few runs\n")


def test_parquet_is_compared_like_its_records(tmp_path: Path, command: Command) -> None:
    for name, level in (("a", 0.8), ("b", 0.7)):
        write(tmp_path / name, grid(tmp_path), around(level))
        assert command("analyze", name, "-o", f"p{name}", "--only", "profile").returncode == 0
    found = [
        json.loads(command("analyze", "--compare", f"{p}a", f"{p}b", "--json").stdout)["cells"]
        for p in ("", "p")
    ]
    assert found[0] == found[1] and len(found[0]) == 2
    assert not list((tmp_path / "a").glob("*.parquet")) and not (tmp_path / "a" / "analysis.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--compare", "a", "a"], 2, "--compare got a twice"),
        (["--compare", "a", "c"], 2, "a and c have no transport on the same path in common; the first of a "
         "is cubic × 1, 1GB at 11.8 ms, 1 Gb/s, queue 1 BDP, MTU 9000, transfers of 1GB; of c htcp"),
        (["--compare", "a", "none"], 5, "none: no such folder or record"),
        (["--compare", "a", "storage"], 2, "storage: has only measurements of storage"),
        (["--compare", "a", "empty"], 5, "empty: contains no readable record"),
        (["--compare", "a"], 2, "--compare needs two folders, before and after the change"),
        (["--compare", "a", "--threshold", "5%"], 2, "--compare needs two folders, before and after the "
         "change; '--threshold' is not one: write './--threshold' if it is"),
        (["--compare", "--json", "a", "b"], 2, "--compare needs two folders, before and after the change; "
         "'--json' is not one"),
        (["a", "-o", "--quick"], 2, "--out needs a folder; '--quick' is not one"),
        (["a", "--compare", "a", "b"], 2, "--compare takes two folders and no third; leave out a"),
        (["--compare", "a", "b", "--quick"], 2, "leave out --quick"),
        (["--compare", "a", "b", "-o", "x"], 2, "leave out --out"),
        (["--compare", "a", "b", "--threshold", "5"], 2, "'5' is not a share: write one from 0 to below"),
        (["--compare", "a", "b", "--threshold", "x"], 2, "'x' is not a share"),
        (["a", "--threshold", "5%"], 2, "--threshold needs --compare"),
        ([], 2, "give the folder of the records, or two with --compare"),
    ],
)  # fmt: skip
def test_wrong_usage(tmp_path: Path, command: Command, arguments: list[str], code: int, said: str) -> None:
    write(tmp_path / "a", grid(tmp_path), around(0.8))
    write(tmp_path / "b", grid(tmp_path), around(0.8))
    write(tmp_path / "c", grid(tmp_path, ccs="htcp"), around(0.8))
    (tmp_path / "empty").mkdir()
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "x.ndjson").write_text('{"kind":"storage"}\n')
    told = command("analyze", *arguments)
    assert told.returncode == code, told.stderr
    assert said in told.stderr and "Traceback" not in told.stderr
    assert told.stdout == ""


def test_storage_beside_runs_is_named(tmp_path: Path, command: Command) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, grid(tmp_path), around(0.8))
    (tmp_path / "b" / "disk.ndjson").write_text('{"kind":"storage"}\n')
    note = "1 measurement of storage in b left out: 'fullpipe analyze b' prints their table"
    assert f"warning: {note}\n" in command("analyze", "--compare", "a", "b").stderr
    told = command("report", "a", "b", "-o", "out.html")
    assert told.returncode == 0 and f"warning: {note}\n" in told.stderr
    assert "1 measurement of storage in b left out" in (tmp_path / "out.html").read_text()


def test_a_side_without_rate_before_cannot_be_a_share(tmp_path: Path, command: Command) -> None:
    runs = grid(tmp_path, 'host = "dtn2"', workload='duration = "2s"')
    old = write(tmp_path / "a", runs, lambda run: 0.0)
    (cell,) = compare(old, write(tmp_path / "b", runs, around(1)))["cells"]
    assert cell["cannot_say"] == "nothing arrived before the change"
    assert (cell["difference"], words.difference(cell)) == (None, "")
    assert cell["verdict"] == "faster"
    told = command("analyze", "--compare", "a", "b", "--threshold", "5%")
    assert "warning: 1 cell cannot be tested: nothing arrived before the change\n" in told.stderr
    for name, count, rate, verdict in (
        ("c", 4, 0.0, "no difference shown"), ("d", 1, 1.0, "too few runs"),
    ):  # fmt: skip
        new = write(tmp_path / name, runs[:count], lambda run, rate=rate: rate)  # type: ignore[misc]
        assert verdicts(compare(old, new)) == [verdict]
    new = write(tmp_path / "e", runs, lambda run: float(run.seed == 1))
    assert verdicts(compare(old, new)) == ["no difference shown"], "one run of four is no proof"


def test_thresholds_are_shares(tmp_path: Path) -> None:
    side = write(tmp_path / "a", grid(tmp_path), around(0.8))
    with pytest.raises(UsageError, match="a threshold of 5 is not from 0 to below 1") as caught:
        compare(side, side, 5)
    assert isinstance(caught.value, FullpipeError)


def page_of(tmp_path: Path, command: Command, *arguments: object) -> str:
    told = command("report", *arguments, "-o", "out.html")
    assert told.returncode == 0, told.stderr
    return (tmp_path / "out.html").read_text()


def test_the_report_of_two_folders_has_what_the_comparison_has(tmp_path: Path, command: Command) -> None:
    runs = grid(tmp_path, 'rtt = ["1ms", "2ms", "3ms", "4ms"], rate = "1gbit"')
    level = {1.0: 0.9, 2.0: 0.7, 3.0: 0.803, 4.0: 0.8}
    write(tmp_path / "old&new", runs, around(0.8))
    few = [run for run in runs if rtt(run) < 4 or run.seed == 1]
    write(tmp_path / "b", few, lambda run: around(level[rtt(run)])(run))
    torn = next((tmp_path / "b").glob("*-s2-*.ndjson"), next((tmp_path / "b").glob("*.ndjson")))
    (tmp_path / "b" / "torn.ndjson").write_text(torn.read_text()[:-9])
    html = page_of(tmp_path, command, "old&new", "b")
    assert "<h1>Before and after: old&amp;new and b</h1>" in html
    content = json.loads(command("analyze", "--compare", "old&new", "b", "--json").stdout)
    assert len(content["cells"]) == 4
    for cell in content["cells"]:
        row = f"<td>{cell['rtt_ms']:g}</td>"
        (found,) = [line for line in html.splitlines() if row in line]
        assert f"<td>{words.difference(cell)}</td><td>{cell['verdict']}</td>" in found
        assert f"{cell['name']} at {cell['rtt_ms']:g} ms" in html, "the figure names each cell"
    assert "4 cells: 1 faster, 1 slower, 1 no difference shown, 1 too few runs" in html
    assert "b: torn.ndjson" in html and "no result line" in html
    assert html.count("<svg") == 1 and 'aria-label="Throughput before and after: 1 Gb/s' in html
    assert "fullpipe report &#39;old&amp;new&#39; b --figure difference -o difference.svg" in html
    assert not re.search(r'(?:src|href)="(?!#)|url\((?!#)|<script|@import', html), "it needs no other file"
    assert page_of(tmp_path, command, "old&new", "b") == html, "the same records give the same bytes"


def test_the_report_of_two_folders_names_changes_and_lone_cells(tmp_path: Path, command: Command) -> None:
    both = 'rtt = "11.8ms", rate = ["1gbit", "2gbit"]'
    write(tmp_path / "x" / "runs", grid(tmp_path, both), around(0.8))
    slow = grid(tmp_path, f'{both}, kernel = "6.1"', ccs=["cubic", "bbr"])
    write(tmp_path / "y" / "runs", slow, around(0.7), held='"bottleneck":"\\w+" => "bottleneck":"sndbuf"')
    html = page_of(tmp_path, command, "x/runs", "y/runs")
    assert "<h1>Before and after: x/runs and y/runs</h1>" in html
    assert '<th scope="row">guest kernel</th><td>none</td><td>6.1</td>' in html
    assert "<h2>Only in y/runs</h2>" in html and "bbr × 1, 1GB at 11.8 ms (1 Gb/s" in html
    assert "sndbuf in 4 of 4 runs" in html and "A window limited the cells marked !" in html
    assert html.count("<svg") == 2
    figure = ["--figure", "difference", "--section"]
    assert command("report", "x/runs", "y/runs", *figure, 2, "-o", "d.svg").returncode == 0
    svg = (tmp_path / "d.svg").read_text()
    assert svg.startswith("<svg") and svg in html
    wrong = command("report", "x/runs", "y/runs", *figure, 3)
    assert (wrong.returncode, "the comparison has 1 to 2" in wrong.stderr) == (2, True)


def test_a_figure_of_many_cells_shows_those_that_changed_most(tmp_path: Path, command: Command) -> None:
    many = grid(
        tmp_path, f'rtt = {[f"{ms}ms" for ms in range(1, 71)]}, rate = "1gbit"'.replace("'", '"'), seeds=2
    )
    write(tmp_path / "a", many, lambda run: 0.8)
    write(tmp_path / "b", many, lambda run: 0.8 + 0.001 * rtt(run))
    html = page_of(tmp_path, command, "a", "b")
    assert "The 10 cells that changed least are only in the table." in html
    assert "cubic × 1, 1GB at 11 ms" in html and "cubic × 1, 1GB at 10 ms" not in html
    assert "<td>10</td>" in html


def test_intervals_without_an_end_and_cells_without_a_difference_are_drawn(tmp_path: Path) -> None:
    path = 'rtt = ["1ms", "2ms"], rate = "1gbit"'
    runs = grid(tmp_path, path, seeds=2, workload='duration = "2s"')
    old = write(tmp_path / "a", runs, lambda run: 0.8 * run.seed - 0.7 if rtt(run) == 1 else 0.0)
    new = write(tmp_path / "b", runs, around(0.5, 0.001))
    cells = compare(old, new)["cells"]
    assert (cells[0]["high"], cells[1]["difference"]) == (None, None)
    svg = difference_figure(cells, "x")
    assert "at 1 ms" in svg and "at 2 ms" in svg and "nan" not in svg.lower()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "b", "c", "d"], "a report is about one folder, or compares two; leave out c d"),
        (["a", "a"], "the report got a twice; give the folders before and after the change"),
        (["a", "b", "--figure", "box"], "two folders have only the figure 'difference', not 'box'"),
        (["a", "--figure", "difference"], "the figure 'difference' compares two folders; give a second one"),
        (["a", "-o", "--section", "2"], "--out needs a file; '--section' is not one"),
        (["a", "c"], "a and c have no transport on the same path in common"),
    ],
)
def test_wrong_usage_of_the_report(tmp_path: Path, command: Command, arguments: list[str], said: str) -> None:
    write(tmp_path / "a", grid(tmp_path), around(0.8))
    write(tmp_path / "b", grid(tmp_path), around(0.8))
    write(tmp_path / "c", grid(tmp_path, ccs="htcp"), around(0.8))
    told = command("report", *arguments)
    assert told.returncode == 2
    assert said in told.stderr and told.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))
