"""Measures how often the splits that runs allow hold the true one; they should in 95% of profiles.

The profiles are straight, so that all six splits of seven RTTs are true. Each row is the share of 400
simulated profiles for the split that is held least and most often. Spreads are alike, or grow a hundredfold
from the first RTT to the last, or change a hundredfold from each RTT to the next.

    .venv/bin/python3 bench/splits.py
"""

import numpy as np
from common import machine
from fullpipe.transition import fit_shape

GRID = np.array([0.4, 11.8, 22.6, 45.6, 91.6, 183.0, 366.0])
PROFILES = 400


def shares(n: int, sd: np.ndarray) -> np.ndarray:
    """Returns the share of profiles that hold each split, of shape (6,), with n runs at each RTT."""
    rng = np.random.default_rng(11)
    rtt, hits = np.repeat(GRID, n), np.zeros(6)
    for _ in range(PROFILES):
        found = fit_shape(rtt, 2 - rtt / 400 + rng.normal(0, 1, len(rtt)) * np.repeat(sd, n))
        hits[np.searchsorted(GRID, [low for low, _ in found.splits_ms])] += 1
    return hits / PROFILES


print(machine())
print("| spreads | runs at each RTT | least | most |\n|---|---|---|---|")
SPREADS = {
    "alike": np.full(7, 0.05),
    "grow": 2e-3 * 10 ** np.linspace(0, 2, 7),
    "alternate": np.array([2e-3, 0.2, 2e-3, 0.2, 2e-3, 0.2, 2e-3]),
}
for name, sd in SPREADS.items():
    for n in (2, 3, 4, 10):
        held = shares(n, sd)
        print(f"| {name} | {n} | {held.min():.3f} | {held.max():.3f} |", flush=True)
