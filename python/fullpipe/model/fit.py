"""Fits two forms to throughput profiles: exponential ramp-up, and the conventional convex form.

The forms are those of HPDC'17, sections 3.4 and 3.2. Both fits have AIC and BIC, so that they can be compared
on the same points.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fullpipe.arrays import floats
from fullpipe.errors import UsageError
from fullpipe.model.closed import PACKET_BYTES
from fullpipe.units import counted

Floats = NDArray[np.float64]
Curve = Callable[[Floats], Floats]

_MOST_CONVEX = 10.0


@dataclass(frozen=True, repr=False)
class Fit:
    """A fitted form.

    Attributes:
        form: The name of the form.
        params: The parameters, with units in their names.
        predicted: The throughput at the fitted RTTs in bit/s, shape (n,).
        sse: The sum of squared errors in (bit/s)².
        aic: Akaike's criterion for Gaussian errors. Their unknown variance counts as a parameter. Smaller is
            better, and only differences between fits to the same points have a meaning.
        bic: Schwarz's criterion, under the same conditions.
        predict: The fitted curve: RTTs in ms to bit/s.
    """

    form: str
    params: dict[str, float]
    predicted: Floats
    sse: float
    aic: float
    bic: float
    predict: Callable[[ArrayLike], Floats] = field(compare=False)

    def __repr__(self) -> str:
        """The form, its parameters and its quality in one line."""
        params = ", ".join(f"{name} {value:.4g}" for name, value in self.params.items())
        rmse = np.sqrt(self.sse / len(self.predicted))
        return (
            f"Fit({self.form}: {params}; rms error {rmse:.3g} bit/s, AIC {self.aic:.1f}, BIC {self.bic:.1f})"
        )


def _points(rtt_ms: ArrayLike, throughput: ArrayLike, params: int) -> tuple[Floats, Floats]:
    x, y = floats(rtt_ms), floats(throughput)
    if x.ndim != 1 or x.shape != y.shape:
        raise UsageError(
            f"RTTs and throughputs must be two arrays of one length, not of {x.shape} and {y.shape}"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all() and (x > 0).all() and (y >= 0).all()):
        raise UsageError("RTTs must be positive, throughputs not negative, and none of them NaN or infinite")
    distinct = len(np.unique(x))
    if distinct < params + 2:
        raise UsageError(
            f"{counted(distinct, 'different RTT')}, too few for {params} parameters and their error; "
            f"measure at {params + 2} or more"
        )
    if not y.any():
        raise UsageError("throughput is zero at every RTT; there is nothing to fit")
    return x, y


def _least(
    residuals: Callable[[Floats], Floats],
    starts: Iterable[Sequence[float]],
    bounds: tuple[Sequence[float], Sequence[float]],
) -> Floats:
    """The best least-squares fit from several starting points."""
    from scipy.optimize import least_squares

    tried = [
        least_squares(residuals, np.clip(start, *bounds), bounds=bounds, xtol=1e-12, ftol=1e-12)
        for start in starts
    ]
    best: Floats = min(tried, key=lambda found: float(found.cost)).x
    return best


def _judged(form: str, params: dict[str, float], curve: Curve, points: tuple[Floats, Floats]) -> Fit:
    x, y = points
    predicted = curve(x)
    sse = float(np.sum((predicted - y) ** 2))
    n, k = len(y), len(params) + 1
    # An exact fit would have an infinite likelihood, so errors count as at least 1e-9 of the largest rate.
    deviance = n * np.log(max(sse / n, (1e-9 * float(y.max())) ** 2))
    return Fit(
        form=form,
        params=params,
        predicted=predicted,
        sse=sse,
        aic=float(deviance + 2 * k),
        bic=float(deviance + k * np.log(n)),
        predict=lambda rtt_ms: curve(np.asarray(rtt_ms, dtype=np.float64)),
    )


def _paper(rate: float, rtt_s: Floats, duration_s: float | None, packets: float | None) -> Floats:
    """The paper's Θ_O in packets/s, for the capacity C = `rate` in packets/s."""
    excess = rtt_s * np.log2(rate) - 2
    if duration_s is not None:
        return np.asarray(np.maximum(rate * (1 - excess / duration_s), 0))
    # T_O = S / Θ_O, solved for Θ_O. Ramp-up sends 2C packets, even if the transfer has fewer.
    return np.asarray(rate / np.maximum(1 + rate * excess / (packets or 1), 1e-6))


def _mended(
    rate: float, first: float, rtt_s: Floats, duration_s: float | None, packets: float | None
) -> Floats:
    """Θ_O in packets/s with T_R = τ log2(C τ / w0), also for transfers that end during ramp-up."""
    bdp = rate * rtt_s
    ramp_s = rtt_s * np.log2(np.maximum(bdp / first, 1))
    ramp_packets = np.maximum(bdp - first, 0)
    if duration_s is not None:
        # Capped, because `where` computes the branch that is not taken, too, and it may overflow.
        partial = first * np.expm1(np.minimum(duration_s, ramp_s) / rtt_s * np.log(2))
        whole = ramp_packets + rate * (duration_s - ramp_s)
        return np.where(duration_s < ramp_s, partial, whole) / duration_s
    size = packets or 1
    partial_s = rtt_s * np.log2(1 + size / first)
    return size / np.where(size <= ramp_packets, partial_s, ramp_s + (size - ramp_packets) / rate)


