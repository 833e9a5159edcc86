import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fullpipe.errors import UsageError
from fullpipe.model import (
    bdp_packets,
    cubic_epoch_s,
    cubic_utilisation,
    decompose,
    droptail_rate,
    fit_convex,
    fit_exponential_ramp,
    htcp_beta,
    htcp_utilisation,
    payload_rate,
    random_loss_rate,
    reno_utilisation,
    scalable_utilisation,
    window_limited,
)

Floats = NDArray[np.float64]

RTT_MS = np.array([0.4, 11.8, 22.6, 45.6, 91.6, 183.0, 366.0])
RATE = float(payload_rate(1e10))

# Measured in the testbed, goodput in Mbit/s every 100 ms from the first byte on; the ends are partial.
CUBIC_91 = [9.5, 14.3, 85.9, 114.5, 229.1, 458.1, 916.3, 1832.5, 3665.1, 5927.9, 8164.2, 9927.2, 9925.9,
            9928.0, 9927.3, 9927.3, 9927.2]  # fmt: skip
HTCP_10_91 = [120.5, 121.7, 300.7, 601.3, 1145.3, 2290.7, 4620.0, 9647.4, 9927.3, 7597.2, 3.6, 8003.1,
              19851.6, 14050.8, 6044.0]  # fmt: skip
SCALABLE_366 = [208.1, 0, 0, 0, 14.3, 0, 0, 0, 28.6, 0, 0, 57.3, 0, 0, 0, 114.5, 0, 0, 0, 229.1, 0, 0, 458.1,
                0, 0, 0, 916.3, 0, 0, 0, 1832.6, 0, 0, 937.0, 2728.1, 0, 0, 4312.2, 3018.0, 0, 0, 7687.4,
                6973.0, 0, 1135.3, 9927.3, 9927.2, 8331.0, 4510.5, 9927.3, 9927.7]  # fmt: skip
# The same at 1 Hz, of a run of 100 s.
CUBIC_366 = [5.0, 40.1, 314.4, 1105.8, 6794.1, 9901.0, 9900.9, 9901.0, 9901.0, 9900.9, 4485.5, 13025.6,
             9726.4, 9894.8] + 76 * [9901.0] + [4345.8, 13165.4, 9731.4, 9895.2] + 6 * [9901.0]  # fmt: skip
BBR_10_366 = [34.7, 193.0, 1307.3, 7173.5, 5804.6, 12429.5, 5969.8, 15345.1, 3518.1, 9901.0, 9901.0, 5273.9,
              10300.3, 7189.6, 14407.5, 5945.2, 10571.9, 15383.6, 3372.6, 9823.8, 9901.0, 9900.9, 9901.0,
              7441.3, 5816.4, 10035.1, 16196.3, 3198.4, 13408.8, 6822.4, 9215.3, 9901.0, 9900.9]  # fmt: skip
WINDOW_22 = [90.9, 94.1, 92.0, 92.3, 92.3, 92.6, 92.9, 92.6, 92.3, 92.3, 93.0, 93.1, 92.8, 92.2, 92.8]


def tenths(mbit: list[float], start_s: float, end_s: float) -> tuple[Floats, Floats]:
    """Interval ends and rates of a trace that was sampled at each multiple of 100 ms."""
    first = math.ceil(start_s * 10) / 10
    t = np.append(first + 0.1 * np.arange(len(mbit) - 1), end_s)
    return t, 1e6 * np.array(mbit)


def ramp(rtt_s: float, level: float, count: int, step: float = 0.1) -> Floats:
    """Doubling every RTT up to a level that it keeps."""
    t = step * np.arange(1, count + 1)
    return np.asarray(np.minimum(level, 5e6 * 2 ** (t / rtt_s)))


def steps(count: int, step: float = 0.1) -> Floats:
    return np.asarray(step * np.arange(1, count + 1))


def test_slow_start_without_overshoot() -> None:
    found = decompose(steps(300), ramp(0.366, 9.9e9, 300))
    # 5 Mbit/s doubles to 9.9 Gbit/s in 10.95 RTTs, 4.0 s; 90% of it are reached 0.15 RTTs before.
    assert found.ramp_s == pytest.approx(3.9, abs=0.11)
    assert found.sustain_mean == pytest.approx(9.9e9, rel=1e-3)
    assert found.ramp_mean is not None and found.ramp_mean < 0.3 * 9.9e9
    assert found.f_r == pytest.approx(found.ramp_s / 30)
    assert found.sustained and found.note == ""


