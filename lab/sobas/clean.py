"""`python3 -m lab.sobas.clean [--rates 1gbit,...] [--rtts 10,...] [--queues 64KB,...] [--ccs reno,...]`.

Tests SOBAS on paths without cross traffic: the start-up time of one stream, beside 1.5 times that of doubling
per round trip from ten segments, and its share of the capacity afterwards. Packets have 1,500 bytes; each
transfer lasts some seconds beyond its start-up.
"""

import argparse
import itertools
import json
import math
import tempfile
from pathlib import Path

from ..validate.tool import Line, call, end
from .run import FRAME, MEMORY, SEGMENT, source

#: The initial window of TCP in packets (RFC 6928).
FIRST = 10
RATES = {"1gbit": 1e9, "10gbit": 1e10}
#: Seconds at the full rate, beside as much as four round trips carry: starting up takes half of that.
LASTS_S = 2.0
FULL = 0.95


def size_of(rate: str, rtt_ms: float) -> int:
    """The size in bytes of a transfer that lasts some seconds beyond its start-up."""
    return int(RATES[rate] / 8 * (LASTS_S + 4e-3 * rtt_ms)) // 1_000_000 * 1_000_000


def copy(rate: str, rtt_ms: float, queue: str, cc: str) -> tuple[list[Line], int]:
    """The receiver's samples, and the number of resent segments."""
    file = source(size_of(rate, rtt_ms))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        record = Path(folder) / "record.ndjson"
        path = f"lab:rtt={rtt_ms:g}ms,rate={rate},queue={queue},mtu=1500:{folder}/"
        flags = ["--no-encrypt", "--buffer", "sobas", "--cc", cc, "--streams", "1", "--sample", "10ms"]
        out = call("cp", "--json", *flags, "--record", str(record), str(file), path)
        done = json.loads(out.splitlines()[-1])
        with record.open() as lines:
            all_lines = [json.loads(line) for line in lines]
    samples = [line for line in all_lines if line["kind"] == "sample" and line["end"] == "receiver"]
    return samples, int(done["retransmits"])


def started(samples: list[Line], rate_bps: float, rtt_s: float) -> tuple[float, float]:
    """When a round trip (or 50 ms) first had 95% of the capacity, seconds; the part from then to the end."""
    points = [(float(line["t"]), int(line["bytes"])) for line in samples]
    over = max(rtt_s, 0.05)
    ends = iter(points)
    end = next(ends, None)
    for begin in points:
        while end is not None and end[0] < begin[0] + over:
            end = next(ends, None)
        if end is None:
            break
        if (end[1] - begin[1]) * 8 / (end[0] - begin[0]) >= FULL * rate_bps:
            rest = next(point for point in reversed(points) if point[1] < points[-1][1])
            return begin[0], (rest[1] - begin[1]) * 8 / (rest[0] - begin[0]) / rate_bps
    return math.inf, 0.0


def main() -> int:
    """Prints the table; 1 if a row misses its bar."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.sobas.clean", description=__doc__)
    parser.add_argument("--rates", default="1gbit,10gbit")
    parser.add_argument("--rtts", default="10,50,183", help="milliseconds")
    parser.add_argument("--queues", default="64KB,256KB,1MB")
    parser.add_argument("--ccs", default="reno,cubic,htcp,scalable")
    args = parser.parse_args()
    good = True
    print(
        "| rate | RTT | queue | cc | started after | allowed | then of capacity | sent again | |", flush=True
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for rate, rtt in itertools.product(args.rates.split(","), args.rtts.split(",")):
        capacity, rtt_s = RATES[rate] * SEGMENT / FRAME, float(rtt) / 1e3
        allowed = 1.5 * rtt_s * math.log2(max(capacity * rtt_s / 8 / SEGMENT / FIRST, 2))
        for queue, cc in itertools.product(args.queues.split(","), args.ccs.split(",")):
            samples, again = copy(rate, float(rtt), queue, cc)
            begin, share = started(samples, capacity, rtt_s)
            ok = share >= FULL and begin <= allowed
            good &= ok
            figures = f"{begin:.2f} s | {allowed:.2f} s | {share:.1%} | {again}"
            print(f"| {rate} | {rtt} ms | {queue} | {cc} | {figures} | {'yes' if ok else 'NO'} |", flush=True)
        # All sources together would fill the memory file system.
        source(size_of(rate, float(rtt))).unlink()
    return 0 if good else 1


if __name__ == "__main__":
    end(main)
