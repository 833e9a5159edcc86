"""PLANTED runs, for tests only: made-up cells in which a clause of the papers is true, or false."""

import itertools
from collections.abc import Mapping

import numpy as np
import polars as pl
from lab.papers.cells import AXES, Cells, Value
from lab.papers.claims import Clause, Correlation, Gain, Growth, Level, Ratio, Shape, Transition

RTTS = (0.4, 11.8, 22.6, 45.6, 91.6, 183.0, 366.0)
QUANTITIES = (
    "goodput_gbps",
    "ramp_s",
    "exponent",
    "exponent_size",
    "variation",
    "map_correlation",
    "map_width",
)
Key = tuple[tuple[str, Value], ...]


class Planter:
    """Collects cells, each with one value of a quantity per seed."""

    def __init__(self, seeds: int, noise: float = 0.01) -> None:
        self.seeds, self.noise = seeds, noise
        self.random = np.random.default_rng(1)
        self.rows: dict[tuple[Key, int], dict[str, float]] = {}

    def plant(self, where: Mapping[str, Value], values: np.ndarray, of: str = "goodput_gbps") -> None:
        """Plants a value for each seed; a cell that is there already keeps what it has."""
        for seed, value in enumerate(values[: self.seeds], 1):
            row = self.rows.setdefault((tuple(sorted(where.items())), seed), {})
            row.setdefault(of, float(value))

    def cell(
        self, where: Mapping[str, Value], mean: float, of: str = "goodput_gbps", sd: float = 0.0
    ) -> None:
        """Plants a cell with this mean; by default with the planter's relative noise."""
        draw = self.random.normal(size=100)
        self.plant(where, mean + draw * (sd or self.noise * abs(mean)), of)

    def cells(self) -> Cells:
        """The planted runs."""
        axes = {"rtt_ms": 1.0, "rate_gbps": 10.0, "size_gb": 0, "duration_s": 0.0, "program": "planted"}
        rows = [axes | dict(key) | {"seed": seed} | values for (key, seed), values in self.rows.items()]
        floats = {"rtt_ms", "rate_gbps", "queue_bdp", "loss", "host_noise_ms", "duration_s", *QUANTITIES}
        text = {"modality", "host", "kernel", "cc", "buffer", "program"}
        schema = {
            name: pl.Float64() if name in floats else pl.String() if name in text else pl.Int64()
            for name in (*AXES, "seed", *QUANTITIES)
        }
        return Cells(pl.DataFrame(rows, schema=schema))


def _inside(low: float, high: float) -> float:
    if np.isinf(high):
        return low + 0.25 * max(abs(low), 1.0)
    return high - 0.25 * max(abs(high), 1.0) if np.isinf(low) else (low + high) / 2


def _outside(low: float, high: float) -> float:
    return high + 0.25 * max(abs(high), 1.0) if np.isinf(low) else low - 0.25 * max(abs(low), 1.0)


def crossing(tau_ms: float) -> np.ndarray:
    """A profile whose dual sigmoid turns at this RTT."""
    return np.asarray(9 / (1 + (np.array(RTTS) / tau_ms) ** 4))


def _profile(planter: Planter, where: Mapping[str, Value], profile: np.ndarray) -> None:
    for rtt, mean in zip(RTTS, profile, strict=True):
        planter.cell({**where, "rtt_ms": rtt}, float(mean))


def _ratio(planter: Planter, clause: Ratio, where: Mapping[str, Value], value: float) -> None:
    means: dict[Key, float] = {}
    free = [{axis: value} for axis, values in clause.best.items() for value in values] or [{}]
    for (_, over, under), one in itertools.product(clause.pairs(), free):
        below, above = {**where, **under, **one}, {**where, **over, **one}
        # A chain of ratios goes on from the cell before.
        base = means.setdefault(tuple(sorted(below.items())), 5.0)
        if clause.spread:
            planter.cell(below, 9.0, sd=0.1)
            planter.cell(above, 9.0, sd=0.1 * (8 if value > clause.low else 0.2))
            continue
        means[tuple(sorted(above.items()))] = base * value
        planter.cell(below, base, clause.of)
        planter.cell(above, base * value, clause.of)


def plant(planter: Planter, clause: Clause, defaults: dict[str, Value], true: bool) -> None:
    """Plants all cells of a clause so that each of its parts is true, or false."""
    for _, where in clause.parts(defaults):
        choose = _inside if true else _outside
        if isinstance(clause, Level):
            planter.cell(where, choose(clause.low, clause.high), clause.of, sd=0.01)
        elif isinstance(clause, Ratio):
            _ratio(planter, clause, where, choose(clause.low, clause.high))
        elif isinstance(clause, Gain):
            gain = choose(clause.low, clause.high)
            for at, side in itertools.product((clause.here, clause.there), (clause.over, clause.under)):
                last = at is clause.here and side is clause.over
                planter.cell({**where, **at, **side}, 5.0 * (gain if last else 1.0), clause.of)
        elif isinstance(clause, Correlation):
            sign = -1.0 if true == np.isinf(clause.low) else 1.0
            x = planter.random.normal(size=100)
            y = 9 + sign * 0.1 * x + 0.01 * planter.random.normal(size=100)
            if clause.across:
                ((axis, values),) = clause.across.items()
                for value, a, b in zip(values, x, y, strict=False):
                    planter.cell({**where, axis: value}, float(a), clause.of)
                    planter.cell({**where, axis: value}, float(b), clause.with_, sd=1e-3)
            else:
                planter.plant(where, x, clause.of)
                planter.plant(where, y, clause.with_)
        elif isinstance(clause, Shape):
            rtt = np.array(RTTS)
            _profile(planter, where, 9 / (1 + rtt / 50) if true else 9 - 4 * (rtt / 366) ** 2)
        elif isinstance(clause, Transition):
            other = 183.0 if clause.tau_ms < 50 else 22.6
            for n in clause.streams:
                _profile(planter, {**where, "streams": n}, crossing(clause.tau_ms if true else other))
        elif isinstance(clause, Growth):
            ((axis, values),) = clause.along.items()
            order = range(len(values)) if true else range(len(values))[::-1]
            for i, value in zip(order, values, strict=True):
                tau = RTTS[1 + i * 4 // max(len(values) - 1, 1)]
                _profile(planter, {**where, axis: value}, crossing(tau))
