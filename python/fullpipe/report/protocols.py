"""Puts into words which protocols carried the runs of a report: TCP, UDT, or both.

A report leaves out runs over plain UDP, as a profile does.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from fullpipe.run import UDP, UDT


def reported(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs that a report shows: all but those over plain UDP."""
    return runs.filter(pl.col("cc") != UDP)


@dataclass(frozen=True)
class Protocols:
    """The protocols of a set of runs, of which there is at least one."""

    tcp: bool
    udt: bool

    @classmethod
    def of(cls, ccs: Iterable[str]) -> "Protocols":
        """The protocols of runs, by the names in the place of their congestion controls."""
        found = set(ccs)
        return cls(tcp=bool(found - {UDT}), udt=UDT in found)

    def choose(self, tcp: str, udt: str, both: str) -> str:
        """The text for TCP alone, for UDT alone, or for both."""
        if self.tcp and self.udt:
            return both
        return udt if self.udt else tcp

    @property
    def names(self) -> str:
        """The names of the protocols."""
        return self.choose("TCP", "UDT", "TCP and UDT")

    @property
    def deliver(self) -> str:
        """The names of the protocols as the subject of "deliver"."""
        return self.choose("TCP delivers", "UDT delivers", "TCP and UDT deliver")

    @property
    def transport(self) -> str:
        """What the runs have in the place of a transport's congestion control and buffers."""
        return self.choose(
            "a congestion control, a number of parallel streams, and a socket buffer for each",
            "UDT, with its own congestion control or at a given rate, with a number of parallel streams and "
            "a buffer for each",
            "a congestion control of TCP, or UDT with its own or at a given rate, with a number of parallel "
            "streams and a buffer for each",
        )

    @property
    def sent_again(self) -> str:
        """What the counts of data that were sent again count."""
        return self.choose(
            "segments sent again", "packets sent again", "segments (over UDT packets) sent again"
        )

    @property
    def bottlenecks(self) -> dict[str, str]:
        """What each bottleneck of a record means."""
        return {
            "path": "the path was full",
            "cwnd": self.choose(
                "the congestion window: ramping up, or recovering from loss",
                "UDT's congestion control: raising its rate, or recovering from loss",
                "the congestion window, or UDT's congestion control: ramping up, or recovering from loss",
            ),
            "rwnd": "the receiver's window",
            "sndbuf": "the sender's buffer",
            "pacing": "the requested pacing rate"
            + (", or at a given rate of UDT losses or a late sender" if self.udt else ""),
            "cpu": "a processor",
            "disk_read": "reading at the source of a copy",
            "disk_write": "writing at the destination of a copy",
        }

    @property
    def auto_buffer(self) -> str:
        """The title of a panel of runs whose buffer has no given size."""
        return self.choose(
            "Buffer chosen by the kernel", "Buffer chosen by fullpipe", "Buffer without a given size"
        )


def congestion_controls(runs: pl.DataFrame) -> str:
    """Lists the congestion controls of runs: those of TCP by name, and what UDT used."""
    over_udt = runs.filter(pl.col("cc") == UDT)["pacing_bps"]
    found = sorted(set(runs["cc"].drop_nulls()) - {UDT})
    if over_udt.null_count():
        found.append("UDT's own")
    if over_udt.drop_nulls().len():
        found.append("none (UDT at a given rate)")
    return ", ".join(found)
