"""Prints the result of `fullpipe campaign run --find-best`."""

import json
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from fullpipe.campaign.adaptive import WITHIN, Best
from fullpipe.cli.console import OutputConsole
from fullpipe.labels import conditions, gbps, transport_name
from fullpipe.queues import Queue, label_queues
from fullpipe.run import TUNED, LabPath, RunSpec
from fullpipe.units import format_rate, format_size, format_time


def _transport(run: RunSpec) -> dict[str, Any]:
    pacing = None if run.pacing is None else format_rate(run.pacing)
    return {"cc": run.cc, "streams": run.streams, "buffer": run.buffer_text, "pacing": pacing}


def _workload(run: RunSpec) -> dict[str, str]:
    if run.size is not None:
        return {"size": format_size(run.size)}
    return {"duration": format_time(run.duration or 0)}


def _place(path: LabPath) -> tuple[int, int, tuple[float, int | None]]:
    return path.rate, path.mtu, (path.rtt / 1e6, path.queue)


def _queues(found: Sequence[Best]) -> dict[tuple[int, int, tuple[float, int | None]], Queue]:
    """The label of each path's queue, as in a profile."""
    places = [_place(best.run.path) for best in found if isinstance(best.run.path, LabPath)]
    labels: dict[tuple[int, int, tuple[float, int | None]], Queue] = {}
    for rate, mtu in dict.fromkeys((rate, mtu) for rate, mtu, _ in places):
        seen = [at for *same, at in places if same == [rate, mtu]]
        labels |= {(rate, mtu, at): queue for at, queue in label_queues(rate, mtu, seen).items()}
    return labels


def _title(run: RunSpec, queue: Queue) -> str:
    """Describes path and workload with the words of a profile."""
    path = run.path
    if isinstance(path, str):
        about: dict[str, Any] = {"host": path}
    else:
        about = {"host": None, "rate_bps": path.rate, "queue_bdp": queue.bdp}
        about["queue"] = None if queue.size is None else format_size(queue.size)
        about |= {
            name: getattr(path, name) for name in ("mtu", "modality", "kernel", "cross", "loss", "loss_back")
        }
        rare = {name: getattr(path, name) for name in ("reorder", "duplicate", "corrupt")}
        rare |= {f"{name}_ms": (getattr(path, name) or 0) / 1e6 for name in ("jitter", "host_noise")}
        rare |= {name: host for name in ("host_a", "host_b") if (host := getattr(path, name)) != TUNED}
        about |= {name: value for name, value in rare.items() if value}
    direction = {"direction": "receive"} if run.reverse else {}
    return conditions({"path": about | direction, "workload": _workload(run)})


def tell_best(found: Sequence[Best]) -> None:
    """Prints a table of the chosen transport of each path condition and its probability to be best."""
    console = OutputConsole(120)
    labels = _queues(found)
    by_title: dict[str, list[Best]] = {}
    for best in found:
        queue = labels[_place(best.run.path)] if isinstance(best.run.path, LabPath) else Queue()
        by_title.setdefault(_title(best.run, queue), []).append(best)
    for title, members in by_title.items():
        console.print(f"[bold]{escape(title)}[/bold]", highlight=False)
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("RTT, ms", "best transport", "Gb/s", "runs", "sure"):
            table.add_column(name, justify="left" if name == "best transport" else "right", no_wrap=True)
        for best in members:
            rtt = f"{best.run.path.rtt / 1e6:g}" if isinstance(best.run.path, LabPath) else ""
            mean = "none succeeded" if best.mean_bps is None else gbps(best.mean_bps)[0]
            name = transport_name(_transport(best.run))
            table.add_row(rtt, name, mean, str(best.n), f"{best.sure:.0%}")
        console.print(table)
    console.print(
        "sure: the probability, by the model that chose the runs, that no other transport of the campaign "
        f"is more than {WITHIN:.0%} faster",
        highlight=False,
    )


def best_events(found: Sequence[Best]) -> list[str]:
    """The chosen transports as lines of JSON."""
    return [
        json.dumps(
            {
                "event": "best",
                "path": str(best.run.path),
                "rtt_ms": best.run.path.rtt / 1e6 if isinstance(best.run.path, LabPath) else None,
                "workload": _workload(best.run),
                "direction": "receive" if best.run.reverse else "send",
                "transport": _transport(best.run),
                "mean_bps": best.mean_bps,
                "n": best.n,
                "sure": round(best.sure, 3),
            }
        )
        for best in found
    ]
