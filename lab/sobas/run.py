"""Runs one transfer in the testbed and collects its result."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..validate.tool import Keys, Line, call

#: Where source files and copies live: in memory, so that no disk is the limit.
MEMORY = Path(os.environ.get("FULLPIPE_MEMORY", "/dev/shm"))
#: TCP's payload of a packet of 1,500 bytes, and the packet's on the line.
SEGMENT, FRAME = 1448, 1514
#: Between looks at the queue.
SAMPLE = "10ms"
#: The server listens before anyone calls.
START = "10ms"
#: So much later begins a transfer of the next seed: beside TCP whose windows are fixed nothing else is
#: drawn, and what comes of it hangs on when segments meet in the queue.
APART_MS = 7


def start(seed: int) -> str:
    """The start time of the sender for a seed."""
    return f"{int(START.removesuffix('ms')) + APART_MS * (seed - 1)}ms"


@dataclass(frozen=True)
class Way:
    """A way to size buffers."""

    name: str
    flags: Sequence[str]


SOBAS = Way("sobas", ["--buffer", "sobas", "--streams", "1"])
PAPER = Way("paper", ["--buffer", "sobas", "--sobas", "paper", "--streams", "1"])
LARGEST = Way("largest", ["--buffer", "1.07GB"])
TUNED = Way("auto", ["--buffer", "auto"])


def bdp(rate_bps: float, rtt_s: float) -> Way:
    """A buffer of one bandwidth-delay product."""
    return Way("bdp", ["--buffer", f"{round(rate_bps * rtt_s / 8)}B"])


@dataclass(frozen=True)
class Done:
    """The result of a transfer."""

    rate_bps: float
    """The payload over the time of the whole transfer, including the connection, in bit/s."""
    seconds: float
    retransmits: int
    drops: int
    """The packets dropped at the bottleneck's queue, including those of other traffic."""
    queue_ms: tuple[float, float]
    """The median and the 95th percentile of the queue's delay during the transfer, in ms."""
    notes: list[Line] = field(default_factory=list)
    """The actions of the controller."""


def source(size: int) -> Path:
    """A file of random bytes, made once."""
    file = MEMORY / f"fullpipe-sobas-{size}.bin"
    if not file.exists() or file.stat().st_size != size:
        # Others may be making it too.
        partial = file.with_suffix(f".{os.getpid()}")
        with partial.open("wb") as out:
            rest = size
            while rest > 0:
                out.write(os.urandom(min(rest, 16 << 20)))
                rest -= 16 << 20
            out.truncate(size)
        partial.rename(file)
    return file


def percentile(values: Sequence[float], share: float) -> float:
    """A percentile of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def programs_over(
    keys: Keys,
    programs: Sequence[Mapping[str, object]],
    size: int,
    seed: int = 1,
    changes: Sequence[Keys] = (),
    sysctl: Mapping[str, str] | None = None,
) -> list[Line]:
    """Runs programs over a path, with memory for a copy and the sources at end a; returns its events."""
    # JSON's strings, numbers and booleans are TOML's.
    lines = [f'space = "{size + (64 << 20)}B"', f"sample = {json.dumps(SAMPLE)}", f"seed = {seed}"]
    lines.append("[path]")
    lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in keys.items()]
    if sysctl:
        lines.append("[sysctl]")
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in sysctl.items()]
    lines += ["[[folders]]", 'end = "a"', f"path = {json.dumps(str(MEMORY))}"]
    tables = [("program", program) for program in programs] + [("change", change) for change in changes]
    for kind, table in tables:
        lines.append(f"[[{kind}]]")
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()]
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as scene:
        scene.write("\n".join(lines))
        scene.flush()
        found = call("lab", "run", scene.name, "--json", "--quiet")
    return [json.loads(line) for line in found.splitlines()]


#: The receiving end.
SERVE = ["fullpipe", "serve", "--guest", "--quiet", "--bind", "10.0.2.1", "--root", "/", "--insecure"]
TO = "fullpipe://10.0.2.1/space/"


#: In place of a congestion control: the command without a flag that says how to send.
TYPED = "typed"


#: The sending end's program, as typed.
COPY = ["fullpipe", "cp", "--insecure", "--no-encrypt", "--json"]


def sending(cc: str, way: Way) -> list[str]:
    """The sending end's program and flags."""
    return COPY if cc == TYPED else [*COPY, "--cc", cc, "--streams", "1", *way.flags]


def received(said: Sequence[Line]) -> list[tuple[float, int]]:
    """The receiver's samples of all streams together, as pairs of s and bytes."""
    latest: dict[int, int] = {}
    points: list[tuple[float, int]] = []
    for line in said:
        if line["kind"] != "sample" or line["end"] != "receiver":
            continue
        latest[int(line["stream"])] = int(line["bytes"])
        point = (float(line["t"]), sum(latest.values()))
        if points and points[-1][0] == point[0]:
            points.pop()
        points.append(point)
    return points


def transfer(
    keys: Keys,
    rate_bps: float,
    cc: str,
    way: Way,
    size: int,
    *,
    seed: int = 1,
    sysctl: Mapping[str, str] | None = None,
) -> Done:
    """Copies a file over a path, between hosts with some settings of the kernel."""
    programs: list[Mapping[str, object]] = [
        {"end": "b", "run": SERVE},
        {"end": "a", "start": start(seed), "run": [*sending(cc, way), "--", str(source(size)), TO]},
    ]
    found = programs_over(keys, programs, size, seed, sysctl=sysctl)
    said = [json.loads(line) for line in found[1]["stdout"].splitlines()]
    done = said[-1]
    queue = [line for line in found if line["kind"] == "queue"]
    delays = sorted(8e3 * line["backlog_bytes"] / rate_bps for line in queue)
    return Done(
        rate_bps=round(float(done["rate_bps"])),
        seconds=round(float(done["seconds"]), 6),
        retransmits=int(done["retransmits"]),
        drops=int(found[-1]["forward"]["drops"]),
        queue_ms=(round(percentile(delays, 0.5), 3), round(percentile(delays, 0.95), 3)),
        notes=[line for line in said if line["kind"] == "sobas"],
    )