def test_overshoot_and_recovery_are_sustainment() -> None:
    y = ramp(0.183, 9.9e9, 1000)
    recovery = np.arange(25, 125)
    y[recovery] = 9.9e9 * (1 - 0.4 * ((124 - recovery) / 100) ** 3)
    found = decompose(steps(1000), y)
    assert found.ramp_s == pytest.approx(1.95, abs=0.11)
    assert found.sustain_mean == pytest.approx(float(y[20:].mean()), rel=5e-3)


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_ramp_under_noise(seed: int) -> None:
    random = np.random.default_rng(seed)
    y = 1e9 * np.minimum(9, 0.9 * np.arange(1, 101)) * random.normal(1, 0.05, 100)
    found = decompose(steps(100, 1.0), y)
    assert found.ramp_s == pytest.approx(8, abs=1.5)
    assert found.model_mean == pytest.approx(float(y.mean()), rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_trace_that_is_flat_from_the_start(seed: int) -> None:
    y = 5e9 * np.random.default_rng(seed).normal(1, 0.02, 100)
    found = decompose(steps(100, 1.0), y)
    assert (found.ramp_s, found.f_r, found.ramp_mean) == (0, 0, None)
    assert found.sustain_mean == found.mean == found.model_mean
    assert decompose(steps(100), np.full(100, 1e9)).ramp_s == 0


def test_a_sawtooth_and_a_decline_are_no_ramp() -> None:
    t = steps(200)
    assert decompose(t, 1e9 * (1 - 0.1 * (np.arange(200) % 5))).ramp_s == 0
    assert decompose(t, 1e9 * np.linspace(2, 1, 200)).ramp_s == 0


@pytest.mark.parametrize(
    "y",
    [
        5e6 * 2 ** (steps(100) / 1.0),
        1e7 * steps(100),
        1e7 * np.sqrt(steps(400)),
        1e7 * steps(100) * np.random.default_rng(0).normal(1, 0.03, 100),
    ],
    ids=["exponential", "linear", "square root", "noisy"],
)
def test_a_ramp_that_goes_on_to_the_end(y: Floats) -> None:
    found = decompose(steps(len(y)), y)
    assert found.sustain_mean is None and found.model_mean is None and not found.sustained
    assert found.ramp_s == pytest.approx(found.observed_s) and found.f_r == 1
    assert found.ramp_mean == found.mean == pytest.approx(float(y.mean()))
    assert found.note and "cannot say" in repr(found)


def test_a_short_sustainment_after_a_steep_ramp() -> None:
    # Of the two ways to join intervals into bins of an RTT, one has 8.84 and 9.9 together, at the level.
    y = 1e9 * np.array([0.29, 0.43, 0.62, 0.92, 1.32, 1.95, 2.82, 4.18, 5.99, 8.84] + 7 * [9.9])
    for shift in (0, 1):
        found = decompose(steps(17 - shift), y[shift:], rtt_s=0.183)
        assert found.sustained and found.ramp_s == pytest.approx(0.9, abs=0.11)


def test_too_little_to_say() -> None:
    found = decompose([1.0, 2.0], [1e9, 2e9])
    assert found.sustain_mean is None and "2 intervals" in found.note
    assert found.mean == pytest.approx(1.5e9)
    # Ten intervals are few bins of an RTT.
    assert decompose(steps(10), np.full(10, 1e9), rtt_s=0.366).sustain_mean is None


def test_bursts_within_an_rtt() -> None:
    # Half of the window's worth every second interval of half an RTT.
    y = ramp(0.2, 9.9e9, 100)
    bursts = np.where(np.arange(100) % 2 == 0, 0, np.minimum(2 * y, 9.9e9))
    found = decompose(steps(100), np.where(y < 9.9e9, bursts, y), rtt_s=0.2)
    assert found.ramp_s == pytest.approx(2.2, abs=0.21)


def test_unequal_intervals_weigh_by_their_length() -> None:
    t = np.array([0.05, 1.05, 2.05, 3.05, 4.05, 5.05, 5.06])
    y = np.array([1e6, 1e8, 1e9, 1e9, 1e9, 1e9, 9e9])
    found = decompose(t, y, start_s=0.0)
    assert found.mean == pytest.approx((0.05 * 1e6 + 1e8 + 4e9 + 0.01 * 9e9) / 5.06)
    assert found.ramp_s == pytest.approx(1.05)
    assert found.model_mean == pytest.approx(found.mean)


@pytest.mark.parametrize(
    ("mbit", "start", "end", "rtt", "goodput", "ramp_s", "sustained"),
    [
        (CUBIC_91, 0.12428, 1.79015, 0.0916, 4.80230e9, 1.08, 9.927e9),
        # Loss after slow start: bytes wait behind the holes, and are read at once.
        (HTCP_10_91, 0.05840, 1.42960, 0.0916, 5.83431e9, 0.64, 9.714e9),
        (SCALABLE_366, 0.49656, 5.46979, 0.366, 1.60862e9, None, None),
    ],
    ids=["cubic", "htcp", "scalable"],
)
def test_transfers_of_1_gb(
    mbit: list[float],
    start: float,
    end: float,
    rtt: float,
    goodput: float,
    ramp_s: float | None,
    sustained: float | None,
) -> None:
    t, y = tenths(mbit, start, end)
    found = decompose(t, y, rtt_s=rtt, start_s=start)
    assert found.mean == pytest.approx(goodput, rel=0.01)
    if ramp_s is None:
        # The window is still doubling when the transfer is over.
        assert found.sustain_mean is None
        return
    assert found.ramp_s == pytest.approx(ramp_s, abs=0.01)
    assert found.sustain_mean == pytest.approx(sustained, rel=1e-3)
    assert found.model_mean == pytest.approx(goodput, rel=0.01)


def test_runs_of_100_s() -> None:
    cubic = decompose(steps(100, 1.0), 1e6 * np.array(CUBIC_366), rtt_s=0.366)
    assert cubic.ramp_s == 5 and cubic.sustain_mean == pytest.approx(9.85e9, rel=5e-3)
    # The run's goodput is 9.439 Gbit/s.
    assert cubic.model_mean == pytest.approx(9.439e9, rel=0.01)
    bbr = decompose(steps(33, 1.0), 1e6 * np.array(BBR_10_366), rtt_s=0.366)
    assert bbr.ramp_s == 5 and bbr.sustain_mean == pytest.approx(9.3e9, rel=0.02)
    window = decompose(steps(15, 1.0), 1e6 * np.array(WINDOW_22), rtt_s=0.0226)
    assert window.ramp_s == 0 and window.model_mean == pytest.approx(92.6e6, rel=5e-3)


@pytest.mark.parametrize(
    ("t", "y", "words"),
    [
        ([1, 2, 3], [1, 2], "shapes"),
        ([], [], "shapes"),
        ([[1, 2]], [[1, 2]], "shapes"),
        ([1, 2, 3], [1, math.nan, 2], "NaN"),
        ([1, 2, math.inf], [1, 1, 2], "NaN"),
        ([1, 3, 2], [1, 1, 2], "increase"),
        ([1, 1, 2], [1, 1, 2], "increase"),
        ([1, 2, 3], [1, -1, 2], "negative"),
        ([1, 2, 3], [0, 0, 0], "zero throughout"),
    ],
)
def test_what_is_not_a_trace(t: Any, y: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        decompose(t, y)


def test_other_arguments_of_decompose() -> None:
    with pytest.raises(UsageError, match="RTT"):
        decompose([1, 2], [1, 1], rtt_s=math.nan)
    with pytest.raises(UsageError, match="start"):
        decompose([1, 2], [1, 1], start_s=1.5)


def mended(rtt_ms: Floats, duration_s: float | None, packets: float, first: float = 10) -> Floats:
    """Doubling windows, counted round by round."""
    rates = []
    for rtt in rtt_ms / 1e3:
        bdp = float(bdp_packets(rtt, RATE))
        rounds = max(math.log2(bdp / first), 0)
        ramp_packets = max(bdp - first, 0)
        if duration_s is not None:
            rates.append((ramp_packets + RATE / 71584 * (duration_s - rounds * rtt)) / duration_s)
        elif packets <= ramp_packets:
            rates.append(packets / (rtt * math.log2(1 + packets / first)))
        else:
            rates.append(packets / (rounds * rtt + (packets - ramp_packets) / (RATE / 71584)))
    return np.array(rates) * 71584


@pytest.mark.parametrize("duration", [10.0, 100.0, None])
def test_the_mended_form_is_recovered(duration: float | None) -> None:
    y = mended(RTT_MS, duration, 1e9 / 8948)
    size = None if duration else 1e9
    found = fit_exponential_ramp(RTT_MS, y, duration_s=duration, size_bytes=size)
    assert found.params["rate_bps"] == pytest.approx(RATE, rel=1e-6)
    assert found.params["first_window_packets"] == pytest.approx(10, rel=1e-3)
    assert found.predicted == pytest.approx(y, rel=1e-6)
    assert found.predict([366.0])[0] == pytest.approx(y[-1], rel=1e-6)
    others = [
        fit_convex(RTT_MS, y),
        fit_exponential_ramp(RTT_MS, y, duration_s=duration, size_bytes=size, form="paper"),
    ]
    assert all(found.aic < other.aic and found.bic < other.bic for other in others)


def test_the_mended_form_against_measured_goodput() -> None:
    # 1 GB with single-stream CUBIC, 1 GB of buffer, in the testbed: nothing was fitted but two numbers.
    measured = np.array([9.923, 9.071, 8.227, 6.486, 4.802, 2.956, 1.609]) * 1e9
    found = fit_exponential_ramp(RTT_MS, measured, size_bytes=1e9)
    assert found.params["rate_bps"] == pytest.approx(RATE, rel=0.02)
    assert 5 < found.params["first_window_packets"] < 20
    assert found.predicted == pytest.approx(measured, rel=0.05)


def test_shapes_of_the_two_forms() -> None:
    tau = np.linspace(1, 366, 50)
    points = mended(RTT_MS, 10.0, 0)
    concave = fit_exponential_ramp(RTT_MS, points, duration_s=10.0).predict(tau)
    assert (np.diff(concave, 2) < 0).all()
    linear = fit_exponential_ramp(RTT_MS, points, duration_s=10.0, form="paper").predict(tau)
    assert np.abs(np.diff(linear, 2)).max() < 1e-6 * linear.max()


def test_the_form_as_printed() -> None:
    rate = 1e5
    y = (2 * rate / 100 + rate * (1 - RTT_MS / 1e3 * math.log2(rate) / 100)) * 8 * 8948
    found = fit_exponential_ramp(RTT_MS, y, duration_s=100.0, form="paper")
    assert found.params["rate_bps"] == pytest.approx(rate * 8 * 8948, rel=1e-9)
    # For a fixed size, T_O is the size over the throughput.
    size = 1e11
    y = np.full(7, 1e9)
    for _ in range(100):
        duration = size * 8 / y
        y = (2 * rate / duration + rate * (1 - RTT_MS / 1e3 * math.log2(rate) / duration)) * 8 * 8948
    found = fit_exponential_ramp(RTT_MS, y, size_bytes=size, form="paper")
    assert found.params["rate_bps"] == pytest.approx(rate * 8 * 8948, rel=1e-6)


def test_the_convex_form_is_recovered() -> None:
    for a, b, c in [(1e8, 2.5e9, 1.0), (0.0, 4e10, 1.5), (5e8, 1e10, 2.5)]:
        y = a + b / RTT_MS**c
        found = fit_convex(RTT_MS, y)
        assert found.params["c"] == pytest.approx(c, rel=1e-3)
        assert found.params["b_bps"] == pytest.approx(b, rel=1e-3)
        assert found.params["a_bps"] == pytest.approx(a, rel=1e-2, abs=1e-3 * y.max())
        assert found.bic < fit_exponential_ramp(RTT_MS, y, duration_s=10.0).bic


def test_criteria_by_hand() -> None:
    y = 1e9 / RTT_MS * (1 + 0.1 * np.array([1, -1, 1, -1, 1, -1, 1]))
    found = fit_convex(RTT_MS, y)
    assert found.sse == pytest.approx(float(np.sum((found.predicted - y) ** 2)))
    likelihood = 7 * math.log(found.sse / 7)
    assert found.aic == pytest.approx(likelihood + 2 * 4)
    assert found.bic == pytest.approx(likelihood + 4 * math.log(7))
    assert "AIC" in repr(found) and "c 1" in repr(found)


def test_what_cannot_be_fitted() -> None:
    y = np.full(7, 1e9)
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: fit_convex(RTT_MS[:4], y[:4]), "too few"),
        (lambda: fit_convex(np.repeat(RTT_MS[:4], 3), np.repeat(y[:4], 3)), "too few"),
        (lambda: fit_convex(RTT_MS, y[:6]), "one length"),
        (lambda: fit_convex(RTT_MS - 0.4, y), "positive"),
        (lambda: fit_convex(RTT_MS, y * math.nan), "NaN"),
        (lambda: fit_convex(RTT_MS, y * 0), "zero"),
        (lambda: fit_exponential_ramp(RTT_MS, y), "either"),
        (lambda: fit_exponential_ramp(RTT_MS, y, duration_s=10, size_bytes=1e9), "either"),
        (lambda: fit_exponential_ramp(RTT_MS, y, duration_s=0), "positive"),
        (lambda: fit_exponential_ramp(RTT_MS, y, duration_s=10, form="linear"), "unknown"),
        (lambda: fit_exponential_ramp(RTT_MS[:3], y[:3], duration_s=10), "too few"),
    ]
    for call, words in cases:
        with pytest.raises(UsageError, match=words):
            call()


