"""Which queue a profile was measured with.

A record knows its queue in bytes. Over several RTTs a queue may follow the bandwidth-delay product, or
stay the same; only the RTTs together tell which.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fullpipe.tcp import ETHERNET_HEADER

TOLERANCE = 0.01


@dataclass(frozen=True)
class Queue:
    """A queue as a multiple of the BDP, in bytes, or neither."""

    bdp: float | None = None
    size: int | None = None


def _near(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= TOLERANCE * wanted


def label_queues(
    rate_bps: int | None, mtu: int | None, seen: Iterable[tuple[float, int | None]]
) -> dict[tuple[float, int | None], Queue]:
    """Names the queue of each pair of RTT (ms) and queue (bytes) that was seen with one rate and MTU.

    The name that covers most RTTs wins, a multiple of the BDP before bytes. Queues that share nothing
    are one unnamed kind where no RTT has two of them.
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
        choices: list[tuple[Queue, list[tuple[float, int | None]]]] = []
        # The longest RTT gives the multiple least spoilt by rounding to whole packets.
        for rtt, size in reversed(left):
            if bdp(rtt) > 0:
                multiple = float(f"{(size or 0) / bdp(rtt):.3g}")
                choices.append((Queue(bdp=multiple), list(filter(follows(multiple), left))))
        choices += [(Queue(size=size), [p for p in left if p[1] == size]) for _, size in left]
        queue, covered = max(choices, key=lambda choice: len({rtt for rtt, _ in choice[1]}))
        rtts = [rtt for rtt, _ in left]
        if len(covered) == 1 and len(left) > 1 and len(set(rtts)) == len(rtts):
            queue, covered = Queue(), left
        labels |= dict.fromkeys(covered, queue)
        left = [pair for pair in left if pair not in labels]
    return labels
