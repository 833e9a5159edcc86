"""Slow start on a drop-tail path, burst by burst: what happens until every stream has left it.

Time is counted in round-trip times of the empty path, data in packets, so that the path's rate is its BDP,
`b`. Cases are columns, streams are rows: arrays are of shape (n, cases), or (cases,).

A window in slow start is a burst, one per round trip. Its acknowledgements arrive as its packets left the
bottleneck, and each releases two packets: a burst of W packets arrives within W / 2 packet times, and leaves
over W, so W / 2 packets queue. Bursts of different streams follow each other in the order in which the
streams began, since a FIFO queue keeps that order; a burst waits for what is queued before it. That makes one
round a short sequence of sums and maxima, in which nothing is fitted. The queue overflows for just one round
trip, after which a stream has seen its first loss; its window is then what was acknowledged until that loss.

Sources: RFC 5681 and 6928 (slow start from ten packets); `net/ipv4/tcp_cubic.c` (HyStart: a round whose
shortest RTT exceeds the least by an eighth, within 4 and 16 ms, or whose acknowledgements keep coming for
half an RTT); RFC 6937 (a window of β W after a loss, once what was lost is sent again); `tcp_bbr.c`.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fullpipe.tcp import INITIAL_WINDOW

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

HYSTART_LEAST_WINDOW = 16.0
HYSTART_SAMPLES = 8.0
"""Packets acknowledged before a round's delay counts (`HYSTART_MIN_SAMPLES`)."""
HYSTART_DELAY_S = (0.004, 0.016)
FIRST_GROWTH = 1.05
"""CUBIC's growth per RTT while it has seen no loss (`cnt` at most 20)."""
BBR_STARTUP_LAG = 0.28
"""RTTs by which BBR's startup, spread over the round by pacing, trails 10 (2^t - 1) packets after t RTTs.
Fitted to 1 GB of one stream at 366 ms, which never leaves startup."""
BBR_CWND_GAIN = 2.0
"""Windows of BBR's PROBE_BW over the estimated BDP (`bbr_cwnd_gain`)."""
MOST_ROUNDS = 64

_SLOW_START, _AVOIDANCE, _LOST, _DONE, _RECOVERED, _LIMITED = range(6)


@dataclass
class Cases:
    """Cases with one congestion control and one number of streams; all (cases,)."""

    rtt_s: Floats
    b: Floats
    """The path's BDP, packets: also its rate per RTT."""
    queue: Floats
    """Packets."""
    window: Floats
    """Most that a stream may have in flight, packets."""
    share: Floats
    """Packets of each stream; infinite where a duration is given."""
    end: Floats
    """RTTs from the first arrival to the end; infinite where a size is given."""
    loss: Floats
    """Probability that a packet is lost, whatever the queue does."""
    pacing: Floats
    """Most that a stream sends per RTT, packets; infinite for no limit."""
    beta: Floats
    """What a loss leaves of the window."""
    phase: Floats
    """When the streams begin, RTTs, in order: (cases, n)."""

    def take(self, which: Bools | NDArray[np.intp] | slice) -> "Cases":
        """Some of the cases."""
        return Cases(**{name: value[which] for name, value in vars(self).items()})


@dataclass
class State:
    """Where slow start ends. (n, cases): `window`, `left`, `before`; the others (cases,)."""

    t: Floats
    """Since the path's zero, RTTs."""
    window: Floats
    """Packets; zero for a stream that is done."""
    left: Floats
    """Packets of each stream that have not passed the bottleneck."""
    before: Floats
    """Window at the last loss, packets; zero where there was none."""
    sent: Floats
    """Packets past the bottleneck before the end."""
    finish: Floats
    """When the last packet of those streams left that are done."""


def even_starts(n: int) -> Floats:
    """Starts of n streams within the first RTT, evenly spaced."""
    return (np.arange(n) + 0.5) / n


@lru_cache(maxsize=4096)
def seeded_starts(n: int, seed: int) -> tuple[float, ...]:
    """Starts as the testbed draws them: uniform within the first RTT, by `rand_pcg`'s Pcg64Mcg; in order."""
    state, words = seed, []
    for _ in range(4):  # rand's `seed_from_u64`: PCG32 fills the seed
        state = (state * 6364136223846793005 + 11634580027462260723) % 2**64
        word, turn = (((state >> 18) ^ state) >> 27) % 2**32, state >> 59
        words.append((word >> turn | word << (32 - turn)) % 2**32)
    mcg = sum(word << (32 * i) for i, word in enumerate(words)) | 1
    drawn = []
    for _ in range(n):
        mcg = mcg * 0x2360ED051FC65DA44385DF649FCCF645 % 2**128
        word, turn = (mcg >> 64 ^ mcg) % 2**64, mcg >> 122
        drawn.append(((word >> turn | word << (64 - turn)) % 2**64 >> 11) / 2**53)
    return tuple(sorted(drawn))