def test_payload_rate_and_window_limit() -> None:
    assert payload_rate(1e10) == pytest.approx(1e10 * 8948 / 9014)
    assert payload_rate([1e9, 1e10], 1500) == pytest.approx(np.array([1e9, 1e10]) * 1448 / 1514)
    assert bdp_packets(0.1, RATE) == pytest.approx(RATE * 0.1 / 8 / 8948)
    limited = window_limited(RTT_MS / 1e3, RATE, 262_140)
    assert limited[0] == pytest.approx(5.2428e9) and limited.shape == (7,)
    # 250 KB buffers in the testbed, whose window is 262,140 bytes: 11.458 Mbit/s at 183 ms, 22.89 at 91.6.
    assert limited[5] == pytest.approx(11.458e6, rel=1e-3)
    assert limited[4] == pytest.approx(22.89e6, rel=1e-3)
    assert window_limited(1e-6, RATE, 262_140) == pytest.approx(RATE)


def test_when_a_queue_fills_the_path() -> None:
    assert cubic_utilisation(0) == pytest.approx(0.925)
    assert cubic_utilisation(3 / 7) == pytest.approx(1) and cubic_utilisation(0.42) < 1
    assert reno_utilisation(0) == pytest.approx(0.75)
    assert reno_utilisation(1) == pytest.approx(1) and reno_utilisation(0.99) < 1
    assert scalable_utilisation(0) == pytest.approx(0.125 / math.log(8 / 7))
    assert scalable_utilisation(1 / 7) == pytest.approx(1) and scalable_utilisation(0.14) < 1
    q = np.linspace(0, 5, 200)
    for share in (cubic_utilisation, reno_utilisation, scalable_utilisation):
        values = share(q)
        assert (np.diff(values) >= -1e-12).all() and values.max() <= 1 + 1e-12
        assert share(np.inf) == pytest.approx(1)


