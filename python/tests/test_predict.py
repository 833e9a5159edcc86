"""Limits, broadcasting and input of the predictor, and its distance from the testbed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fullpipe.buffers import granted_window
from fullpipe.campaign.surrogate import forecast
from fullpipe.errors import UsageError
from fullpipe.flatten import RUNS_SCHEMA
from fullpipe.model.check import cells, error_table, main, markdown
from fullpipe.model.closed import droptail_rate, payload_rate
from fullpipe.model.predict import (
    CONGESTION_CONTROLS,
    NetworkPath,
    Transport,
    Workload,
    predict,
    predict_runs,
    predict_spec,
)
from fullpipe.model.ramp import seeded_starts
from fullpipe.run import LabPath, RunSpec

RTTS = np.array([0.4, 11.8, 22.6, 45.6, 91.6, 183.0, 366.0]) / 1e3
LOSS_BASED = [cc for cc in CONGESTION_CONTROLS if cc != "bbr"]
GRID = json.loads((Path(__file__).parent / "data" / "predict_grid.json").read_text())


def grid_runs() -> pl.DataFrame:
    """The measured grid as runs of seeds 1 to 3, each with the mean over them."""
    rows: list[dict[str, Any]] = []
    for grid in GRID["grids"]:
        modality = grid["modality"]
        for streams, means in zip(grid["streams"], grid["mean_mbps"], strict=True):
            for i, mean in enumerate(means):
                common = {
                    "rtt_ms": GRID["rtt_ms"][i],
                    "rate_bps": GRID["rate_bps"][modality],
                    "queue_bytes": GRID["queue_bytes"][modality][i],
                    "mtu": 9000,
                    "loss": 0.0,
                    "modality": modality,
                    "cc": grid["cc"],
                    "streams": streams,
                    "buffer_bytes": grid["buffer_bytes"],
                    "size_bytes": GRID["size_bytes"],
                    "direction": "send",
                    "goodput_bps": mean * 1e6,
                }
                rows += [common | {"seed": seed} for seed in (1, 2, 3)]
    return pl.DataFrame(rows, schema=RUNS_SCHEMA)


@pytest.fixture(scope="module")
def measured() -> pl.DataFrame:
    return grid_runs()


def test_the_grid_is_within_the_bars(measured: pl.DataFrame) -> None:
    table = error_table(measured)
    assert table["cc"].to_list() == [*CONGESTION_CONTROLS, "all"]
    assert table["cells"].to_list() == [231, 231, 231, 63, 231, 987]
    assert (table["median"] <= 0.05).all() and (table["p90"] <= 0.15).all()
    whole = table.filter(pl.col("cc") == "all").row(0, named=True)
    assert whole["median"] < 0.01 and whole["p90"] < 0.08


def test_the_grid_is_within_the_bars_without_seeds(measured: pl.DataFrame) -> None:
    table = error_table(measured, seeded=False)
    assert (table["median"] <= 0.05).all() and (table["p90"] <= 0.15).all()


def test_window_limited_and_slow_start_alone_are_all_but_exact(measured: pl.DataFrame) -> None:
    found = cells(measured.filter(pl.col("cc") != "bbr")).with_columns(pl.col("error").abs())
    limited = found.filter((pl.col("buffer_bytes") == 250_000) & (pl.col("rtt_ms") > 1))
    assert limited["error"].max() < 0.007  # type: ignore[operator]
    ramp = found.filter((pl.col("rtt_ms") == 366) & (pl.col("cc").is_in(["htcp", "scalable"])))
    assert ramp["error"].max() < 0.02  # type: ignore[operator]


def test_markdown_and_the_command(
    measured: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs.parquet"
    measured.write_parquet(file)
    assert main([str(file)]) == 0
    printed = capsys.readouterr().out
    assert printed.strip() == markdown(error_table(measured))
    assert "| 1GB | cubic | 231 |" in printed
    assert main([]) == 2


@pytest.mark.parametrize("cc", LOSS_BASED)
def test_window_limited_is_b_over_tau(cc: str) -> None:
    rtt = np.linspace(0.02, 0.4, 50)
    got = predict({"rtt_s": rtt, "rate_bps": 1e10}, {"cc": cc, "buffer_bytes": 250e3}, {"duration_s": 1e5})
    np.testing.assert_allclose(got, 8 * 262140 / rtt, rtol=1e-3)
    assert (np.diff(got) < 0).all()


@pytest.mark.parametrize("cc", CONGESTION_CONTROLS)
@pytest.mark.parametrize("streams", [1, 7])
def test_long_over_a_full_queue_is_the_capacity(cc: str, streams: int) -> None:
    path = NetworkPath(rtt_s=RTTS, rate_bps=1e9, mtu=9000)
    got = predict(path, Transport(cc, streams, 1e9), Workload(duration_s=1000))
    capacity = payload_rate(1e9)
    assert (got <= capacity * (1 + 1e-12)).all()
    assert (got >= (0.93 if cc == "bbr" else 0.985) * capacity).all()


@pytest.mark.parametrize("cc", ["reno", "scalable", "htcp"])
def test_shallow_queues_agree_with_closed_forms(cc: str) -> None:
    rtt, rate = 0.0916, 1e10
    queue = np.array([0.05, 0.1, 0.2, 0.3, 0.5, 1.0]) * rate * rtt / 8
    got = predict({"rtt_s": rtt, "rate_bps": rate, "queue_bytes": queue}, {"cc": cc, "buffer_bytes": 1e9},
                  {"duration_s": 1e5})  # fmt: skip
    expected = droptail_rate(cc, rtt, payload_rate(rate), queue * 8948 / 9014)
    np.testing.assert_allclose(got, expected, rtol=0.02)


def test_random_loss_thins_windows() -> None:
    path = {"rtt_s": 0.1, "rate_bps": 1e10, "loss": [0, 1e-5, 1e-4, 1e-3, 1e-2]}
    for cc in LOSS_BASED:
        got = predict(path, {"cc": cc, "buffer_bytes": 1e9}, {"duration_s": 1000})
        assert (np.diff(got) < 0).all(), cc
    reno = predict(path, {"cc": "reno", "buffer_bytes": 1e9}, {"duration_s": 1000})
    np.testing.assert_allclose(reno[3:], 8948 * 8 * 1.31 / (0.1 * np.sqrt([1e-3, 1e-2])), rtol=0.05)
    bbr = predict(path, {"cc": "bbr", "buffer_bytes": 1e9}, {"duration_s": 1000})
    assert (bbr > 0.9e10).all()


@pytest.mark.parametrize("cc", CONGESTION_CONTROLS)
def test_one_stream_falls_with_the_rtt_and_rises_with_size(cc: str) -> None:
    size = np.array([[1e8], [1e9], [1e10], [1e11]])
    got = predict({"rtt_s": RTTS, "rate_bps": 1e10}, {"cc": cc, "buffer_bytes": 1e9}, {"size_bytes": size})
    assert got.shape == (4, 7)
    assert (np.diff(got, axis=1) < 0.001 * got[:, 1:]).all()
    # BBR pauses every ten seconds.
    assert (np.diff(got, axis=0) > -(0.025 if cc == "bbr" else 0.001) * got[1:]).all()


def test_the_mean_is_one_of_time() -> None:
    # Cases whose second overflow falls on the last step: a mean from there to there is none.
    path = NetworkPath(
        [0.1776685139451079, 0.050644410261238886, 0.03979271907775005], 1e10, framing_bytes=24
    )
    how = Transport(["cubic", "cubic", "htcp"], [5, 4, 9], 1e9)
    sizes = [57.313381293558116e9, 45.04855958279647e9, 6.9400743957850395e9]
    assert predict(path, how, Workload(sizes)) == pytest.approx([9.59e9, 9.80e9, 7.34e9], rel=0.01)


def test_pacing_is_a_limit_over_all_streams() -> None:
    path = NetworkPath(0.0456, 1e9)
    for cc in LOSS_BASED:
        got = predict(path, Transport(cc, 2, 1e8, pacing_bps=4e8), Workload(size_bytes=1e9))
        assert 0.98 * 3.97e8 < got < 3.98e8


def test_shapes_broadcast_and_one_is_like_many() -> None:
    cc = np.array(CONGESTION_CONTROLS)[:, None, None]
    streams = np.array([1, 4, 10])[:, None]
    got = predict(NetworkPath(RTTS, 1e10), Transport(cc, streams, 1e9), Workload(1e9))
    assert got.shape == (5, 3, 7) and np.isfinite(got).all()
    one = predict(NetworkPath(0.0456, 1e10), Transport("cubic", 4, 1e9), Workload(1e9))
    assert one.shape == () and one == got[1, 1, 3]
    assert predict(NetworkPath(np.empty(0), 1e10), Transport(), Workload(1e9)).shape == (0,)


def test_sizes_and_durations_mix() -> None:
    path, how = NetworkPath(0.0916, 1e10), Transport("scalable", 1, 1e9)
    size = predict(path, how, Workload(size_bytes=1e10))
    duration = predict(path, how, Workload(duration_s=8 * 1e10 / float(size)))
    mixed = predict(path, how, Workload([1e10, np.nan], [np.nan, 8 * 1e10 / float(size)]))
    np.testing.assert_array_equal(mixed, [size, duration])
    np.testing.assert_allclose(size, duration, rtol=0.01)


def test_windows_that_buffers_grant() -> None:
    given = [250e3, 250e6, 1e9, 300e3, np.nan]
    np.testing.assert_allclose(
        granted_window(given), [262140, 268431360, 1073725440, 426000, 2.98e6], rtol=1e-3
    )


def test_starts_are_the_testbeds() -> None:
    # As `first_s` of a record tells them, seeds 1 and 3.
    assert np.round(seeded_starts(3, 1), 3).tolist() == [0.138, 0.47, 0.857]
    assert np.round(seeded_starts(10, 3)[:4], 3).tolist() == [0.209, 0.224, 0.265, 0.29]


def test_descriptions_of_runs(measured: pl.DataFrame) -> None:
    lab = LabPath(rtt=45_600_000, rate=10_000_000_000, queue=57_000_000, modality="10gige")
    spec = RunSpec(lab, "cubic", 10, 1_000_000_000, None, 1_000_000_000, None, seed=2, sample=100_000_000)
    of_frame = predict_runs(
        measured.filter(
            (pl.col("cc") == "cubic") & (pl.col("streams") == 10) & (pl.col("seed") == 2)
            & (pl.col("buffer_bytes") == 10**9) & (pl.col("rtt_ms") == 45.6)
            & (pl.col("modality") == "10gige")
        )
    )  # fmt: skip
    assert predict_spec(spec) == pytest.approx(of_frame[0])
    seeded = predict(lab, Transport("cubic", 10, 1e9), Workload(1e9), seed=[1, 2, 3])
    assert seeded[1] == pytest.approx(of_frame[0]) and len(set(seeded)) == 3
    other = RunSpec("host:1", "cubic", 1, None, None, 10**9, None, seed=1, sample=10**8)
    with pytest.raises(UsageError, match="real host"):
        predict_spec(other)
    unknown = measured.head(2).with_columns(cc=pl.Series(["bic", "cubic"]))
    assert np.isnan(predict_runs(unknown)).tolist() == [True, False]
    many = measured.head(2).with_columns(streams=pl.Series([4, 200], dtype=pl.UInt16))
    assert np.isnan(predict_runs(many)).tolist() == [False, True]
    assert cells(many)["streams"].to_list() == [4]
    at_once = measured.head(2).with_columns(rtt_ms=pl.Series([0.0, None]))
    assert np.isnan(predict_runs(at_once)).all()
    assert cells(pl.concat([at_once, measured.slice(2, 1)]))["runs"].sum() == 1


def test_loss_counts_where_data_cross_it(measured: pl.DataFrame) -> None:
    place = (pl.col("rtt_ms") == 91.6) & (pl.col("cc") == "cubic") & (pl.col("buffer_bytes") == 10**9)
    one = measured.filter(place).head(1)

    def predicted(**columns: Any) -> float:
        return float(predict_runs(one.with_columns(**{key: pl.lit(v) for key, v in columns.items()}))[0])

    lossless, lossy = predicted(), predicted(loss=1e-3)
    assert lossy < lossless / 2
    assert predicted(direction="receive", loss=1e-3) == lossless
    assert predicted(direction="receive", loss=0.0, loss_back=1e-3) == lossy
    path = LabPath(rtt=91_600_000, rate=10**10, queue=114_500_000, loss=1e-3)
    spec = RunSpec(path, "cubic", 1, 10**9, None, 10**9, None, seed=1, sample=10**8)
    assert predict_spec(replace(spec, reverse=True)) > 2 * predict_spec(spec)
    send, receive = forecast(spec), forecast(replace(spec, reverse=True))
    back = forecast(replace(spec, reverse=True, path=replace(path, loss=0.0, loss_back=1e-3)))
    assert receive is None and send is not None and back == send
    other = ("cross", "udp:1gbit"), ("host_a", "stock"), ("disk_a", "1GB/s"), ("jitter_ms", 1.0), ("mss", 536)
    for name, value in other:
        assert np.isnan(predicted(**{name: value})), name
    assert predicted(jitter_ms=0.0) == lossless


@pytest.mark.parametrize(
    ("path", "transport", "workload", "message"),
    [
        ({"rtt_s": 0}, {}, {}, "rtt_s must be a finite number above zero; 0 is not"),
        ({"rtt_s": np.nan}, {}, {}, "rtt_s"),
        ({"rtt_s": [0.1, -1]}, {}, {}, "-1 is not"),
        ({"rtt_s": "x"}, {}, {}, "rtt_s must be a number"),
        ({"rate_bps": np.inf}, {}, {}, "rate_bps"),
        ({"queue_bytes": 0}, {}, {}, "queue_bytes"),
        ({"mtu": 60}, {}, {}, "mtu"),
        ({"loss": 1}, {}, {}, "loss must be below 1"),
        ({"loss": -0.1}, {}, {}, "zero or more"),
        ({"speed": 1}, {}, {}, "path has no 'speed'"),
        ({}, {"cc": "bic"}, {}, "'bic' has no model"),
        ({}, {"streams": 0}, {}, "streams"),
        ({}, {"streams": 1.5}, {}, "whole numbers"),
        ({}, {"streams": 1000}, {}, "1 to 128"),
        ({}, {"buffer_bytes": -1}, {}, "buffer_bytes"),
        ({}, {"pacing_bps": 0}, {}, "pacing_bps"),
        ({}, {}, {"size_bytes": None}, "either size_bytes or duration_s"),
        ({}, {}, {"duration_s": 1}, "not both"),
        ({}, {"streams": 2}, {"size_bytes": 1}, "less than a byte"),
        ({"rtt_s": [0.1, 0.2]}, {"streams": [1, 2, 3]}, {}, "do not broadcast"),
    ],
)
def test_wrong_input_is_refused(
    path: dict[str, Any], transport: dict[str, Any], workload: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        predict({"rtt_s": 0.1, "rate_bps": 1e9} | path, transport, {"size_bytes": 1e9} | workload)


def test_arguments_must_be_descriptions() -> None:
    with pytest.raises(UsageError, match="path must be a NetworkPath"):
        predict(0.1, {}, {})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="rate_bps"):
        predict({"rtt_s": 0.1}, {}, {"size_bytes": 1e9})
    with pytest.raises(UsageError, match="seeds"):
        predict({"rtt_s": 0.1, "rate_bps": 1e9}, {}, {"size_bytes": 1e9}, seed=[0.5])