def _skipped(c: Cases, n: int) -> tuple[Floats, Floats, Floats]:
    """Rounds in which no burst meets another: their number, the last window, packets sent."""
    most = np.minimum(np.minimum(c.b / (4 * n), c.queue), np.minimum(c.window, c.share / 4))
    most = np.minimum(np.minimum(most, c.pacing / 2), 1 / (4 * np.maximum(c.loss, 1e-12)))
    k = np.floor(np.log2(np.maximum(most / INITIAL_WINDOW, 1)))
    k = np.minimum(k, np.maximum(np.floor(np.minimum(c.end, 1e6)) - 2, 0))
    window = np.minimum(INITIAL_WINDOW * 2**k, np.maximum(c.window, 1))
    sent = np.where(k > 0, INITIAL_WINDOW * (2 ** (k + 1) - 1), np.minimum(window, c.share))
    return k, window, sent


def slow_start(c: Cases, n: int, hystart: bool) -> State:
    """Runs every stream until it has left slow start, recovered from a loss, met its limit, or is done."""
    cases = len(c.b)
    out = State(
        t=np.zeros(cases),
        window=np.zeros((n, cases)),
        left=np.zeros((n, cases)),
        before=np.zeros((n, cases)),
        sent=np.zeros(cases),
        finish=np.zeros(cases),
    )
    ids: NDArray[np.intp] = np.arange(cases)
    phase = c.phase.T
    k, first, sent0 = _skipped(c, n)
    window = np.repeat(first[None], n, 0)
    head = phase + k + 1  # when the acknowledgements of a stream's burst begin
    train = np.repeat((first / c.b)[None], n, 0)  # how long they keep coming
    left = np.repeat((c.share - sent0)[None], n, 0)
    wait = np.zeros((n, cases))  # what the burst's first packet queued
    early = np.zeros((n, cases))  # share of a burst that came before its first loss
    before = np.zeros((n, cases))
    mode = np.where(left > 0, _SLOW_START, _DONE).astype(np.int8)
    free = phase[-1] + k + first / c.b  # when the bottleneck has sent all it has
    sent = n * sent0
    finish = np.where(left[-1] > 0, 0.0, free)
    threshold = np.clip(c.rtt_s / 8, *HYSTART_DELAY_S) / c.rtt_s
    end = c.end + phase[0]
    long_train = np.where(np.isfinite(c.pacing), 1.0, 0.5)
    lossy = bool((c.loss > 0).any())
    paced = bool(np.isfinite(c.pacing).any())
    timed = bool(np.isfinite(c.end).any())
    for _ in range(MOST_ROUNDS):
        for i in range(n):
            now, old = mode[i], window[i]
            slow = now == _SLOW_START
            if hystart:
                ready = slow & (2 * old > HYSTART_LEAST_WINDOW)
                delayed = ready & (wait[i] > threshold)
                trained = ready & ~delayed & (train[i] > long_train)
                new = np.where(slow, 2 * old, np.where(now == _AVOIDANCE, FIRST_GROWTH * old, old))
                new = np.where(delayed, old + HYSTART_SAMPLES, new)
                new = np.where(trained, old * (1 + long_train / np.maximum(train[i], 1e-9)), new)
                now = np.where(delayed | trained, _AVOIDANCE, now)
            else:
                new = np.where(slow, 2 * old, old)
            lost = now == _LOST
            if lost.any():
                # Acknowledgements of what came before the loss still grow the window.
                reached = old * (1 + early[i])
                new = np.where(lost, np.maximum(c.beta * reached, 2), new)
                before[i] = np.where(lost, reached, before[i])
                now = np.where(lost, _RECOVERED, now)
            limited = new >= c.window
            new = np.minimum(new, c.window)
            now = np.where(limited & (now == _SLOW_START), _LIMITED, now)
            alive = now != _DONE
            burst = np.minimum(new, left[i]) * alive
            arrives = train[i] * (burst / np.maximum(new, 1e-9))
            if paced:
                arrives = np.maximum(arrives, burst / c.pacing)
            start = np.maximum(free, head[i])
            queued = (start - head[i]) * c.b
            excess = np.maximum(burst - arrives * c.b, 0)
            over = queued + excess - c.queue
            drops = np.minimum(np.maximum(over, 0), burst) * (excess > 0)
            hit = (drops > 1) & (now <= _AVOIDANCE)
            if lossy:
                hit |= (now == _SLOW_START) & (2 * new * c.loss > 1)
            if hit.any():
                share = np.clip((c.queue - queued) / np.maximum(excess, 1e-9), 0, 1)
                early[i] = np.where(hit, np.where(now == _SLOW_START, share, 0.0), early[i])
                now = np.where(hit, _LOST, now)
            passed = burst - drops
            leaves = np.maximum(passed / c.b, arrives)
            rest = left[i] - passed
            done = alive & (rest <= 1e-6)
            if timed:
                counted = np.clip((end - start) / np.maximum(leaves, 1e-12), 0, 1)
                sent = sent + passed * counted
            finish = np.where(done, np.maximum(finish, start + leaves), finish)
            left[i] = rest
            # Paced bursts leave room for each other.
            taken = np.where(np.isfinite(c.pacing), passed / c.b, leaves) if paced else leaves
            free = np.where(alive, start + taken, free)
            wait[i] = start - head[i]
            head[i] = start + 1
            train[i] = leaves
            window[i] = new * (alive & ~done)
            mode[i] = np.where(done, _DONE, now)
        busy = ((mode == _SLOW_START) | (mode == _LOST)).any(0)
        if timed:
            busy &= head.min(0) < end
        if busy.all():
            continue
        _keep(out, ids, np.flatnonzero(~busy), window, left, before, sent, finish, free, head, mode)
        rest = np.flatnonzero(busy)
        if not len(rest):
            return out
        ids, c = ids[rest], c.take(rest)
        window, head, train, left, wait, early, before = (
            rows.take(rest, 1) for rows in (window, head, train, left, wait, early, before)
        )
        mode = mode.take(rest, 1)
        free, sent, finish = free[rest], sent[rest], finish[rest]
        threshold, end, long_train = threshold[rest], end[rest], long_train[rest]
    _keep(out, ids, np.arange(len(ids)), window, left, before, sent, finish, free, head, mode)
    return out


