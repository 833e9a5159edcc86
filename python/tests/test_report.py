import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import synthetic
from conftest import ROOT, Command, campaign_of
from matplotlib.image import imread

from fullpipe import read_runs
from fullpipe.analysis import Sustained, stored
from fullpipe.campaign import LabPath, RunSpec, expand, read_campaign
from fullpipe.campaign.state import prepare
from fullpipe.dynamics import Traces
from fullpipe.profile import point, profile
from fullpipe.report import commands, figure, report
from fullpipe.report.figures import _merged, error_bars, pacings, profile_figure, share_of, trace_figure
from fullpipe.report.panels import dynamics_figure, shown
from fullpipe.report.style import colours
from fullpipe.run import LINUX_CONGESTION_CONTROLS, UDT, DiskAccess


def chromium(*arguments: object) -> str:
    """Drives the browser as a person sees it; it comes with the distribution (package chromium)."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser, "chromium is missing; install the package chromium"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,3600"]
    done = subprocess.run(
        [browser, *flags, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of the demo campaign, of synthetic records."""
    folder = tmp_path_factory.mktemp("demo") / "runs"
    file = ROOT / "campaigns" / "demo.toml"
    campaign = read_campaign(file)
    runs = expand(campaign)
    for run in runs:
        synthetic.write(folder, run, samples=8)
    prepare(folder, runs, Path("campaigns/demo.toml"), campaign.title)
    assert report(folder, folder.parent / "report.html") == 168
    return folder.parent / "report.html"


LABELS = {
    "profile": "Mean throughput against RTT",
    "box": "Box plots of throughput at each RTT",
    "transition": "Where profiles turn",
    "phases": "Ramp-up and sustainment against RTT",
    "traces": "Goodput over time",
    "dynamics": "Poincaré maps after ramp-up",
}


def test_the_figures_show_in_a_browser(page: Path) -> None:
    dom = chromium("--dump-dom", page.as_uri())
    shown = [name for name, label in LABELS.items() if re.search(f'<svg[^>]* aria-label="{label}', dom)]
    assert set(shown) == {"profile", "box", "transition", "traces"}
    assert dom.count("<figure>") == 4
    for name in shown:
        assert f"--figure {name} -o {name}.svg</pre>" in dom
    assert dom.count("fullpipe campaign run campaigns/demo.toml --out ") == 1
    assert "10 Gb/s, 0.4 to 366 ms" in dom
    assert "scalable × 10, 1GB" in dom
    assert "fullpipe measure lab:rtt=366ms," in dom
    assert "cannot be distinguished from" in dom or "better than all others" in dom


def test_what_has_no_data_is_left_out_with_a_word_why(page: Path) -> None:
    html = page.read_text()
    (words,) = re.findall("<h3>Not shown</h3>(.*?)</section>", html, re.DOTALL)
    assert "Ramp-up and sustainment: " in words and "throughput still rises at the end" in words
    assert "Poincaré maps: " in words
    assert "Dynamics after ramp-up" not in html


def made_steady(file: Path) -> None:
    """Gives a record's streams a short ramp-up, and then rates that vary a little."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    random = Random(file.name)
    read: dict[tuple[str, int], int] = {}
    for line in lines:
        if line["kind"] == "sample":
            stream = line["end"], line["stream"]
            level = min(line["t"] / 0.4, 1) * 1e6
            read[stream] = read.get(stream, 0) + int(level * random.uniform(0.9, 1.1))
            line["bytes"] = read[stream]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two capacities that ramp up and then vary a little, sampled often."""
    folder = tmp_path_factory.mktemp("steady") / "r"
    text = """
    [[grid]]
    seeds = 2
    sample = "20ms"
    path = { rtt = ["11.8ms", "45.6ms", "91.6ms"], rate = ["1gbit", "10gbit"] }
    transport = { cc = "cubic", buffer = "1GB" }
    workload = { duration = "4s" }
    """
    for run in expand(campaign_of(folder.parent, text)):
        made_steady(synthetic.write(folder, run, samples=200))
    return folder


