"""The committed figures show what is kept, and planted profiles are drawn as what they are."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest
from conftest import ROOT
from lab.papers import drawing, profile_figures, size_figure, trace_figures
from lab.papers.cells import RTTS, Cells
from lab.papers.claims import HOST_NOISE_MS, read_claims
from lab.papers.draw import figures
from lab.papers.drawing import digest, digest_in, save
from lab.papers.earlier import read_earlier
from lab.papers.keep import Kept
from lab.papers.profiles import Key, Profile, all_profiles, earlier_profiles, kept_profiles
from matplotlib.figure import Figure
from planted import Planter

FOLDER = ROOT / "docs" / "explanation" / "papers"
PAGE = (ROOT / "docs" / "explanation" / "papers.md").read_text()
KEPT = Kept.read()
FIGURES = figures(KEPT)
EARLIER = read_earlier()


@pytest.fixture(autouse=True)
def without_a_screen() -> Iterator[None]:
    plt.switch_backend("svg")
    yield
    plt.close("all")


@pytest.mark.parametrize("name", FIGURES)
def test_a_committed_figure_shows_what_is_kept(name: str) -> None:
    """After `pack` and `fit`, `python -m lab.papers draw` has to be run."""
    assert digest_in(FOLDER / f"{name}.svg") == digest(FIGURES[name]())


@pytest.mark.parametrize("name", FIGURES)
def test_the_page_shows_a_figure(name: str) -> None:
    assert f"](papers/{name}.svg)" in PAGE


def test_a_digest_is_of_the_data(tmp_path: Path) -> None:
    def plotted(last: float, title: str = "one", width: float = 3.0) -> Figure:
        figure, (axis,) = drawing.side_by_side(1, width)
        axis.plot([1, 2], [3, last])
        axis.set_title(title)
        return figure

    assert digest(plotted(4.0)) == digest(plotted(4.0, width=5.0))
    assert len({digest(plotted(4.0)), digest(plotted(4.1)), digest(plotted(4.0, "two"))}) == 3
    figure = plotted(4.0)
    save(figure, tmp_path / "one.svg")
    assert digest_in(tmp_path / "one.svg") == digest(figure)
    (tmp_path / "none.svg").write_text("<svg/>")
    assert digest_in(tmp_path / "none.svg") is None


@pytest.mark.parametrize("draw", [profile_figures.boxes, profile_figures.transition_rtts])
def test_another_rate_is_another_figure(draw: Callable[..., Figure]) -> None:
    """PLANTED: the profiles of CUBIC are turned around."""
    profiles = all_profiles(KEPT.cells, EARLIER)
    others = {
        key: Profile(p.rtt_ms, p.seed, p.gbps[::-1], p.is_kept) if key.cc == "cubic" else p
        for key, p in profiles.items()
    }
    panels = () if draw is profile_figures.transition_rtts else ([("", Key("cubic", 10, "1GB"))],)
    assert digest(draw(*panels, profiles)) != digest(draw(*panels, others))


def _planted(runs_at: dict[float, int]) -> Cells:
    """PLANTED: a profile of ten streams of H-TCP, with so many runs at each RTT."""
    where = read_claims().defaults | {
        "host_noise_ms": HOST_NOISE_MS, "size_gb": 1, "cc": "htcp", "streams": 10, "buffer": "1GB",
    }  # fmt: skip
    planter = Planter(30)
    for rtt, n in runs_at.items():
        planter.plant(where | {"rtt_ms": rtt}, np.linspace(4, 5, n))
    return planter.cells()


def test_kept_runs_count_if_every_rtt_has_ten() -> None:
    key = Key("htcp", 10, "1GB")
    ten = dict.fromkeys(RTTS, 10)
    whole = kept_profiles(_planted(ten | {11.8: 30}))
    assert list(whole) == [key]
    assert (whole[key].n, len(whole[key].at(11.8)), whole[key].by_seed.shape) == (10, 30, (10, 7))
    assert whole[key].means == pytest.approx(np.full(7, 4.5))
    for too_few in (ten | {183.0: 9}, {rtt: 10 for rtt in RTTS if rtt != 183.0}):
        assert kept_profiles(_planted(too_few)) == {}
        profile = all_profiles(_planted(too_few), EARLIER)[key]
        assert (profile.n, profile.is_kept) == (3, False)
    assert all_profiles(_planted(ten), EARLIER)[key].is_kept
    # Hosts that never pause, and larger transfers, are other conditions.
    quiet = _planted(ten).runs.with_columns(pl.lit(0.0).alias("host_noise_ms"))
    assert kept_profiles(Cells(quiet)) == {}


def test_few_runs_are_hollow_and_named() -> None:
    key = Key("htcp", 10, "1GB")
    earlier = earlier_profiles(EARLIER)
    mixed = earlier | kept_profiles(_planted(dict.fromkeys(RTTS, 10)))
    axis = profile_figures.buffers("htcp", mixed).axes[2]
    hollow = {line.get_label(): line.get_markerfacecolor() == "white" for line in axis.lines}
    assert hollow == {str(n): n != 10 for n in range(1, 11)}
    for profiles, words in ((mixed, ["10 runs", "3 runs"]), (earlier, ["3 runs"])):
        figure = profile_figures.buffers("htcp", profiles)
        said = " ".join(text.get_text() for text in figure.legends[0].get_texts())
        assert re.findall(r"\d+ runs", said) == words
        boxed = profile_figures.boxes([("", key), ("", Key("htcp", 1, "1GB"))], profiles)
        assert re.findall(r"\d+ runs", boxed.get_supxlabel()) == words


def test_larger_transfers_stand_beside_the_kept_profile() -> None:
    """PLANTED runs of 20 GB, as `papers-sizes` has them."""
    profiles = all_profiles(KEPT.cells, EARLIER)
    row = {"campaign": size_figure.CAMPAIGN, "size_gb": 20}
    rows = [
        row | {"streams": n, "rtt_ms": rtt, "goodput_gbps": 9.0 + off}
        for n in (1, 10)
        for rtt in (11.8, 366.0)
        for off in (-0.5, 0.5)
    ]
    for axis, n in zip(size_figure.draw(profiles, Cells(pl.DataFrame(rows))).axes, (1, 10), strict=True):
        one, twenty = axis.lines
        assert str(one.get_label()).startswith("1 GB, ") and twenty.get_label() == "20 GB, 2 runs"
        assert np.asarray(one.get_ydata()) == pytest.approx(profiles[Key("cubic", n, "1GB")].means)
        assert np.asarray(twenty.get_xydata()).tolist() == [[11.8, 9.0], [366.0, 9.0]]


def _traced() -> Kept:
    """PLANTED: two runs of 100 s of each cell; two streams have the rates 1, 2, 1, 2, ... Gb/s together."""
    runs, traces = [], []
    for rtt in (trace_figures.SHORT_MS, trace_figures.TRACE_MS, trace_figures.LONG_MS):
        for streams in (1, 10):
            for seed in (2, 1):
                id_ = f"{rtt}-{streams}-{seed}"
                runs.append(
                    {
                        "campaign": trace_figures.CAMPAIGN, "id": id_, "seed": seed, "cc": "cubic",
                        "rtt_ms": rtt, "streams": streams, "goodput_gbps": 1.5, "exponent": -float(seed),
                    }
                )  # fmt: skip
                traces += [
                    {"id": id_, "stream": i, "second": t, "mbps": 500.0 + 500 * (t % 2), "naks": None}
                    for i in range(2)
                    for t in range(1, 101)
                ]
    return Kept(pl.DataFrame(runs), pl.DataFrame(traces))


def test_maps_show_what_follows_what() -> None:
    figure = trace_figures.aggregate_maps(_traced())
    for axis in figure.axes:
        one, ten, diagonal = axis.lines
        assert np.asarray(diagonal.get_xydata()).tolist() == [[0, 0], [10, 10]]
        for line, label in ((one, "n = 1"), (ten, "n = 10")):
            points = np.asarray(line.get_xydata())
            assert line.get_label() == label and len(points) == 2 * 99
            assert {tuple(point) for point in points} == {(1.0, 2.0), (2.0, 1.0)}


def test_traces_are_of_the_first_seed_and_exponents_of_all() -> None:
    kept = _traced()
    for axis in trace_figures.traces_figure(kept).axes:
        *streams, whole = axis.lines
        assert [set(np.asarray(line.get_ydata())) for line in streams] == 2 * [{0.5, 1.0}]
        assert set(np.asarray(whole.get_ydata())) == {1.0, 2.0}
    (axis,) = trace_figures.rate_against_exponent(kept).axes
    assert sorted(np.asarray(axis.lines[0].get_xydata()).tolist()) == [[-2, 1.5], [-1, 1.5]]
    each, means, *_ = trace_figures.exponents_figure(kept).axes[0].lines
    assert sorted(np.asarray(each.get_ydata())) == [-2, -2, -1, -1]
    assert np.asarray(means.get_ydata()).tolist() == [-1.5, -1.5]
