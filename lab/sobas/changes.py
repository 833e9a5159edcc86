"""`python3 -m lab.sobas.changes [--rtts 20,...] [--queues 100KB,...] [--ccs reno,...]`.

SOBAS beside traffic that starts in mid-transfer and ends again: 400 Mb/s of unresponsive packets (iperf3) on
970 Mb/s. What the transfer has of what is free, from 20 round trips and 2 s after each change on.
"""

import argparse
import itertools
import json
import shlex
import sys
from collections.abc import Mapping, Sequence

from ..validate.tool import Keys, Line, ToolError
from .run import SERVE, SOBAS, START, TO, programs_over, sending, source

#: Payload of a packet, what UDP has in one, and its bytes on the line.
SEGMENT, DATAGRAM, FRAME = 1448, 1472, 1514
RATE_BPS, OTHERS_BPS = 970e6, 400e6
#: Others are there from and until, seconds; the transfer goes on for as long again.
FROM_S, UNTIL_S = 3.0, 7.0
#: Over which a rate is taken, seconds, and what of the free rate it must be.
OVER_S, FULL = 1.0, 0.95


def samples(rtt_ms: float, queue: str, cc: str) -> tuple[list[tuple[float, int]], int]:
    """Seconds and bytes, as the receiver has them, and the segments that were sent again."""
    seconds = 2 * UNTIL_S - FROM_S + 40e-3 * rtt_ms
    size = int((RATE_BPS * seconds - OTHERS_BPS * (UNTIL_S - FROM_S)) / 8e6) * 1_000_000
    record = "/tmp/record.ndjson"
    copy = [*sending(cc, SOBAS), "--sample", "10ms", "--record", record, "--", str(source(size)), TO]
    others = ["iperf3", "--client", "b", "--udp", "--length", str(DATAGRAM), "--pacing-timer", "30"]
    others += ["--bitrate", str(round(OTHERS_BPS * DATAGRAM / FRAME)), "--time", f"{UNTIL_S - FROM_S:g}"]
    programs: list[Mapping[str, object]] = [
        {"end": "b", "run": SERVE},
        {"end": "b", "run": ["iperf3", "--server", "--one-off"]},
        {"end": "a", "start": START, "run": ["sh", "-c", f"{shlex.join(copy)} && cat {record}"]},
        {"end": "a", "start": f"{FROM_S:g}s", "run": others},
    ]
    keys: Keys = {"rtt": f"{rtt_ms:g}ms", "rate": f"{RATE_BPS:.0f}bit", "queue": queue, "mtu": 1500}
    found = programs_over(keys, programs, size)
    said: list[Line] = [json.loads(line) for line in found[2]["stdout"].splitlines()]
    again = next(int(line["retransmits"]) for line in said if line["kind"] == "done")
    lines = [line for line in said if line["kind"] == "sample" and line["end"] == "receiver"]
    return [(float(line["t"]), int(line["bytes"])) for line in lines], again


def rate_bps(points: Sequence[tuple[float, int]], begin: float) -> float:
    """From then on."""
    found = [point for point in points if begin <= point[0] <= begin + OVER_S]
    return (found[-1][1] - found[0][1]) * 8 / (found[-1][0] - found[0][0]) if len(found) > 1 else 0.0


def main() -> int:
    """Prints the table; 1 if a row misses."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.sobas.changes", description=__doc__)
    parser.add_argument("--rtts", default="20,60", help="milliseconds")
    parser.add_argument("--queues", default="100KB,300KB,1MB")
    parser.add_argument("--ccs", default="reno,cubic,htcp,scalable")
    args = parser.parse_args()
    good = True
    print("| RTT | queue | cc | alone | beside others | alone again | sent again | |", flush=True)
    print("|---|---|---|---|---|---|---|---|")
    payload = SEGMENT / FRAME
    for rtt, queue, cc in itertools.product(
        args.rtts.split(","), args.queues.split(","), args.ccs.split(",")
    ):
        points, again = samples(float(rtt), queue, cc)
        settled = 20e-3 * float(rtt) + 2
        # A record's time begins some round trips after the scenario's.
        shares = [
            rate_bps(points, begin) / (free * payload)
            for begin, free in (
                (FROM_S - OVER_S - 0.2, RATE_BPS),
                (FROM_S + settled, RATE_BPS - OTHERS_BPS),
                (UNTIL_S + settled, RATE_BPS),
            )
        ]
        ok = min(shares[1:]) >= FULL
        good &= ok
        figures = " | ".join(f"{share:.1%}" for share in shares)
        print(f"| {rtt} ms | {queue} | {cc} | {figures} | {again} | {'yes' if ok else 'NO'} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ToolError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)