def test_dynamics_and_phases_are_drawn(steady: Path, command: Command, tmp_path: Path) -> None:
    assert report(steady, tmp_path / "out.html") == 12
    html = (tmp_path / "out.html").read_text()
    for label in LABELS.values():
        assert html.count(f'aria-label="{label}') == 2, label
    assert "--figure dynamics --section 2 -o dynamics-2.svg" in html
    for name, label in LABELS.items():
        done = command("report", steady, "--figure", name, "--section", "2")
        assert done.returncode == 0, done.stderr
        svg = (tmp_path / f"{name}.svg").read_text()
        assert svg.startswith("<svg") and f'aria-label="{label}' in svg
    wrong = command("report", steady, "--figure", "box", "--section", "3")
    assert wrong.returncode == 2
    assert "there is no section 3" in wrong.stderr


def test_pacing_is_drawn_apart(tmp_path: Path) -> None:
    text = """
    [[grid]]
    seeds = 2
    sample = "20ms"
    path = { rtt = ["11.8ms", "45.6ms", "91.6ms"], rate = "1gbit" }
    transport = { cc = "cubic", buffer = "1GB", pacing = ["none", "500mbit", "1mbit"] }
    workload = { duration = "4s" }
    """
    for run in expand(campaign_of(tmp_path, text)):
        made_steady(synthetic.write(tmp_path / "r", run, samples=200))
    report(tmp_path / "r", tmp_path / "out.html")
    figures = re.findall("<figure>(.*?)</figure>", (tmp_path / "out.html").read_text(), re.DOTALL)
    every = ["unpaced", "paced 500mbit", "paced 1mbit"]
    titles = {
        "profile": [f"Buffer 1GB, {words}" for words in every],
        "transition": [f"cubic × 1, {words}" for words in every],
        "box": [f"Buffer 1GB, 1 stream, {words}" for words in every],
        "phases": [
            f"{what}, {words}"
            for words in every
            for what in ("Ramp-up, s", "Ramp-up, % of the run", "Sustained after it, Gb/s")
        ],
        "traces": [f"RTT {rtt} ms, {words}" for words in every for rtt in (11.8, 45.6, 91.6)],
        # At 91.6 ms the runs are too short. The order is that of the tables.
        "dynamics": [
            f"cubic × 1, {words}, {rtt} ms"
            for rtt in (11.8, 45.6)
            for words in ("unpaced", "paced 1mbit", "paced 500mbit")
        ],
    }
    for name, label in LABELS.items():
        (svg,) = (text for text in figures if f'aria-label="{label}' in text)
        assert re.findall("<text[^>]*>([^<]*, (?:un)?paced[^<]*)</text>", svg) == titles[name]


def test_autotuned_buffers_are_shown_only_where_there_are_no_others() -> None:
    def entry(cc: str, buffer: str, streams: int) -> dict[str, Any]:
        return {"transport": {"cc": cc, "buffer": buffer, "streams": streams, "pacing": None}}

    every = [entry("cubic", text, n) for text in ("auto", "64MB", "1GB", "sobas") for n in (1, 8)]
    udt, sized = entry("udt", "auto", 1), entry("htcp", "sobas", 4)
    expected = [entry("cubic", "1GB", 1), entry("cubic", "1GB", 8), sized, udt]
    assert shown({"transports": [*every, entry("htcp", "auto", 4), sized, udt]}) == expected


def test_traces_are_those_of_the_largest_buffer_of_each(tmp_path: Path) -> None:
    text = """
    [[grid]]
    path = { rtt = "11.8ms", rate = "1gbit" }
    transport = { cc = "cubic", buffer = ["64MB", "1GB"], streams = 1 }
    workload = { duration = "4s" }
    [[grid]]
    path = { rtt = "11.8ms", rate = "1gbit" }
    transport = { cc = "htcp", buffer = ["auto", "64MB"], streams = [1, 8] }
    workload = { duration = "4s" }
    """
    for run in expand(campaign_of(tmp_path, text)):
        synthetic.write(tmp_path / "r", run, samples=8)
    figure(tmp_path / "r", "traces", tmp_path / "traces.svg")
    names = re.findall("<text[^>]*>([^<]* × [^<]*)</text>", (tmp_path / "traces.svg").read_text())
    assert names == ["cubic × 1, 1GB", "htcp × 8, 64MB"]


