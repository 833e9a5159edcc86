"""Computes the statistics that the checks need, from their definitions."""

from math import exp, lgamma, log, log1p, sqrt


def binomial_interval(n: int, p: float, level: float = 0.99) -> tuple[int, int]:
    """Returns the central interval of Binomial(n, p). A draw lies in it with at least probability `level`."""
    if n == 0 or p <= 0.0:
        return 0, 0
    tail = (1.0 - level) / 2.0
    spread = sqrt(n * p * (1.0 - p))
    # The mass beyond twelve standard deviations, and for small means beyond forty counts, is negligible.
    first = max(0, int(n * p - 12.0 * spread - 40.0))
    last = min(n, int(n * p + 12.0 * spread + 40.0))
    low, high, total = first, last, 0.0
    for k in range(first, last + 1):
        mass = exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p))
        if total <= tail < total + mass:
            low = k
        total += mass
        if total >= 1.0 - tail:
            high = k
            break
    return low, high


def uniform_distance(values: list[float], low: float, high: float) -> float:
    """Returns Kolmogorov's distance, 0 to 1, between a sample and the uniform distribution on [low, high]."""
    ordered = sorted(values)
    n = len(ordered)
    distance = 0.0
    for i, value in enumerate(ordered):
        expected = min(1.0, max(0.0, (value - low) / (high - low)))
        distance = max(distance, abs(expected - i / n), abs(expected - (i + 1) / n))
    return distance


def uniform_distance_bound(n: int) -> float:
    """Returns the distance that a sample of n draws from the distribution exceeds with probability 1%.

    It is Kolmogorov's asymptotic 1% point, 1.628 / sqrt(n).
    """
    return 1.628 / sqrt(n)
