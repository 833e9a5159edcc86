"""Compares what `fullpipe select` predicts for hosts with a distribution's limits with runs in the testbed.

The shipped profile's runs are between hosts that grant any buffer. For a sample of its kinds of path, this
selects for stock hosts, measures that transport between such hosts, for as long as the profile's runs took,
and prints the ratio. Virtual time: one run of a path is exact.
"""

from __future__ import annotations

import json
import subprocess
import sys

from common import FULLPIPE, verdict

#: Round-trip times, ms; and rate, queue in bandwidth-delay products, packet size and loss of the paths.
RTTS = (11.8, 45.6, 91.6, 366.0)
PATHS = (
    ("10gbit", 1.0, 9000, "0"),
    ("10gbit", 0.1, 9000, "0"),
    ("10gbit", 1.0, 9000, "1e-5"),
    ("1gbit", 1.0, 9000, "0"),
)
#: Most by which a prediction may be wrong, as a fraction of the rate measured.
BAR = 0.1


def ask(*words: str) -> dict[str, object]:
    """The last object that a command of fullpipe prints with `--json`."""
    done = subprocess.run([FULLPIPE, *words, "--json"], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    """Prints the table; 1 if a prediction is further off than the bar."""
    print(
        "| path | transport | predicted, Gb/s | measured | ratio | |\n|---|---|---|---|---|---|", flush=True
    )
    good = True
    for rate, bdp, mtu, loss in PATHS:
        for rtt in RTTS:
            bits = float(rate.removesuffix("gbit")) * 1e9 * rtt / 1e3
            path = f"rtt={rtt:g}ms,rate={rate},queue={int(bdp * bits / 8)}B,mtu={mtu},loss={loss},host=stock"
            selection = ask("select", f"lab:{path}", "--transport", "tcp")
            choice = dict(selection["choice"])  # type: ignore[call-overload]
            transport, expected = choice["transport"], choice["expected"]["mean_bps"]
            assert choice["expected"].get("predicted"), "the profile has runs between such hosts"
            how = ["--cc", transport["cc"], "-n", str(transport["streams"]), "--buffer", transport["buffer"]]
            run = ask("measure", f"lab:{path}", *how, "--duration", "10s")
            ratio = expected / float(str(run["goodput_bps"]))
            ok = abs(ratio - 1) <= BAR
            good &= ok
            name = f"{transport['cc']} × {transport['streams']}, {transport['buffer']}"
            measured = float(str(run["goodput_bps"])) / 1e9
            print(
                f"| {path} | {name} | {expected / 1e9:.3f} | {measured:.3f} | {ratio:.2f} | {verdict(ok)} |",
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
