"""How far predictions without the seed are off, from measured grids, as docs/explanation/model.md says."""

import polars as pl
import pytest
from conftest import ROOT
from grids import measured

from fullpipe.flatten import RUNS_SCHEMA
from fullpipe.model.check import ALL, error_table
from fullpipe.run import LabPath

PAGE = ROOT / "docs" / "explanation" / "model.md"


def _runs(grid: str) -> pl.DataFrame:
    rows = []
    for run, goodput in measured(grid).goodput.items():
        path = run.path
        assert isinstance(path, LabPath)
        rows.append(
            dict.fromkeys(RUNS_SCHEMA)
            | {"id": run.name, "rtt_ms": path.rtt / 1e6, "rate_bps": path.rate, "queue_bytes": path.queue}
            | {"mtu": path.mtu, "modality": path.modality, "loss": 0.0, "loss_back": 0.0, "direction": "send"}
            | {"cc": run.cc, "streams": run.streams, "buffer": run.buffer_text, "buffer_bytes": run.buffer}
            | {"size_bytes": run.size, "seed": run.seed, "goodput_bps": goodput}
        )
    return pl.DataFrame(rows, schema=RUNS_SCHEMA)


@pytest.mark.parametrize(
    ("grid", "name"),
    [("hpdc17-10gige", "10 Gb/s, 1 GB"), ("hpdc17-oc192", "OC192, 1 GB"), ("half-bdp", "5 Gb/s, half a BDP")],
)
def test_the_page_has_the_errors_without_and_with_the_seed(grid: str, name: str) -> None:
    runs = _runs(grid)
    without, with_ = (
        error_table(runs, seeded).filter(pl.col("cc") == ALL).row(0, named=True) for seeded in (False, True)
    )
    numbers = " | ".join(
        f"{100 * table[key]:.1f}%" for key in ("median", "p90", "worst") for table in (without, with_)
    )
    assert f"| {name} | {without['cells']} | {numbers} |" in PAGE.read_text()
