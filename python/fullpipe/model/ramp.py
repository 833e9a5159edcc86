"""Simulates slow start on a drop-tail path burst by burst, until every stream has left slow start.

Units: time is in round-trip times (RTTs) of the empty path, data is in packets. The path's rate per RTT is
thus its BDP, `b`. Arrays have the shape (n, cases), one row for each of n streams, or (cases,).

In slow start a stream sends its window as one burst per round trip. Acknowledgements return at the pace at
which packets left the bottleneck, and each releases two packets. So a burst of W packets arrives at the
bottleneck within W / 2 packet times, takes W packet times to leave it, and W / 2 packets queue. A FIFO queue
keeps bursts of different streams in the order in which the streams began, and each burst waits for the
packets before it. One round is therefore a short sequence of sums and maxima; nothing is fitted. The queue
overflows for one round trip, after which the streams have seen their first loss. A stream's window is then
the number of packets acknowledged before that loss.

Sources: RFC 5681 and 6928 (slow start from ten packets); `net/ipv4/tcp_cubic.c` (HyStart leaves slow start
after a round whose shortest RTT exceeds the smallest RTT by an eighth of it, at least 4 and at most 16 ms, or
whose acknowledgements keep arriving for half an RTT); RFC 6937 (a window of β W once lost packets have been
retransmitted); `tcp_bbr.c`.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fullpipe.tcp import INITIAL_WINDOW

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

HYSTART_LEAST_WINDOW = 16.0
"""Window from which HyStart may end slow start, packets (`hystart_low_window`)."""
HYSTART_SAMPLES = 8.0
"""Packets acknowledged in a round before HyStart looks at its delay (`HYSTART_MIN_SAMPLES`)."""
HYSTART_DELAY_S = (0.004, 0.016)
"""Smallest and largest delay at which HyStart ends slow start, seconds."""
FIRST_GROWTH = 1.05
"""Factor by which CUBIC's window grows per RTT, at least, before its first loss (`cnt` at most 20)."""
BBR_STARTUP_LAG = 0.28
"""Delay of BBR's startup, RTTs. Pacing spreads packets over the round, so the number sent after t RTTs is
10 (2^(t - lag) - 1). Fitted to one stream of 1 GB at 366 ms, which never leaves startup."""
BBR_CWND_GAIN = 2.0
"""Window of BBR in PROBE_BW, in units of the estimated BDP (`bbr_cwnd_gain`)."""
MOST_ROUNDS = 64
"""Maximum number of rounds that are simulated."""

_SLOW_START, _AVOIDANCE, _LOST, _DONE, _RECOVERED, _LIMITED = range(6)


@dataclass
class Cases:
    """Transfers with the same congestion control and number of streams. Arrays have the shape (cases,)."""

    rtt_s: Floats
    b: Floats
    """The path's BDP in packets, which is also its rate in packets per RTT."""
    queue: Floats
    """Size of the bottleneck's queue, packets."""
    window: Floats
    """Maximum number of packets that a stream may have in flight."""
    share: Floats
    """Packets that each stream sends; infinite for transfers of a given duration."""
    end: Floats
    """Time from the first arrival to the end, RTTs; infinite for transfers of a given size."""
    loss: Floats
    """Probability that a packet is lost at random, besides losses in the queue."""
    pacing: Floats
    """Maximum number of packets that a stream sends per RTT; infinite without pacing."""
    beta: Floats
    """Fraction of the window that remains after a loss."""
    phase: Floats
    """Start times of the streams, RTTs, ascending, of shape (cases, n)."""

    def take(self, which: Bools | NDArray[np.intp] | slice) -> "Cases":
        """Selects some of the cases."""
        return Cases(**{name: value[which] for name, value in vars(self).items()})


