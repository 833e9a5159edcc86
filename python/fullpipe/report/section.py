"""One section of the report: the runs of one set of conditions, and the data of its figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullpipe.analysis import Source, Sustained, sustained
from fullpipe.analysis.source import read_traces
from fullpipe.dynamics import Traces
from fullpipe.labels import rtts
from fullpipe.profile import Group
from fullpipe.record import read_record
from fullpipe.report import commands
from fullpipe.report.figures import largest_buffers, most_streams, share_of
from fullpipe.report.panels import maps_shown
from fullpipe.report.protocols import Protocols

MAX_TRACES = 18
"""The most runs that the figure of traces shows."""


@dataclass(frozen=True)
class Section:
    """The input of one section.

    Attributes:
        folder: The folder of the records.
        source: The records of all sections.
        members: The section's transports, each with its runs.
        analysis: The section of `analysis.json`, with at least the parts that are drawn.
    """

    folder: Path
    source: Source
    members: list[Group]
    analysis: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The description of the conditions."""
        return str(self.analysis["conditions"])

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The profile's entries."""
        return [group.entry for group in self.members]

    @property
    def protocols(self) -> Protocols:
        """The protocols of the section's transports."""
        return Protocols.of(entry["transport"]["cc"] for entry in self.entries)

    def measure_commands(self) -> list[str]:
        """The commands that repeat the runs in the figure of traces."""
        files = dict(self.source.runs.runs.select("id", "file").iter_rows())
        whole = self.folder.is_dir()
        found = [self.folder / files[id_] if whole else self.folder for _, _, id_ in self._drawn()]
        return [commands.measure(read_record(file).header) for file in found]

    def traced(self) -> list[tuple[float, dict[str, Any], str]]:
        """RTT, transport and id of the runs of which the figure of traces shows at most :data:`MAX_TRACES`.

        They are those of each congestion control with its largest buffer and, of these, the most streams, at
        a short, a middle and the longest RTT.
        """
        entries = most_streams(largest_buffers(self.entries))
        every = rtts(entries)
        picks = sorted({every[len(every) // 4], every[len(every) * 4 // 7], every[-1]})
        seeds = dict(self.source.runs.runs.select("id", "seed").iter_rows())
        found: list[tuple[float, dict[str, Any], str]] = []
        for rtt in picks:
            for group in self.members:
                transport = group.entry["transport"]
                if group.entry in entries and rtt in group.ids:
                    found.append((rtt, transport, min(group.ids[rtt], key=lambda id_: (seeds[id_], id_))))
        return found

    def _drawn(self) -> list[tuple[float, dict[str, Any], str]]:
        return share_of(self.traced(), lambda run: run[0], MAX_TRACES)

    def _traces_of(self, ids: Sequence[str]) -> dict[str, Traces]:
        found = read_traces(self.source.runs.runs, self.source.samples, ids)
        return {id_: trace for id_, trace in found if not isinstance(trace, str)}

    def traces(self) -> list[tuple[float, dict[str, Any], Traces]]:
        """RTT in ms, transport and traces of each run in the figure of traces; none without samples."""
        picked = self._drawn()
        found = self._traces_of([id_ for _, _, id_ in picked])
        return [(rtt, transport, found[id_]) for rtt, transport, id_ in picked if id_ in found]

    def maps(self) -> list[tuple[Any, Any, Sustained]]:
        """Transport, run and sustained traces of each Poincaré map; none without samples."""
        picked = maps_shown(self.analysis)
        found = self._traces_of([run["id"] for _, run in picked])
        return [(entry, run, sustained(found[run["id"]])) for entry, run in picked if run["id"] in found]
