"""Keeps what the verdicts rest on, one row per run and 1 Hz traces, as small Parquet files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from fullpipe import read_runs
from fullpipe.dynamics import drop_ramp, lyapunov, poincare, resample, traces
from fullpipe.errors import RecordError, UsageError
from fullpipe.model import decompose
from fullpipe.record import list_records, read_header
from fullpipe.runs import Runs
from numpy.typing import NDArray

from lab.papers.cells import AXES, FOLDER, Cells

MAX_BYTES = 20_000_000
"""The most that the kept files may take together."""
QUANTITIES: dict[str, pl.DataType] = {
    "goodput_gbps": pl.Float64(),
    "ramp_s": pl.Float64(),
    "variation": pl.Float64(),
    "exponent": pl.Float64(),
    "exponent_size": pl.Float64(),
    "map_correlation": pl.Float64(),
    "map_width": pl.Float64(),
}
"""What is measured of each run, null where a run does not show it.

`ramp_s` is the length of ramp-up. The rest are of the aggregate 1 Hz trace after ramp-up: standard deviation
over mean, the Lyapunov exponent per second and its size, and of the Poincaré map the correlation of its axes,
and its width across the diagonal over the mean.
"""
_LABELS: dict[str, pl.DataType] = {
    "campaign": pl.String(),
    "id": pl.String(),
    "seed": pl.Int64(),
    "kernel_version": pl.String(),
    "machine": pl.String(),
}
"""What else is known of a run. `machine` is the name of the host that made it; null if that was not kept."""
_TEXT = ("modality", "host", "kernel", "cc", "buffer", "program")
_INTEGERS = ("mtu", "streams", "size_gb")
RUNS: dict[str, pl.DataType] = {
    **_LABELS,
    **{a: pl.String() if a in _TEXT else pl.Int64() if a in _INTEGERS else pl.Float64() for a in AXES},
    **QUANTITIES,
}
TRACES: dict[str, pl.DataType] = {
    "id": pl.String(),
    "stream": pl.UInt8(),
    "second": pl.UInt16(),
    "mbps": pl.Float32(),
    "naks": pl.UInt32(),
}
"""`naks` are the negative acknowledgements that UDT's sender received in that second; null for TCP."""
_LATE_S = 0.05
"""The most by which a sample is taken late."""
_LEAST_POINTS = 40
"""The fewest seconds after ramp-up from which dynamics are estimated."""


@dataclass(frozen=True)
class Kept:
    """The kept runs and traces."""

    runs: pl.DataFrame
    traces: pl.DataFrame

    @property
    def cells(self) -> Cells:
        """The runs, without repeats of one run that two campaigns share."""
        return Cells(self.runs.unique([*AXES, "seed", "goodput_gbps"], keep="first", maintain_order=True))

    @classmethod
    def read(cls, folder: Path = FOLDER) -> "Kept":
        """Reads what is kept; nothing is kept before the first campaign."""
        return cls(_read(folder / "runs.parquet", RUNS), _read(folder / "traces.parquet", TRACES))

    def write(self, folder: Path = FOLDER) -> int:
        """Writes both files and returns their size in bytes.

        Raises:
            UsageError: They would take more than :data:`MAX_BYTES`.
        """
        folder.mkdir(parents=True, exist_ok=True)
        frames = {"runs": self.runs, "traces": self.traces}
        drafts = {name: folder / f".{name}.parquet" for name in frames}
        try:
            for name, frame in frames.items():
                frame.write_parquet(drafts[name], compression="zstd", compression_level=19)
            size = sum(draft.stat().st_size for draft in drafts.values())
            if size > MAX_BYTES:
                raise UsageError(
                    f"the kept records would take {size / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:g} MB"
                )
            for name, draft in drafts.items():
                draft.replace(folder / f"{name}.parquet")
        finally:
            for draft in drafts.values():
                draft.unlink(missing_ok=True)
        return size


