"""What throughput lacks of the capacity, of planted runs whose parts are known."""

import numpy as np
import polars as pl
import pytest
from lab.papers.keep import Kept
from lab.papers.shares import capacity_gbps, lacks, section


def _kept(n: int, ramp: int, low_gbps: float, high_gbps: float) -> Kept:
    """PLANTED: runs of 100 s over 10 Gb/s with a low rate for some seconds, and a high one after them."""
    rates = np.where(np.arange(1, 101) <= ramp, low_gbps, high_gbps)
    runs = pl.DataFrame(
        [
            {
                "campaign": "papers-traces", "id": f"r{seed}", "seed": seed, "cc": "cubic", "streams": 1,
                "rtt_ms": 183.0, "mtu": 9000, "duration_s": 100.0, "rate_gbps": 10.0,
                "goodput_gbps": float(rates.mean()), "ramp_s": ramp - 0.3,
            }
            for seed in range(1, n + 1)
        ]
    )  # fmt: skip
    traces = [
        {"id": f"r{seed}", "stream": 0, "second": t, "mbps": 1e3 * rate}
        for seed in range(1, n + 1)
        for t, rate in enumerate(rates, 1)
    ]
    return Kept(runs, pl.DataFrame(traces))


def test_ramp_up_and_the_rest_add_up_to_what_is_lacking() -> None:
    (one,) = lacks(_kept(10, ramp=10, low_gbps=1.0, high_gbps=9.0))
    capacity = capacity_gbps(10.0, 9000, "cubic")
    assert capacity == pytest.approx(10 * 8948 / 9014)
    assert one.ramp == pytest.approx(0.1 * (9.0 - 1.0))
    assert one.rest == pytest.approx(capacity - 9.0)
    assert one.throughput + one.ramp + one.rest == pytest.approx(capacity)
    assert one.share == pytest.approx(0.8 / (capacity - 8.2))
    assert "| 100 s | 183 ms | cubic × 1 | 10 | 8.20 | 0.80 | 0.93 | 46% ± 0% |" in section(
        _kept(10, ramp=10, low_gbps=1.0, high_gbps=9.0)
    )


def test_few_runs_say_nothing() -> None:
    assert list(lacks(_kept(9, ramp=10, low_gbps=1.0, high_gbps=9.0))) == []


def test_nothing_lost_in_ramp_up_is_nothing() -> None:
    assert "| 0% ± 0% |" in section(_kept(10, ramp=1, low_gbps=9.001, high_gbps=9.0))