def test_a_figure_that_leaves_out_runs_shows_every_rtt_and_says_so(tmp_path: Path) -> None:
    ccs = [cc for cc in LINUX_CONGESTION_CONTROLS if cc not in ("cdg", "dctcp", "lp", "nv")]
    text = f"""
    [[grid]]
    path = {{ rtt = ["11.8ms", "45.6ms", "91.6ms"], rate = "1gbit" }}
    transport = {{ cc = {json.dumps(ccs)}, buffer = "1GB" }}
    workload = {{ duration = "4s" }}
    """
    for run in expand(campaign_of(tmp_path, text)):
        synthetic.write(tmp_path / "r", run, samples=8)
    report(tmp_path / "r", tmp_path / "out.html")
    html = (tmp_path / "out.html").read_text()
    assert "18 of 39 runs are shown." in html
    (svg,) = (text for text in re.findall("<figure>(.*?)</figure>", html, re.DOTALL) if "over time" in text)
    assert re.findall("RTT [0-9.]+ ms", svg) == ["RTT 11.8 ms", "RTT 45.6 ms", "RTT 91.6 ms"]
    assert html.count("fullpipe measure lab:rtt=91.6ms") == 6


def test_a_share_of_each_is_taken() -> None:
    assert share_of("aaaabbbb", str, 4) == list("aabb")
    assert share_of("abbbbb", str, 4) == list("abbb")
    assert share_of("abab", str, 9) == list("abab")


def test_every_congestion_control_has_a_colour_of_its_own() -> None:
    every = [*LINUX_CONGESTION_CONTROLS, UDT]
    assert len({colours(every)[cc] for cc in every}) == len(every)
    # A figure may name one for each of its panels; another has only some of them.
    new = ["new1", "new1", "new2", "cubic", "new2", "new3"]
    assert len({colours(new)[cc] for cc in new}) == 4
    assert colours(["udt"])["udt"] == colours(every)["udt"]


def test_pacing_that_tells_nothing_apart_takes_no_panels() -> None:
    def transport(cc: str, pacing: str | None, streams: int = 1) -> dict[str, Any]:
        return {"cc": cc, "streams": streams, "buffer": "1GB", "pacing": pacing}

    alike = [transport("cubic", "1gbit"), transport("htcp", "1gbit")]
    assert pacings(alike) == [("", ("1gbit",))]
    one_of_each = [transport("cubic", None), transport("cubic", "1gbit", 4), transport("udt", "2gbit")]
    assert pacings(one_of_each) == [("", (None, "2gbit", "1gbit"))]
    assert pacings([*alike, transport("htcp", None)]) == [("unpaced", (None,)), ("paced 1gbit", ("1gbit",))]


def test_no_file_of_another_kind_is_replaced(steady: Path, command: Command, tmp_path: Path) -> None:
    record = shutil.copy(next(steady.glob("*.ndjson")), tmp_path)
    before = Path(record).read_bytes()
    (tmp_path / "figure.svg").touch()
    for arguments, code in (
        (["report", steady, "-o", record], 2),
        (["report", steady, "--figure", "box", "-o", record], 2),
        (["analyze", steady, "--openmetrics", record, "-o", "out"], 2),
        (["report", steady, "-o", ""], 2),
        (["report", "", "-o", "out.html"], 2),
        (["analyze", steady, "-o", ""], 2),
        (["report", steady, "--section", "2"], 2),
        # What it may have written, and what is empty.
        (["report", steady, "--figure", "box", "-o", "figure.svg"], 0),
        (["report", steady, "--figure", "box", "-o", "figure.svg"], 0),
    ):
        told = command(*arguments)
        assert told.returncode == code, (arguments, told.stderr)
        assert code == 0 or told.stderr.startswith("error: ") and told.stderr.count("\n") == 1, told.stderr
    assert Path(record).read_bytes() == before


