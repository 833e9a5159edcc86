"""Whether throughput falls with RTT in the shipped profile: what was seen, and what its repeats can show."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fullpipe.transition.spread import moderate
from scipy import stats
from statsmodels.stats.multitest import multipletests

PROFILE = Path(__file__).parents[2] / "crates" / "fullpipe" / "shipped.json"
RISE = 1.01
"""The least ratio of one RTT's mean to the last one's that counts as a rise."""
_FLOOR = 1e-3
"""The least relative spread of a run."""


@dataclass(frozen=True)
class Entry:
    """One transport over one kind of path.

    Attributes:
        kind: "lossy", "deep" (clean, a queue of one BDP or more), or "shallow" (clean, less).
        cc: The congestion control, or "udt".
        name: The transport and the path in words.
        path: The path's `rate_bps`, `queue_bdp`, `mtu` and `loss`.
        streams: The number of streams.
        rtt_ms: The RTTs (ms).
        n: The number of runs at each.
        mean_bps: The mean rate at each (bit/s).
        sd_bps: The spread of runs at each (bit/s); NaN for a single run.
    """

    kind: str
    cc: str
    name: str
    path: Mapping[str, float]
    streams: int
    rtt_ms: tuple[float, ...]
    n: tuple[int, ...]
    mean_bps: tuple[float, ...]
    sd_bps: tuple[float, ...]

    @property
    def rises(self) -> bool:
        """Whether a mean is more than 1% above the one at the RTT before it."""
        mean = np.array(self.mean_bps)
        return bool((mean[1:] > RISE * mean[:-1]).any())


def entries(file: Path = PROFILE) -> list[Entry]:
    """All transports of a profile, over all of its paths."""
    profile = json.loads(file.read_text())

    def read() -> Iterator[Entry]:
        for one in profile["entries"]:
            path, transport = profile["paths"][one["path"]], one["transport"]
            lossy = path.get("loss", 0.0) > 0
            kind = "lossy" if lossy else "deep" if path["queue_bdp"] >= 1 else "shallow"
            name = (
                f"{transport['cc']} × {transport['streams']}, {path['rate_bps'] / 1e9:g} Gb/s, "
                f"{path['mtu']:,} bytes, loss {path.get('loss', 0.0):g}"
            )
            sd = tuple(np.nan if s is None else float(s) for s in one["sd_bps"])
            rtts, n, means = (tuple(one[key]) for key in ("rtt_ms", "n", "mean_bps"))
            yield Entry(kind, transport["cc"], name, path, transport["streams"], rtts, n, means, sd)

    return list(read())


def points(found: list[Entry]) -> dict[str, Counter[int]]:
    """How many points rest on how many runs, of TCP and of UDT."""
    counts: dict[str, Counter[int]] = {"tcp": Counter(), "udt": Counter()}
    for entry in found:
        counts["udt" if entry.cc == "udt" else "tcp"].update(entry.n)
    return counts


@dataclass(frozen=True)
class Repeated:
    """Steps from one RTT with repeats to the transport's next one, over any RTTs of single runs.

    Attributes:
        entries: How many transports have such steps.
        steps: How many steps there are.
        adjacent_entries: How many transports have such steps that skip no RTT.
        adjacent: How many of the steps skip no RTT.
        sure: Those that surely rise by more than 1%: transport, RTTs in words, ratio.
    """

    entries: int
    steps: int
    adjacent_entries: int
    adjacent: int
    sure: tuple[tuple[str, str, float], ...]


def repeated_rises(found: list[Entry], alpha: float = 0.05) -> Repeated:
    """Tests every step from one RTT with repeats to the next: moderated t, one-sided, Holm's correction."""
    rows, adjacent = [], Counter[int]()
    for number, entry in enumerate(found):
        at = [i for i, n in enumerate(entry.n) if n > 1]
        for i, j in zip(at, at[1:], strict=False):
            adjacent[number] += j == i + 1
            words = f"{entry.rtt_ms[i]:g} to {entry.rtt_ms[j]:g} ms"
            means, sds = np.array(entry.mean_bps)[[i, j]], np.array(entry.sd_bps)[[i, j]]
            n = np.array(entry.n, dtype=np.float64)[[i, j]]
            rows.append((entry.name, words, means, sds / means, n, number))
    if not rows:
        return Repeated(0, 0, 0, 0, ())
    relative, n = (np.array([row[k] for row in rows]) for k in (3, 4))
    df = np.concatenate(n) - 1
    spread = moderate(np.concatenate(relative) ** 2, df, np.full(len(df), _FLOOR**2))
    error = np.sqrt((spread.variance.reshape(-1, 2) / n).sum(axis=1))
    ratio = np.array([row[2][1] / row[2][0] for row in rows])
    p = stats.t.sf((np.log(ratio) - np.log(RISE)) / error, float(spread.lent_df) + df.min())
    sure = multipletests(p, alpha, method="holm")[0]
    named = [(row[0], row[1], float(r)) for row, r, s in zip(rows, ratio, sure, strict=True) if s]
    transports = len({row[5] for row in rows})
    return Repeated(transports, len(rows), len(+adjacent), adjacent.total(), tuple(named))
