"""What is kept of UDT's runs."""

import json
from pathlib import Path

import polars as pl
import synthetic
from conftest import campaign_of
from lab.papers.keep import Kept, pack

from fullpipe.campaign import expand

CAMPAIGN = """
[[grid]]
seeds = 2
sample = "1s"
path = { rtt = "22.6ms", rate = "10gbit", mtu = 9000 }
transport = { cc = "udt", streams = 1, buffer = "1GB" }
workload = { duration = "20s" }
"""


def test_naks_of_the_sender_are_kept_by_second(tmp_path: Path) -> None:
    folder = tmp_path / "papers-udt"
    folder.mkdir()
    for run in expand(campaign_of(tmp_path, CAMPAIGN)):
        synthetic.write(folder, run)
    for file in folder.glob("*.ndjson"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            if line["kind"] == "sample":
                # The receiver's counts are others, and samples are taken a little late.
                line["pktRecvNAK"] = round(line["t"]) if line["end"] == "sender" else 1000
                line["t"] += 0.004
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pack([folder], "0123456", tmp_path / "kept")
    traces = Kept.read(tmp_path / "kept").traces
    assert traces.height == 40
    assert traces.filter(pl.col("naks") != pl.col("second")).is_empty() and traces["naks"].null_count() == 0
    # A run over TCP beside them has none.
    for run in expand(campaign_of(tmp_path, CAMPAIGN.replace('"udt"', '"cubic"'))):
        synthetic.write(folder, run)
    pack([folder], "0123456", tmp_path / "kept")
    traces = Kept.read(tmp_path / "kept").traces
    assert traces.filter(pl.col("naks").is_null() != pl.col("id").str.starts_with("cubic")).is_empty()
    assert traces.height == 80