def test_what_is_printed_nowhere_is_an_error(steady: Path, tmp_path: Path) -> None:
    words = f"{sys.executable} -m fullpipe.cli.analyze {steady} --only profile -o {tmp_path / 'o'} >&-"
    told = subprocess.run(words, shell=True, capture_output=True, text=True, timeout=120)
    assert told.returncode == 5 and told.stderr.startswith("error: cannot write the output"), told


def test_a_stored_analysis_gives_the_same_page(steady: Path, command: Command, tmp_path: Path) -> None:
    report(steady, tmp_path / "out.html")
    first = (tmp_path / "out.html").read_bytes()
    assert command("analyze", steady).returncode == 0
    assert stored(steady) is not None
    report(steady, tmp_path / "out.html")
    assert (tmp_path / "out.html").read_bytes() == first


def test_a_picture_of_it_is_not_blank(page: Path) -> None:
    shot = page.with_suffix(".png")
    chromium(f"--screenshot={shot}", page.as_uri())
    pixels = imread(shot)[..., :3]
    assert pixels.shape[1] == 1280
    # The margins are white; ink and the three colours are there.
    assert (pixels[:, :20] == 1).all()
    for colour in ((0.114, 0.137, 0.153), (0, 0.447, 0.698), (0.835, 0.369, 0), (0, 0.62, 0.451)):
        assert (abs(pixels - colour).max(axis=2) < 0.02).sum() > 500, colour


def test_it_needs_nothing_else(page: Path) -> None:
    html = page.read_text()
    assert "<script" not in html
    assert not re.search(r'(?:src|href)="(?!#)', html)
    assert not re.search(r"url\((?!#)", html)
    assert "@import" not in html


def test_the_same_records_give_the_same_bytes(page: Path) -> None:
    first = page.read_bytes()
    report(page.parent / "runs", page)
    assert page.read_bytes() == first


def test_failures_and_what_was_skipped_are_told(
    tmp_path: Path, small: list[RunSpec], command: Command
) -> None:
    for run in small[:4]:
        synthetic.write(tmp_path / "r", run, samples=2)
    torn = next((tmp_path / "r").glob("*.ndjson"))
    torn.write_text(torn.read_text()[:-9])
    failed = '{"kind":"failed","name":"x","reason":"the guest <panicked>"}\n'
    (tmp_path / "r" / "failed.ndjson").write_text(failed)
    found = command("report", "r", "-o", "out.html")
    assert found.returncode == 0, found.stderr
    assert found.stderr.startswith("warning: skipped ")
    html = (tmp_path / "out.html").read_text()
    assert "the guest &lt;panicked&gt;" in html
    assert "1 failed, 1 skipped" in html
    assert "no result line" in html
    assert command("report", "none").returncode == 5
    assert command("report", "r", "-o", "out.html/sub.html").returncode == 5


def test_the_page_says_when_the_time_of_a_run_ends(tmp_path: Path, small: list[RunSpec]) -> None:
    """A copy between disks ends when everything is on the disk, a run from memory to memory before."""
    path = small[0].path
    assert isinstance(path, LabPath)
    disks = replace(path, disk_a="1GB/s", disk_b="1GB/s")
    to_disk = "until the sender knew that everything was on the disk"
    between = [replace(run, path=disks, disks=DiskAccess(8 << 20, "auto")) for run in small[:2]]
    texts = []
    for name, runs in (("memory", small[:2]), ("both", [*small[:2], *between]), ("disks", between)):
        for run in runs:
            synthetic.write(tmp_path / name, run, samples=2)
        report(tmp_path / name, tmp_path / "out.html")
        texts.append((tmp_path / "out.html").read_text())
    assert ["application read, from the first byte" in text for text in texts] == [True, True, False]
    assert [to_disk in text for text in texts] == [False, True, True]


def runs_at(folder: Path, runs: list[RunSpec], gbps: dict[str, tuple[float, ...]]) -> None:
    """Two runs of each congestion control, with those rates."""
    for run in runs:
        if run.cc in gbps and run.seed <= len(gbps[run.cc]):
            synthetic.write(folder, run, goodput=gbps[run.cc][run.seed - 1] * 1e9, samples=2)