@dataclass
class State:
    """The state at the end of slow start.

    `window`, `left` and `before` have the shape (n, cases), the others (cases,).
    """

    t: Floats
    """Time since the earliest possible start of a stream, RTTs."""
    window: Floats
    """Window of each stream, packets; zero for a stream that has finished."""
    left: Floats
    """Packets of each stream that have not passed the bottleneck."""
    before: Floats
    """Window of each stream at its last loss, packets; zero if it has had none."""
    sent: Floats
    """Packets that passed the bottleneck before the end of the transfer."""
    finish: Floats
    """Time at which the last packet of the finished streams left the bottleneck, RTTs."""


def even_starts(n: int) -> Floats:
    """Start times of n streams, evenly spaced within the first RTT."""
    return (np.arange(n) + 0.5) / n


@lru_cache(maxsize=4096)
def seeded_starts(n: int, seed: int) -> tuple[float, ...]:
    """Start times as the testbed draws them, ascending and uniform in the first RTT (rand_pcg's Pcg64Mcg)."""
    state, words = seed, []
    for _ in range(4):  # rand's `seed_from_u64` fills the seed with PCG32
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
    """Computes the first rounds, in which no burst meets another, at once.

    Returns the number of these rounds, the window in the last of them, and the packets that a stream sent.
    """
    most = np.minimum(np.minimum(c.b / (4 * n), c.queue), np.minimum(c.window, c.share / 4))
    most = np.minimum(np.minimum(most, c.pacing / 2), 1 / (4 * np.maximum(c.loss, 1e-12)))
    k = np.floor(np.log2(np.maximum(most / INITIAL_WINDOW, 1)))
    k = np.minimum(k, np.maximum(np.floor(np.minimum(c.end, 1e6)) - 2, 0))
    window = np.minimum(INITIAL_WINDOW * 2**k, np.maximum(c.window, 1))
    sent = np.where(k > 0, INITIAL_WINDOW * (2 ** (k + 1) - 1), np.minimum(window, c.share))
    return k, window, sent


def slow_start(c: Cases, n: int, hystart: bool) -> State:
    """Simulates streams until each has left slow start, recovered from a loss, met its limit, or finished."""
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
    head = phase + k + 1  # when the first acknowledgement of a stream's burst arrives
    train = np.repeat((first / c.b)[None], n, 0)  # how long its acknowledgements keep arriving
    left = np.repeat((c.share - sent0)[None], n, 0)
    wait = np.zeros((n, cases))  # time that the burst's first packet waited in the queue
    early = np.zeros((n, cases))  # share of a burst that arrived before its first loss
    before = np.zeros((n, cases))
    mode = np.where(left > 0, _SLOW_START, _DONE).astype(np.int8)
    free = phase[-1] + k + first / c.b  # when the bottleneck has sent all that is queued
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
                # Acknowledgements of packets from before the loss still make the window grow.
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
            # A paced burst leaves gaps in which packets of other streams pass.
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
    """Copies the cases that have left slow start into `out`."""
    to = ids[which]
    for kept, now in (out.window, window), (out.left, left), (out.before, before):
        kept[:, to] = now.take(which, 1)
    out.sent[to], out.finish[to] = sent[which], finish[which]
    following = np.where(mode.take(which, 1) == _DONE, np.inf, head.take(which, 1)).min(0)
    out.t[to] = np.where(np.isinf(following), free[which], np.maximum(free[which], following))


def bbr_startup(c: Cases, n: int) -> State:
    """Simulates BBR's startup, which ends when the path or the window is full.

    The rate doubles every RTT. It rises smoothly, because BBR paces its packets. A stream that starts φ RTTs
    later has a share that is smaller by the factor 2^-φ, and keeps that share.
    """
    phase = c.phase.T
    weight = 2.0**-phase
    total = weight.sum(0)
    full = np.minimum(n * c.window, c.b)
    t = BBR_STARTUP_LAG + np.log2(np.maximum(full / (INITIAL_WINDOW * np.log(2) * total), 2.0))
    # The transfer may end before the path is full.
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
