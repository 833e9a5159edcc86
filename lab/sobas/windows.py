"""`python3 -m lab.sobas.windows`: ways to change a receive window (docs/explanation/sobas-linux.md)."""

import json
import sys
from pathlib import Path

from ..validate.tool import Line, Program, scenario

PROGRAM = Path(__file__).with_name("window_program.py").resolve()
LARGEST = 64 << 20
#: Windows asked for after 1 and 3 s, bytes.
SMALL, GROWN = 600_000, 1_200_000
RTT_S = 0.02


def rate(rows: list[Line], begin: float, end: float) -> float:
    """The rate of received payload in Mb/s."""
    within = [row for row in rows if begin <= row["t"] <= end]
    first, last = within[0], within[-1]
    return float((last["received"] - first["received"]) * 8 / (last["t"] - first["t"]) / 1e6)


def window(rows: list[Line], begin: float, end: float) -> int:
    """The smallest window that the receiver offered, in bytes."""
    return int(min(row["rcv_wnd"] for row in rows if begin <= row["t"] <= end))


def main() -> int:
    """Prints a row for each means."""
    # The machine's /tmp is at /host/tmp in the guest.
    program = f"/host{PROGRAM}" if PROGRAM.is_relative_to("/tmp") else str(PROGRAM)
    python = sys.executable
    for means in ("clamp", "clamp-auto", "rcvbuf", "rcvbuf-auto", "lowat"):
        words = [python, program, "receive", "5001", means, str(LARGEST), str(SMALL), str(GROWN)]
        scene = scenario(
            {"rtt": f"{RTT_S * 1e3}ms", "rate": "970mbit", "queue": "16MB", "mtu": 1500},
            [
                Program("b", words, wait=True),
                Program("a", [python, program, "send", "5001", "cubic"], start="20ms"),
            ],
            sysctl={"net.ipv4.tcp_rmem": f"4096 131072 {LARGEST}"},
        )
        rows = json.loads(scene.stdout[0])
        told = [
            f"asked {size}: window {window(rows, end - 0.5, end)}, {rate(rows, end - 0.5, end):.0f} Mb/s"
            f" of {size * 8 / RTT_S / 1e6:.0f}"
            for size, end in ((SMALL, 3), (GROWN, 5))
        ]
        print(f"{means}: " + "; ".join(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
