"""Makes resampled traces, for the uncertainty of an exponent, and surrogates, for comparison."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

_MOST_CORRELATED = 0.99


def block_length(values: Floats) -> int:
    """Values per block: n^(1/3) (Künsch 1989), or more until they are no longer correlated, up to n / 4.

    Correlation has ended at the first lag at which it is within ±1.96 / √n.
    """
    n = len(values)
    centred = values - values.mean()
    spectrum = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    correlation = np.fft.irfft(spectrum)[: n // 4]
    below = np.abs(correlation) < 1.96 / np.sqrt(n) * correlation[0]
    lag = int(np.argmax(below)) if below.any() else n // 4
    return min(max(int(np.ceil(n ** (1 / 3))), lag), n // 4)


def block_counts(n: int, length: int, replicates: int, random: Generator) -> Floats:
    """Counts how often each of n observations is in each replicate of a circular block bootstrap.

    Blocks of consecutive observations begin anywhere and wrap at the end (Politis and Romano 1992). The shape
    of the result is (n, replicates).
    """
    starts = random.integers(0, n, (replicates, -(-n // length)))
    drawn = ((starts[:, :, None] + np.arange(length)) % n).reshape(replicates, -1)[:, :n]
    counts = [np.bincount(indices, minlength=n) for indices in drawn]
    return np.stack(counts, axis=1).astype(np.float64)


def _ranks(values: Floats) -> Indices:
    return np.argsort(np.argsort(values, axis=-1, kind="stable"), axis=-1)


def ar1_surrogates(values: Floats, count: int, random: Generator) -> Indices:
    """Orders of the trace's own values that are like a first-order linear process, shape (count, n).

    Amplitude-adjusted (Theiler et al. 1992): a Gaussian AR(1) with the correlation of the trace's normal
    scores, corrected for its bias in short series (Kendall 1954), whose ranks say which value comes when.
    """
    from scipy.signal import lfilter
    from scipy.special import ndtri

    n = len(values)
    scores = ndtri((_ranks(values) + 0.5) / n)
    r = float(np.corrcoef(scores[1:], scores[:-1])[0, 1])
    r = float(np.clip(r + (1 + 3 * r) / n, -_MOST_CORRELATED, _MOST_CORRELATED))
    noise = random.standard_normal((count, n))
    noise[:, 0] /= np.sqrt(1 - r**2)
    return np.asarray(np.argsort(values, kind="stable")[_ranks(lfilter([1.0], [1.0, -r], noise, axis=1))])