@pytest.mark.parametrize(
    ("gbps", "marked"),
    [
        ({"cubic": (5.0, 5.01), "htcp": (4.0, 4.01)}, {"best": "5.00"}),
        ({"cubic": (5.0, 5.01), "htcp": (4.0, 5.8)}, {"tied": "= 5.00"}),
        ({"cubic": (5.0,), "htcp": (4.0,)}, {"single": "5.00"}),
    ],
)
def test_a_highest_mean_claims_no_more_than_it_knows(
    tmp_path: Path, small: list[RunSpec], gbps: dict[str, tuple[float, ...]], marked: dict[str, str]
) -> None:
    one = [run for run in small if (run.streams, run.buffer_text) == (1, "1GB")]
    runs_at(tmp_path / "r", one, gbps)
    report(tmp_path / "r", tmp_path / "out.html")
    html = (tmp_path / "out.html").read_text()
    found = re.findall(r'<td class="(best|tied|single)">(= )?([\d.]+)', html)
    ((mark, text),) = marked.items()
    assert {kind for kind, _, _ in found} == {mark}
    assert (mark, *re.fullmatch("(= )?(.*)", text).groups(default="")) in found  # type: ignore[union-attr]
    assert len(found) == (4 if mark == "tied" else 2)


def test_an_interval_that_leaves_the_figure_is_marked() -> None:
    def entry(half: float) -> dict[str, Any]:
        bps = {"mean_bps": 5e9, "low_bps": 5e9 - half, "high_bps": 5e9 + half, "max_bps": 5.1e9}
        return {
            "path": {"rate_bps": 10**10},
            "transport": {"cc": "cubic", "streams": 1, "buffer": "1GB", "pacing": None},
            "points": [{"rtt_ms": rtt, "n": 2, **bps} for rtt in (11.8, 366)],
        }

    def edged(half: float) -> int:
        return len(re.findall("<use[^>]*stroke: #ffffff", profile_figure([entry(half)], "x")))

    assert edged(1e9) == 0
    assert edged(5.3e9) == 2  # the bottom, at both RTTs
    assert edged(9e9) == 4


def test_an_interval_that_ends_at_the_capacity_keeps_its_other_half(
    tmp_path: Path, small: list[RunSpec]
) -> None:
    one = [run for run in small if (run.streams, run.buffer_text) == (1, "1GB")]
    runs_at(tmp_path / "r", one, {"cubic": (9.91, 9.926)})
    report(tmp_path / "r", tmp_path / "out.html")
    # Student's interval of these two runs is 9.918 ± 0.102 Gb/s, and the path carries 9.927.
    assert (tmp_path / "out.html").read_text().count("9.92<small>±0.10 n=2<") == 2
    (entry,) = profile(read_runs(tmp_path / "r").runs)["entries"]
    below, above = error_bars(entry["points"])
    assert below == pytest.approx([0.10165] * 2, rel=1e-3)
    assert above == pytest.approx([10 * 8948 / 9014 - 9.918] * 2)
    assert error_bars([{"mean_bps": 1e9, "low_bps": None, "high_bps": None}]).tolist() == [[0.0], [0.0]]


def test_real_hosts_and_single_runs(tmp_path: Path) -> None:
    for seed, host in ((1, "dtn2:7412"), (1, "dtn3:7412")):
        synthetic.write(tmp_path / "r", RunSpec(host, "yeah", 2, None, None, None, 10**10, seed, 10**8))
    assert report(tmp_path / "r", tmp_path / "out.html") == 2
    assert "to dtn3:7412" in (tmp_path / "out.html").read_text()


def test_what_limited_runs_is_told_at_rtts_of_many_digits(tmp_path: Path) -> None:
    run = RunSpec("dtn2:7412", "cubic", 2, None, None, None, 10**10, 1, 10**8)
    file = synthetic.write(tmp_path / "r", run)
    file.write_text(file.read_text().replace('"rtt_s":0.0916004', '"rtt_s":1.2345678'))
    report(tmp_path / "r", tmp_path / "out.html")
    html = (tmp_path / "out.html").read_text()
    assert "cwnd<small>3 resent</small>" in html.partition("What limited the runs")[2]


