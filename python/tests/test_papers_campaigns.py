"""The campaigns have the runs that the clauses of the papers need."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from lab.papers.cells import Value
from lab.papers.claims import HOST_NOISE_MS, Clause, Untested, read_claims
from lab.papers.compare import MIN_RUNS
from planted import Planter, plant

from fullpipe.campaign import LabPath, RunSpec, expand, read_campaign

CLAIMS = read_claims()
CLAUSES = [
    pytest.param(clause, id=f"{claim.name}-{number}")
    for claim in CLAIMS.claim
    for number, clause in enumerate(claim.clause, 1)
    if not isinstance(clause, Untested)
]


def _axes(run: RunSpec) -> dict[str, Value]:
    path = run.path
    assert isinstance(path, LabPath)
    assert path.host_a == path.host_b
    return {
        "rtt_ms": path.rtt / 1e6,
        "queue_bdp": round(path.queue * 8 / (path.rate * path.rtt * 1e-9), 3),
        "mtu": path.mtu,
        "loss": path.loss,
        "modality": path.modality or "none",
        "host_noise_ms": (path.host_noise or 0) / 1e6,
        "host": str(path.host_a),
        "kernel": path.kernel or "default",
        "cc": run.cc,
        "streams": run.streams,
        "buffer": run.buffer_text,
        "size_gb": round((run.size or 0) / 1e9),
        "duration_s": (run.duration or 0) / 1e9,
    }


def _campaigns() -> Iterator[Path]:
    yield from sorted((ROOT / "campaigns").glob("papers-*.toml"))


@pytest.fixture(scope="module")
def seeds() -> dict[frozenset[tuple[str, Value]], set[int]]:
    found: dict[frozenset[tuple[str, Value]], set[int]] = defaultdict(set)
    for file in _campaigns():
        for run in expand(read_campaign(file)):
            found[frozenset(_axes(run).items())].add(run.seed)
    return found


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_has_ten_seeds_of_each_of_its_cells(
    clause: Clause, seeds: dict[frozenset[tuple[str, Value]], set[int]]
) -> None:
    planter = Planter(MIN_RUNS)
    plant(planter, clause, CLAIMS.defaults | {"host_noise_ms": HOST_NOISE_MS}, True)
    cells = {key for key, _ in planter.rows}
    assert cells
    for cell in cells:
        # A cell names its size or its duration; the other is zero.
        whole = {"size_gb": 0, "duration_s": 0.0} | dict(cell)
        assert len(seeds.get(frozenset(whole.items()), ())) >= MIN_RUNS, dict(cell)
