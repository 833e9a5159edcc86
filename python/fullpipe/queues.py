"""Finds out how the queue of a profile was given: in bytes, or as a multiple of the BDP.

A record has its queue in bytes. Over several RTTs a queue may grow with the bandwidth-delay product or
stay constant; only the records of all RTTs together show which.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fullpipe.tcp import ETHERNET_HEADER

TOLERANCE = 0.01
"""Two queues count as equal if they differ by at most this fraction."""


@dataclass(frozen=True)
class Queue:
    """A queue as a multiple of the BDP (`bdp`), in bytes (`size`), or unknown (both None)."""

    bdp: float | None = None
    size: int | None = None


def _near(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= TOLERANCE * wanted


def label_queues(
    rate_bps: int | None, mtu: int | None, seen: Iterable[tuple[float, int | None]]
) -> dict[tuple[float, int | None], Queue]:
    """Finds the label of each pair of RTT and queue that was measured with one rate and MTU.

    The label that fits the most RTTs wins; if two fit equally many, a multiple of the BDP wins over bytes.
    Queues that no label joins get the unknown label together if each RTT has only one of them.

    Args:
        rate_bps: The rate of the path in bit/s; None for a real path.
        mtu: The MTU of the path in bytes; None for a real path.
        seen: Pairs of RTT in ms and queue in bytes.

    Returns:
        The label of each pair.
    """
    left = sorted(set(seen), key=lambda pair: (pair[0], pair[1] or 0))
    if rate_bps is None or mtu is None:
        return dict.fromkeys(left, Queue())
    packet = mtu + ETHERNET_HEADER

    def bdp(rtt: float) -> float:
        return rate_bps * rtt / 8e3

    def follows(multiple: float) -> Callable[[tuple[float, int | None]], bool]:
        return lambda pair: _near(pair[1] or 0, max(multiple * bdp(pair[0]), packet))

    labels: dict[tuple[float, int | None], Queue] = {}
    while left:
        candidates: list[tuple[Queue, list[tuple[float, int | None]]]] = []
        # Rounding to whole packets disturbs the multiple least at the longest RTT.
        for rtt, size in reversed(left):
            if bdp(rtt) > 0:
                multiple = float(f"{(size or 0) / bdp(rtt):.3g}")
                candidates.append((Queue(bdp=multiple), list(filter(follows(multiple), left))))
        candidates += [(Queue(size=size), [p for p in left if p[1] == size]) for _, size in left]
        queue, covered = max(candidates, key=lambda choice: len({rtt for rtt, _ in choice[1]}))
        rtts = [rtt for rtt, _ in left]
        if len(covered) == 1 and len(left) > 1 and len(set(rtts)) == len(rtts):
            queue, covered = Queue(), left
        labels |= dict.fromkeys(covered, queue)
        left = [pair for pair in left if pair not in labels]
    return labels