def _keep(
    out: State, ids: NDArray[np.intp], which: NDArray[np.intp], window: Floats, left: Floats, before: Floats,
    sent: Floats, finish: Floats, free: Floats, head: Floats, mode: NDArray[np.int8],
) -> None:  # fmt: skip
    """Copies cases that have left slow start."""
    to = ids[which]
    for kept, now in (out.window, window), (out.left, left), (out.before, before):
        kept[:, to] = now.take(which, 1)
    out.sent[to], out.finish[to] = sent[which], finish[which]
    following = np.where(mode.take(which, 1) == _DONE, np.inf, head.take(which, 1)).min(0)
    out.t[to] = np.where(np.isinf(following), free[which], np.maximum(free[which], following))


def bbr_startup(c: Cases, n: int) -> State:
    """BBR's startup: doubling per RTT, paced, so smooth, until the path or the window is full.

    Streams that began earlier have a larger share, 2^-φ after starts φ RTTs later, and keep it.
    """
    phase = c.phase.T
    weight = 2.0**-phase
    total = weight.sum(0)
    full = np.minimum(n * c.window, c.b)
    t = BBR_STARTUP_LAG + np.log2(np.maximum(full / (INITIAL_WINDOW * np.log(2) * total), 2.0))
    # The share of a stream may pass before the path is full.
    t = np.minimum(t, c.end + phase[0])
    grown = INITIAL_WINDOW * np.maximum(2.0 ** (t - phase - BBR_STARTUP_LAG) - 1, 0)
    left = c.share - grown
    done = left <= 0
    alone = BBR_STARTUP_LAG + phase + np.log2(1 + np.where(np.isfinite(c.share), c.share, 1) / INITIAL_WINDOW)
    window = np.minimum(
        np.where(n * c.window <= c.b, c.window, BBR_CWND_GAIN * c.b * weight / total), c.window
    )
    return State(
        t=t,
        window=np.where(done, 0.0, window),
        left=left,
        before=np.zeros_like(left),
        sent=grown.sum(0),
        finish=np.where(done, alone, 0.0).max(0),
    )