def test_an_axis_is_called_logarithmic_only_if_it_is() -> None:
    def entry(rtt_ms: float) -> dict[str, Any]:
        path = {"rate_bps": 10**10, "host": None}
        transport = {"cc": "cubic", "streams": 1, "buffer": "1GB", "pacing": None}
        return {"path": path, "transport": transport, "points": [point(rtt_ms, [1e9]), point(91.6, [1e9])]}

    for rtt, label in ((11.8, "RTT, ms (logarithmic)"), (0.0, "RTT, ms")):
        assert f">{label}<" in profile_figure([entry(rtt)], "x")


def test_a_foreign_description_of_a_campaign_is_left_alone(tmp_path: Path, small: list[RunSpec]) -> None:
    synthetic.write(tmp_path / "r", small[0], samples=2)
    for text in ('{"file": 5, "out": 7}', '{"file": "x.toml"}', '{"title": "y"}', "{}", "[]"):
        (tmp_path / "r" / "campaign.json").write_text(text)
        report(tmp_path / "r", tmp_path / "out.html")
        assert f"fullpipe report {tmp_path / 'r'} -o" in (tmp_path / "out.html").read_text()


def test_long_runs_make_no_large_figures() -> None:
    rates = np.random.default_rng(1).uniform(1e9, 9e9, 50_000)
    t = np.linspace(0.01, 500, 50_000)
    transport = {"cc": "cubic", "streams": 1, "buffer": "1GB", "pacing": None}
    trace = Traces("x", t, rates, rates[None, :], 0.0, 0.01, 0.0118)
    assert len(trace_figure([(11.8, transport, trace)], "x")) < 500_000
    run = {"rtt_ms": 11.8, "interval_s": 0.01, "aggregate": {"lyapunov": None}}
    rest = Sustained(0.01, rates, rates[None, :])
    assert len(dynamics_figure([({"transport": transport}, run, rest)], "x")) < 500_000
    means, edges = _merged(np.array([1.0, 3.0, 8.0]), np.array([0.0, 1.0, 2.0, 2.5]))
    assert (means.tolist(), edges.tolist()) == ([1.0, 3.0, 8.0], [0.0, 1.0, 2.0, 2.5])
    means, edges = _merged(np.arange(4001.0), np.arange(4002.0))
    assert means[:2].tolist() == [1.0, 4.0] and means[-1] == 3999.5 and edges[-1] == 4001


def words_of(html: str) -> str:
    """The page without its figures and tags."""
    return re.sub(r"<[^>]+>|&#39;", " ", re.sub("<(svg|style).*?</\\1>", "", html, flags=re.DOTALL))


def runs_over(folder: Path, transport: str) -> Path:
    text = f"""
    [[grid]]
    path = {{ rtt = ["11.8ms", "91.6ms"], rate = "1gbit" }}
    transport = {{ {transport} }}
    workload = {{ duration = "4s" }}
    """
    for run in expand(campaign_of(folder, text)):
        synthetic.write(folder / "r", run, samples=30)
    return folder / "r"


def test_the_words_fit_udt(tmp_path: Path) -> None:
    folder = runs_over(tmp_path, 'cc = "udt", buffer = ["auto", "64MB"]')
    report(folder, tmp_path / "out.html")
    html = (tmp_path / "out.html").read_text()
    words = words_of(html)
    assert "TCP" not in words and "segment" not in words
    assert "Throughput of UDT against round-trip time" in words
    assert "Congestion controls UDT s own" in " ".join(words.split())
    assert "A transport is UDT, with its own congestion control or at a given rate" in words
    assert "UDT delivers bytes in order" in words
    assert "Bottleneck, and packets sent again (mean)" in words
    assert "UDT s congestion control: raising its rate" in words
    # Above the panel of runs that gave no buffer.
    assert "Buffer chosen by fullpipe" in html and "Buffer chosen by the kernel" not in html


