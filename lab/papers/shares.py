# ruff: noqa: E501 (prose)
"""What throughput lacks of the capacity, and how much of that is ramp-up (HPDC section 4.2: Θ_O = θ_S − f_R(θ_S − θ_R))."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from lab.papers.compare import MIN_RUNS
from lab.papers.keep import Kept

BEGIN = "<!-- Written of what throughput lacks by `python -m lab.papers judge`: do not edit what follows. -->"
END = "<!-- The end of what is written of what throughput lacks. -->"
CAMPAIGNS = ("papers-starts", "papers-starts-ten", "papers-traces", "papers-udt")
_CELL = ("duration_s", "rtt_ms", "cc", "streams", "mtu")
_FRAME = 14
"""Bytes of a packet that are counted beside IP's."""
_HEADERS = {"udt": 44}
"""Bytes of IP and what is above it in a packet, without payload: IPv4, UDP and UDT."""
_TCP_HEADERS = 52
"""IPv4 and TCP with timestamps."""


@dataclass(frozen=True)
class Lack:
    """The means of a cell's runs, Gb/s.

    Attributes:
        cell: Duration (s), RTT (ms), transport, streams and packet (bytes).
        n: The number of runs.
        throughput: Θ_O, the mean rate of a run.
        ramp: θ_S − Θ_O: what ramp-up takes off.
        rest: The capacity less θ_S: what losses and variation take off after ramp-up.
        error: The standard error of the ramp's share of both.
    """

    cell: tuple[float, float, str, int, int]
    n: int
    throughput: float
    ramp: float
    rest: float
    error: float

    @property
    def share(self) -> float:
        """Ramp-up's share of what is lacking."""
        return self.ramp / (self.ramp + self.rest)


def capacity_gbps(rate_gbps: float, mtu: int, cc: str) -> float:
    """The rate of payload that a path carries in whole packets (Gb/s)."""
    return rate_gbps * (mtu - _HEADERS.get(cc, _TCP_HEADERS)) / (mtu + _FRAME)


def _parts(kept: Kept, run: dict[str, float]) -> tuple[float, float]:
    """What ramp-up takes off a run, and what the rest does (Gb/s)."""
    seconds = kept.traces.filter(pl.col("id") == run["id"]).group_by("second").agg(pl.col("mbps").sum())
    sustained = seconds.filter(pl.col("second") > np.ceil(run["ramp_s"]))["mbps"].cast(pl.Float64).to_numpy()
    theta_s = float(sustained.mean()) / 1e3
    capacity = capacity_gbps(run["rate_gbps"], int(run["mtu"]), str(run["cc"]))
    return theta_s - run["goodput_gbps"], capacity - theta_s


def lacks(kept: Kept) -> Iterator[Lack]:
    """Every cell of runs of a fixed duration with at least ten runs that show their ramp-up."""
    runs = kept.runs.filter(pl.col("campaign").is_in(CAMPAIGNS), pl.col("ramp_s").is_not_null())
    for cell, some in runs.sort(*_CELL, "seed").group_by(_CELL, maintain_order=True):
        if some.height < MIN_RUNS:
            continue
        ramp, rest = np.array([_parts(kept, run) for run in some.iter_rows(named=True)]).T
        shares = ramp / (ramp + rest)
        yield Lack(
            (float(cell[0]), float(cell[1]), str(cell[2]), int(cell[3]), int(cell[4])),
            some.height,
            float(some["goodput_gbps"].to_numpy().mean()),
            float(ramp.mean()),
            float(rest.mean()),
            float(shares.std(ddof=1) / np.sqrt(some.height)),
        )


def _rounded(x: float, digits: str) -> str:
    """A number without the sign of what is rounded to zero."""
    text = format(x, digits)
    return text.removeprefix("-") if not any(digit in text for digit in "123456789") else text


def section(kept: Kept) -> str:
    """The part of docs/explanation/papers.md that is written of what throughput lacks."""
    lines = [
        BEGIN,
        "",
        "| duration | RTT | transport | n | Θ_O, Gb/s | ramp-up | the rest | ramp-up's share |",
        "|---" * 8 + "|",
    ]
    for one in lacks(kept):
        duration, rtt, cc, streams, mtu = one.cell
        transport = f"{cc} × {streams}" + (f", {mtu:,} bytes" if cc == "udt" else "")
        rates = " | ".join(_rounded(rate, ".2f") for rate in (one.throughput, one.ramp, one.rest))
        share = f"{_rounded(one.share, '.0%')} ± {2 * one.error:.0%}"
        lines.append(f"| {duration:g} s | {rtt:g} ms | {transport} | {one.n} | {rates} | {share} |")
    return "\n".join([*lines, "", END])