def simulate(cc: str, rtt: float, bdp: float, queue: float, dt: float = 1e-3) -> float:
    """One epoch in small steps of time: sent over possible."""
    top = bdp + queue
    beta = {"cubic": 0.7, "reno": 0.5, "scalable": 0.875}.get(cc, float(htcp_beta(rtt, queue / bdp)))
    window, t, sent = beta * top, 0.0, 0.0
    k = (0.3 * top / 0.4) ** (1 / 3)
    while window < top:
        now = max(rtt, window / bdp * rtt)
        sent += window / now * dt
        if cc == "cubic":
            window = top - 0.4 * (k - t - dt) ** 3 if t + dt < k else top
        elif cc == "reno":
            window += dt / now
        elif cc == "scalable":
            window += 0.01 * window * dt / now
        else:
            late = max(t - 1, 0)
            factor = 1 + 10 * late + (late / 2) ** 2
            window += 2 * (1 - beta) * factor * min(max(rtt / 0.1, 0.1), 2) * dt / now
        t += dt
    return sent / (bdp / rtt * t)


@pytest.mark.parametrize("q", [0.0, 0.05, 0.2, 0.6])
@pytest.mark.parametrize(("cc", "rtt"), [("cubic", 0.1), ("reno", 0.02), ("scalable", 0.1), ("htcp", 0.1)])
def test_utilisation_against_a_simulated_epoch(cc: str, rtt: float, q: float) -> None:
    bdp = 2000.0 if cc != "reno" else 300.0
    rate = bdp / rtt * 8 * 8948
    found = droptail_rate(cc, rtt, rate, q * bdp * 8948) / rate
    assert found == pytest.approx(simulate(cc, rtt, bdp, q * bdp), rel=3e-3)