def test_the_words_fit_tcp_beside_udt(tmp_path: Path, command: Command) -> None:
    folder = runs_over(tmp_path, 'cc = ["udt", "cubic"]')
    report(folder, tmp_path / "out.html")
    html = (tmp_path / "out.html").read_text()
    words = words_of(html)
    assert "Throughput of TCP and UDT against" in words and "TCP and UDT deliver bytes in order" in words
    assert "Congestion controls cubic, UDT s own" in " ".join(words.split())
    assert "segments (over UDT packets) sent again" in words
    assert "Buffer without a given size" in html
    assert command("report", "r", folder, "-o", "both.html").returncode == 2
    (tmp_path / "r2").mkdir()
    for file in folder.glob("udt-*.ndjson"):
        shutil.copy(file, tmp_path / "r2")
    assert command("report", "r", "r2", "-o", "both.html").returncode == 0
    assert "one path: UDT, with its own" in words_of((tmp_path / "both.html").read_text())


def test_the_words_fit_tcp(page: Path) -> None:
    words = words_of(page.read_text())
    assert "UDT" not in words and "UDP" not in words
    assert "Throughput of TCP against" in words and "Bottleneck, and segments sent again" in words


def test_runs_over_plain_udp_are_left_out_with_a_word_why(tmp_path: Path, command: Command) -> None:
    runs_over(tmp_path, 'cc = ["cubic", "udp"], pacing = "100mbit"')
    told = command("report", "r", "-o", "out.html")
    assert told.returncode == 0 and "wrote out.html: 2 runs" in told.stderr
    words = " ".join(words_of((tmp_path / "out.html").read_text()).split())
    assert "2 over plain UDP what arrives at a given rate" in words and "Runs 2 " in words
    told = command("analyze", "r", "--quick")
    assert "4 runs, 2 of them over plain UDP and not in the profile" in told.stderr
    for file in (tmp_path / "r").glob("cubic-*.ndjson"):
        file.unlink()
    for arguments in (("-o", "none.html"), ("--figure", "profile")):
        told = command("report", "r", *arguments)
        assert told.returncode == 5, told.stderr
        assert told.stderr.startswith("error: r: has only runs over plain UDP")
    assert not (tmp_path / "none.html").exists()


@pytest.mark.parametrize(
    ("path", "copy", "direction", "command"),
    [
        ("dtn:7412", {"over": "ssh", "encrypted": True}, "send", "FILE dtn:FOLDER/"),
        ("dtn:7412", {"over": "ssh", "encrypted": True}, "receive", "dtn:FOLDER/FILE ."),
        (
            "[::1]:7",
            {"over": "server", "encrypted": False},
            "send",
            "--no-encrypt FILE 'fullpipe://[::1]:7/FOLDER/'",
        ),
    ],
)
def test_a_copy_is_repeated_by_a_copy(path: str, copy: dict[str, Any], direction: str, command: str) -> None:
    transport = {"cc": "cubic", "streams": 2, "buffer": "auto", "pacing": None}
    header = {
        "path": path,
        "transport": transport,
        "workload": {"size": "1MB"},
        "copy": copy,
        "direction": direction,
    }
    assert commands.measure(header) == f"fullpipe cp --cc cubic --streams 2 --buffer auto {command}"


def test_a_run_between_disks_is_repeated_by_a_measurement() -> None:
    header = {
        "path": {"rtt": "2ms", "rate": "10gbit", "disk_a": "1GB/s", "disk_b": "2GB/s"},
        "transport": {"cc": "cubic", "streams": 2, "buffer": "auto", "pacing": None},
        "workload": {"size": "1GB"},
        "copy": {"over": "lab", "encrypted": False},
        "disks": {"block": "8.388608MB", "direct": "on"},
        "direction": "send",
        "seed": 1,
        "sample": "100ms",
    }
    path = "lab:rtt=2ms,rate=10gbit,disk_a=1GB/s,disk_b=2GB/s"
    transport = "--cc cubic --streams 2 --buffer auto --size 1GB --block 8.388608MB --direct on"
    assert commands.measure(header) == f"fullpipe measure {path} {transport} --seed 1 --sample 100ms"
    # From files of this host to the disk of end b.
    header["path"] = {"rtt": "2ms", "rate": "10gbit", "disk_b": "2GB/s"}
    assert commands.measure(header).startswith(
        "fullpipe cp --cc cubic --streams 2 --buffer auto --no-encrypt FILE "
    )
