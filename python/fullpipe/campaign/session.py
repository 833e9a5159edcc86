"""Executes the runs of one campaign on one cluster; notes failures and reports each run that ends."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from distributed import Client

from fullpipe.campaign.cost import model_s
from fullpipe.campaign.execute import Outcome, record_path
from fullpipe.campaign.progress import Reporter
from fullpipe.campaign.schedule import run_all
from fullpipe.campaign.state import note_failure
from fullpipe.record import goodput_bps, read_outcome
from fullpipe.run import RunSpec


@dataclass
class Session:
    """A cluster, a folder for records, and the outcome of the runs so far."""

    client: Client
    folder: Path
    binary: str | None
    """The path of `fullpipe`; None to let each worker find its own."""
    limit_s: float | None
    reporter: Reporter
    factor: float
    """The real time of runs on this machine over their modelled time."""
    ran: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """How often runs failed, by reason."""

    def _ended(self, run: RunSpec, outcome: Outcome) -> None:
        self.ran += 1
        if not outcome.ok:
            self.failures[outcome.reason] += 1
            note_failure(self.folder, run, outcome)
        self.reporter.ended(
            outcome.name, model_s(run) * self.factor, outcome.ok, outcome.reason, outcome.wall_s
        )

    def run(self, runs: Sequence[RunSpec]) -> None:
        """Executes runs and returns when the last has ended."""
        run_all(self.client, runs, self.folder.absolute(), self.binary, self.limit_s, self._ended)

    def goodput_bps(self, run: RunSpec) -> float | None:
        """The goodput of a run that has ended, in bit/s; None if it failed or has no rate."""
        result = read_outcome(record_path(run, self.folder))
        return None if result is None else goodput_bps(result)