def fit_exponential_ramp(
    rtt_ms: ArrayLike,
    throughput: ArrayLike,
    *,
    duration_s: float | None = None,
    size_bytes: float | None = None,
    form: str = "mended",
    packet_bytes: float = PACKET_BYTES,
) -> Fit:
    """Fits exponential ramp-up to C followed by throughput sustained at C (HPDC'17, section 3.4).

    - `paper`: T_R = τ log2 C and Θ_O = 2C / T_O + C (1 − τ log2 C / T_O), with C in packets/s, as the paper
      prints it. For a fixed duration it is linear in τ. Its units do not agree: it takes 2C as the data of
      ramp-up, which is two seconds' worth, and small only for long observations. One parameter: `rate_bps`.
    - `mended`: T_R = τ log2(C τ / w0), during which C τ − w0 packets are sent. For a fixed duration it is
      strictly concave in τ. There is no ramp-up if C τ ≤ w0, and a transfer may end during ramp-up. Two
      parameters: `rate_bps` and `first_window_packets` (w0, of all streams together).

    For a fixed size, T_O = S / Θ_O.

    Args:
        rtt_ms: The round-trip times in ms, shape (n,).
        throughput: The mean throughput at each RTT in bit/s, shape (n,).
        duration_s: T_O, if transfers had a fixed duration.
        size_bytes: S, if transfers had a fixed size. Give exactly one of the two.
        form: `paper` or `mended`.
        packet_bytes: Payload of a packet.

    Raises:
        UsageError: Neither or both of duration and size, an unknown form, values that are no numbers, or too
            few different RTTs (three for `paper`, four for `mended`).
    """
    if (duration_s is None) == (size_bytes is None):
        raise UsageError("give either duration_s or size_bytes: what the transfers had in common")
    extent = duration_s if duration_s is not None else size_bytes
    if not (extent is not None and 0 < extent < np.inf and 0 < packet_bytes < np.inf):
        raise UsageError("duration, size and packet size must be positive numbers")
    if form not in ("paper", "mended"):
        raise UsageError(f"form '{form}' is unknown; it is 'paper' or 'mended'")
    x, y = _points(rtt_ms, throughput, 1 if form == "paper" else 2)
    bits, most = 8 * packet_bytes, float(y.max())
    packets = None if size_bytes is None else size_bytes / packet_bytes

    def curve(p: Floats, rtt: Floats) -> Floats:
        rate, rest = float(np.exp(p[0])) / bits, [float(value) for value in np.exp(p[1:])]
        if form == "paper":
            return bits * _paper(rate, rtt / 1e3, duration_s, packets)
        return bits * _mended(rate, rest[0], rtt / 1e3, duration_s, packets)

    # Both parameters are positive, and only their order of magnitude is known, so logarithms are fitted.
    rates = [float(np.log(most * factor)) for factor in (0.3, 1.0, 1.1, 3.0)]
    low, high = [float(np.log(most / 100))], [float(np.log(most * 100))]
    starts = [[rate] for rate in rates]
    if form == "mended":
        starts = [[rate, float(np.log(first))] for rate in rates for first in (1, 10, 100, 1000)]
        low, high = [*low, float(np.log(1e-3))], [*high, float(np.log(1e8))]
    best = _least(lambda p: np.asarray((curve(p, x) - y) / most), starts, (low, high))
    names = ["rate_bps", "first_window_packets"]
    params = {name: float(value) for name, value in zip(names, np.exp(best), strict=False)}
    return _judged(f"exponential ramp-up, {form}", params, lambda rtt: curve(best, rtt), (x, y))


def fit_convex(rtt_ms: ArrayLike, throughput: ArrayLike) -> Fit:
    """Fits the conventional, entirely convex form a + b / τ^c with a, b ≥ 0 and c ≥ 1 (HPDC'17, section 3.2).

    Parameters: `a_bps`, `b_bps` and `c`, which is at most 10. τ is in ms, so b is the second term's value at
    an RTT of 1 ms.

    Args:
        rtt_ms: The round-trip times in ms, shape (n,).
        throughput: The mean throughput at each RTT in bit/s, shape (n,).

    Raises:
        UsageError: A value is not a number, or there are fewer than five different RTTs.
    """
    from scipy.optimize import nnls

    x, y = _points(rtt_ms, throughput, 3)
    centre, most = float(np.exp(np.log(x).mean())), float(y.max())

    def terms(c: float, rtt: Floats) -> Floats:
        return np.column_stack([np.ones_like(rtt), (rtt / centre) ** -c])

    def linear(c: float) -> Floats:
        """The best a and b for a given c."""
        return np.asarray(nnls(terms(c, x), y / most)[0])

    starts = [[1.01], [1.5], [2.0], [4.0]]
    best = _least(
        lambda p: np.asarray(terms(p[0], x) @ linear(p[0]) - y / most), starts, ([1.0], [_MOST_CONVEX])
    )
    c, (a, b) = float(best[0]), most * linear(float(best[0]))
    params = {"a_bps": float(a), "b_bps": float(b * centre**c), "c": c}
    return _judged("convex a + b / τ^c", params, lambda rtt: terms(c, rtt) @ np.array([a, b]), (x, y))