def test_htcp_below_10_ms_and_far_out() -> None:
    assert htcp_beta([0.005, 0.1, 0.1, 0.1], [0.3, 0.0, 0.5, 3.0]) == pytest.approx([0.5, 0.8, 2 / 3, 0.5])
    for rtt, q in [(0.005, 0.1), (0.366, 0.1), (0.05, 0.0)]:
        bdp = 1500.0
        rate = bdp / rtt * 8 * 8948
        found = htcp_utilisation(rtt, rate, q * bdp * 8948)
        assert found == pytest.approx(simulate("htcp", rtt, bdp, q * bdp, 2e-4), rel=3e-3)
    rtt_s = RTT_MS / 1e3
    full = htcp_utilisation(rtt_s, RATE, 0.25 * RATE * rtt_s / 8)
    assert full[1:] == pytest.approx(np.ones(6)) and full[0] < 1


def test_droptail_broadcasts() -> None:
    rates = droptail_rate("cubic", RTT_MS[:, None] / 1e3, RATE, np.array([0.0, 1e6, 1e9]))
    assert rates.shape == (7, 3)
    assert rates[:, 0] == pytest.approx(np.full(7, 0.925 * RATE)) and rates[:, 2] == pytest.approx(RATE)
    assert cubic_epoch_s(0.183, RATE, RATE * 0.183 / 8) == pytest.approx(
        (0.3 * 2 * RATE * 0.183 / 8 / 8948 / 0.4) ** (1 / 3)
    )