def _read(file: Path, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """A kept file; columns that it lacks, since they were added later, are null."""
    found = pl.read_parquet(file) if file.exists() else pl.DataFrame(schema=schema)
    lacks = [pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in found.columns]
    return found.with_columns(lacks).select(schema.keys())


def _machines(folder: Path) -> dict[str, str]:
    """The name of the host that made each run, by the run's name, as far as the records have it."""
    found: dict[str, str] = {}
    for file in list_records(folder):
        header = read_header(file) or {}
        host = (header.get("real") or {}).get("host")
        if isinstance(host, str):
            found[header["id"]] = host
    return found


def dynamics(aggregate_bps: NDArray[np.float64]) -> dict[str, float | None]:
    """The quantities of a 1 Hz trace after ramp-up; None for what a short or flat trace does not show."""
    mean = float(aggregate_bps.mean())
    if len(aggregate_bps) < _LEAST_POINTS or mean == 0:
        return {}
    if np.ptp(aggregate_bps) == 0:
        return {"variation": 0.0}
    found = poincare(aggregate_bps)
    try:
        exponent = lyapunov(aggregate_bps).exponent
    except UsageError:
        # It takes more values, and more different ones.
        exponent = np.nan
    known = bool(np.isfinite(exponent))
    return {
        "variation": float(aggregate_bps.std(ddof=1)) / mean,
        "exponent": exponent if known else None,
        "exponent_size": abs(exponent) if known else None,
        "map_correlation": found.correlation,
        "map_width": found.sd1 / mean,
    }


def _axes(runs: pl.DataFrame, build: str) -> pl.DataFrame:
    rate = pl.col("rate_bps").cast(pl.Float64)
    queue_bdp = (pl.col("queue_bytes") * 8 / (rate * pl.col("rtt_ms") / 1e3)).round(3)
    hosts = [pl.col(name).fill_null("tuned") for name in ("host_a", "host_b")]
    return runs.select(
        "id",
        "seed",
        pl.col("kernel_sender").alias("kernel_version"),
        "rtt_ms",
        (rate / 1e9).alias("rate_gbps"),
        queue_bdp.alias("queue_bdp"),
        "mtu",
        pl.col("loss").fill_null(0.0),
        pl.col("modality").fill_null("none"),
        pl.col("host_noise_ms").fill_null(0.0),
        pl.when(hosts[0] == hosts[1]).then(hosts[0]).otherwise(pl.format("{} to {}", *hosts)).alias("host"),
        pl.col("kernel_axis").fill_null("default").alias("kernel"),
        "cc",
        "streams",
        "buffer",
        (pl.col("size_bytes") / 1e9).round().fill_null(0).alias("size_gb"),
        pl.col("duration_s").fill_null(0.0),
        pl.format("{} {}", "program", pl.lit(build)).alias("program"),
        (pl.col("goodput_bps") / 1e9).alias("goodput_gbps"),
    )


def _traced(runs: Runs, id_: str) -> tuple[dict[str, float | None], pl.DataFrame]:
    """The quantities of a run of fixed duration, and its rows of `traces`."""
    trace = traces(runs, id_)
    found: dict[str, float | None] = {}
    phases = decompose(trace.t_s, trace.aggregate, start_s=trace.start_s)
    if phases.sustained:
        found["ramp_s"] = phases.ramp_s
    t_s, aggregate = resample(trace.t_s, trace.aggregate, 1.0, start_s=trace.start_s)
    if phases.sustained:
        found |= dynamics(drop_ramp(t_s, aggregate)[1])
    each = [resample(trace.t_s, one, 1.0, start_s=trace.start_s)[1] for one in trace.per_stream]
    rows = [
        pl.DataFrame(
            {"id": id_, "stream": i, "second": range(1, len(rate) + 1), "mbps": (rate / 1e6).round(1)}
        )
        for i, rate in enumerate(each)
    ]
    naks = _naks(runs, id_, trace.start_s)
    table = pl.concat(rows).cast({name: kind for name, kind in TRACES.items() if name != "naks"})
    return found, table.join(naks, on=["stream", "second"], how="left").select(TRACES.keys())


def _naks(runs: Runs, id_: str, start_s: float) -> pl.DataFrame:
    """UDT's negative acknowledgements by `stream` and `second` of a trace that starts at an instant."""
    sent = runs.samples.filter(pl.col("id") == id_, pl.col("end") == "sender")
    # A sample counts what came since the one before, and is taken a little after the second is over.
    second = (pl.col("t") - start_s - _LATE_S).ceil().clip(1).cast(pl.UInt16)
    # A folder may have runs over TCP beside those over UDT.
    naks = pl.col("pktRecvNAK") if "pktRecvNAK" in sent.columns else pl.lit(None, pl.UInt32)
    counted = sent.with_columns(naks=naks, stream=pl.col("stream").cast(pl.UInt8), second=second)
    counted = counted.filter(pl.col("naks").is_not_null())
    return counted.group_by("stream", "second").agg(pl.col("naks").sum().cast(pl.UInt32))


def read_campaign_records(folder: Path, build: str) -> Kept:
    """Reads a campaign's folder, finished or not.

    Args:
        folder: The folder with the records; its name is the campaign's.
        build: The commit of the program that made them.

    Raises:
        RecordError: There are no runs in it.
    """
    runs = read_runs(folder)
    if runs.runs.is_empty():
        raise RecordError(f"{folder}: has no runs; run its campaign first")
    rows, traced, machines = [], [pl.DataFrame(schema=TRACES)], _machines(folder)
    for row in _axes(runs.runs, build).iter_rows(named=True):
        found: dict[str, float | None] = {}
        if row["duration_s"]:
            found, trace = _traced(runs, row["id"])
            traced.append(trace)
        labels = {"campaign": folder.name, "machine": machines.get(row["id"])}
        rows.append(labels | dict.fromkeys(QUANTITIES) | row | found)
    return Kept(pl.DataFrame(rows, schema=RUNS), pl.concat(traced))


def pack(folders: list[Path], build: str, into: Path = FOLDER, add: bool = False) -> int:
    """Adds campaigns to what is kept, in the place of earlier records of the same campaigns.

    Args:
        folders: The campaigns' folders.
        build: The commit of the program that made them.
        into: The folder of the kept files.
        add: Whether earlier records of the same campaigns stay, but for those of the same runs.

    Returns:
        The size of the kept files in bytes.
    """
    new = [read_campaign_records(folder, build) for folder in folders]
    old = Kept.read(into)
    replaced = pl.col("campaign").is_in([folder.name for folder in folders])
    if add:
        replaced &= pl.col("id").is_in(pl.concat([one.runs["id"] for one in new]).implode())
    others = old.runs.filter(~replaced)
    runs = pl.concat([others, *(one.runs for one in new)]).sort("campaign", "id")
    ids = runs.filter(pl.col("duration_s") > 0)["id"]
    traced = pl.concat([old.traces.join(others, on="id", how="semi"), *(one.traces for one in new)])
    traced = (
        traced.filter(pl.col("id").is_in(ids.implode()))
        .unique(["id", "stream", "second"])
        .sort("id", "stream", "second")
    )
    return Kept(runs, traced).write(into)
