import gzip
import json
import math
from pathlib import Path

import pytest
import synthetic
from conftest import SMALL, Command

from fullpipe import read_runs
from fullpipe.campaign import RunSpec
from fullpipe.campaign.merge import merge
from fullpipe.campaign.shard import Shard, take
from fullpipe.campaign.state import inspect, prepare, read_description
from fullpipe.record import MAX_LINE_BYTES, number, read_failures, read_header, read_outcome

NESTED = "[" * 100_000


def test_numbers_of_records() -> None:
    assert [number(value) for value in (3, 0, 2.5)] == [3.0, 0.0, 2.5]
    for damaged in (10**400, -(10**400), -1, math.inf, math.nan, True, "3", None, [3]):
        assert number(damaged) is None


@pytest.mark.parametrize("is_packed", [False, True])
def test_lines_without_an_end_are_not_read_whole(tmp_path: Path, is_packed: bool) -> None:
    """A whole line counts; one longer than any of a record does not."""
    line = '{"kind":"run","version":1,"x":"%s"}'
    for length, is_read in ((1000, True), (MAX_LINE_BYTES, False)):
        text = (line % ("x" * length)).encode()
        file = tmp_path / ("x.ndjson.gz" if is_packed else "x.ndjson")
        file.write_bytes(gzip.compress(text, 1) if is_packed else text)
        assert (read_header(file) is not None) == is_read


def test_a_result_longer_than_any_is_not_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "x.ndjson"
    file.write_text('{"kind":"run"}\n{"kind":"result","x":"%s"}\n' % ("x" * MAX_LINE_BYTES))
    assert read_outcome(file) is None


def test_a_deeply_nested_file_costs_no_other_record(
    tmp_path: Path, small: list[RunSpec], command: Command
) -> None:
    folder = tmp_path / "r"
    sound, first, last, sample = (synthetic.write(folder, run, samples=2) for run in small[:4])
    first.write_text(NESTED + "\n" + first.read_text())
    last.write_text(last.read_text() + NESTED)
    header, *lines = sample.read_text().splitlines()
    sample.write_text("\n".join([header, NESTED, *lines]))
    with pytest.warns(UserWarning, match="skipped"):
        found = read_runs(folder)
    assert found.runs["id"].to_list() == [sound.stem]
    assert {skip.file for skip in found.skipped} == {first, last, sample}
    assert inspect(small[:3], folder).done == [small[0], small[1]], "as far as last lines say"
    told = command("analyze", "r", "--only", "profile", "--openmetrics", "m.prom")
    assert told.returncode == 0, told.stderr
    assert "3 skipped" in told.stderr and "Traceback" not in told.stderr


def test_nested_notes_are_no_notes(tmp_path: Path, small: list[RunSpec]) -> None:
    lines = [
        NESTED,
        '{"name":[]}',
        '{"name":{}}',
        '{"name":null}',
        '{"kind":"failed","name":"x","reason":"y"}',
    ]
    (tmp_path / "failed.ndjson").write_text("\n".join(lines))
    assert [failure["name"] for failure in read_failures(tmp_path)] == ["x"]
    (tmp_path / "campaign.json").write_text(NESTED)
    assert read_description(tmp_path) is None
    prepare(tmp_path, small, Path("small.toml"), None)
    assert read_description(tmp_path) is not None


def test_a_damaged_list_of_failures_stops_no_merge(tmp_path: Path, small: list[RunSpec]) -> None:
    shard = Shard(1, 1)
    prepare(tmp_path / "s", small, Path("small.toml"), None, small, shard)
    for run in take(small, shard):
        synthetic.write(tmp_path / "s", run, samples=2)
    (tmp_path / "s" / "failed.ndjson").write_text('{"name":[]}\n')
    assert merge(tmp_path / "all", [tmp_path / "s"]).records == 32


def test_a_campaign_goes_on_beside_damaged_files(
    tmp_path: Path, small: list[RunSpec], command: Command
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    out = tmp_path / "runs" / "small"
    files = [synthetic.write(out, run, samples=2) for run in small]
    *lines, last = files[0].read_text().splitlines()
    real = {"real": {"wall_s": 10**400}}
    files[0].write_text("\n".join([*lines, json.dumps(json.loads(last) | real)]) + "\n")
    (out / "other.ndjson").write_text(NESTED)
    (out / "failed.ndjson").write_text('{"name":[]}\n' + NESTED)
    told = command("campaign", "run", "small.toml", FULLPIPE="/bin/true")
    assert "Traceback" not in told.stderr
    assert told.returncode == 1 and "has a record that cannot be read" in told.stderr.splitlines()[-1]