def test_random_loss() -> None:
    packets = 8 * 8948
    assert random_loss_rate("reno", 0.1, 1e-4) == pytest.approx(1220 * packets)
    assert random_loss_rate("scalable", 0.1, 1e-4) == pytest.approx(8000 * packets)
    # RFC 9438: the mean window is (C (3 + β) / (4 (1 − β)))^¼ τ^¾ / p^¾, with C 0.4 and β 0.7.
    window = (0.4 * 3.7 / 1.2) ** 0.25 * (0.1 / 1e-4) ** 0.75
    assert random_loss_rate("cubic", 0.1, 1e-4) == pytest.approx(window / 0.1 * packets, rel=1e-3)
    capped = random_loss_rate("reno", RTT_MS / 1e3, [[0.0], [1e-6]], rate_bps=RATE)
    assert capped.shape == (2, 7) and (capped[0] == RATE).all() and capped[1, -1] < RATE


def test_bad_input_of_closed_forms() -> None:
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: window_limited(0, 1e9, 1e6), "RTTs"),
        (lambda: window_limited(0.1, math.nan, 1e6), "rates"),
        (lambda: window_limited(0.1, 1e9, -1), "windows"),
        (lambda: cubic_utilisation(-0.1), "queue_bdp"),
        (lambda: scalable_utilisation(math.nan), "queue_bdp"),
        (lambda: droptail_rate("bbr", 0.1, 1e9, 1e6), "no closed form"),
        (lambda: droptail_rate("cubic", 0.1, 1e9, -1), "queues"),
        (lambda: random_loss_rate("htcp", 0.1, 0.01), "no closed form"),
        (lambda: random_loss_rate("reno", 0.1, 0), "give rate_bps"),
        (lambda: random_loss_rate("reno", 0.1, 1.5), "at most 1"),
        (lambda: payload_rate(1e9, 40), "headers"),
    ]
    for call, words in cases:
        with pytest.raises(UsageError, match=words):
            call()
