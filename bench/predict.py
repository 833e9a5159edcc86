"""Measures how long a million predictions take on one processor.

The mixture has RTTs from 0.4 to 366 ms and sizes from 0.1 to 100 GB, log-uniform, 1 to 10 streams, five
congestion controls and three buffers, uniform, over 10 Gb/s with a queue of one BDP.

    .venv/bin/python3 bench/predict.py
"""

from __future__ import annotations

import os
import time

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402
from common import machine, verdict  # noqa: E402
from fullpipe.model.predict import (  # noqa: E402
    CONGESTION_CONTROLS,
    NetworkPath,
    Transport,
    Workload,
    predict,
)

COUNT = 1_000_000
BAR_S = 10.0


def main() -> int:
    """Prints the time and whether it meets the bar."""
    rng = np.random.default_rng(1)

    def log_uniform(low: float, high: float) -> np.ndarray:
        return np.exp(rng.uniform(np.log(low), np.log(high), COUNT))

    path = NetworkPath(rtt_s=log_uniform(0.4e-3, 0.366), rate_bps=1e10, framing_bytes=24)
    transport = Transport(
        cc=rng.choice(CONGESTION_CONTROLS, COUNT),
        streams=rng.integers(1, 11, COUNT),
        buffer_bytes=rng.choice([250e3, 250e6, 1e9], COUNT),
    )
    workload = Workload(size_bytes=log_uniform(1e8, 1e11))
    predict(NetworkPath(0.01, 1e10), Transport(), Workload(size_bytes=1e9))
    wall, processor = time.perf_counter(), time.process_time()
    goodput = predict(path, transport, workload)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    ok = bool(np.isfinite(goodput).all() and (goodput > 0).all()) and processor < BAR_S
    print(machine())
    print(f"{COUNT} predictions: {wall:.2f} s, {processor:.2f} s of one processor, "
          f"{1e6 * processor / COUNT:.2f} µs each; bar {BAR_S:g} s: {verdict(ok)}")  # fmt: skip
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
