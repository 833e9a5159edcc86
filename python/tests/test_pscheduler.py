"""The pScheduler tool, against the published interface: pScheduler's developers' guide and its schemas."""

import importlib
import json
import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, built_program

TOOL = ROOT / "packaging" / "pscheduler" / "tool.py"
METHODS = ("enumerate", "can-run", "duration", "participant-data", "run", "merged-results")
DATA = {
    "throughput-bits": (int, float), "throughput-bytes": (int, float),
    "receiver-throughput-bits": (int, float), "sent": (int, type(None)), "lost": (int, type(None)),
    "jitter": (int, float, type(None)), "stream-id": (str, int), "start": (int, float),
    "end": (int, float), "rtt": (int, float, type(None)), "tcp-window-size": (int, type(None)),
    "retransmits": (int, type(None)), "omitted": (bool,),
}  # fmt: skip
"""The `throughput-data` of the schema of pScheduler's throughput result: no other key is allowed."""


def check(result: dict[str, Any]) -> None:
    """Refuses a result that pScheduler's schema of throughput results refuses."""
    required = {"succeeded", "diags", "intervals", "summary"}
    allowed = {"schema", "error", "mss", "mtu", "tcp-window-size", "requested-tcp-window-size"}
    assert required <= result.keys() <= required | allowed
    assert isinstance(result["succeeded"], bool) and isinstance(result["diags"], str)
    for key in ("mss", "mtu", "tcp-window-size", "requested-tcp-window-size"):
        assert isinstance(result.get(key, 0), int)
    for one in (*result["intervals"], result["summary"]):
        assert one.keys() == {"streams", "summary"}
        for data in (*one["streams"], one["summary"]):
            for key, value in data.items():
                assert isinstance(value, DATA[key]), (key, value)


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """The tool's folder, installed as the how-to says."""
    folder = tmp_path / "fullpipe"
    folder.mkdir()
    (folder / "tool.py").write_bytes(TOOL.read_bytes())
    (folder / "tool.py").chmod(0o755)
    for name in METHODS:
        (folder / name).symlink_to("tool.py")
    return folder


def call(tool: Path, method: str, given: object, **more: str) -> "subprocess.CompletedProcess[str]":
    text = given if isinstance(given, str) else json.dumps(given)
    return subprocess.run(
        [tool / method], input=text, capture_output=True, text=True, timeout=90, env=os.environ | more
    )


def answer(tool: Path, method: str, given: object, **environment: str) -> Any:
    done = call(tool, method, given, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_enumerate(tool: Path) -> None:
    found = answer(tool, "enumerate", "")
    assert found["name"] == tool.name == "fullpipe" and found["tests"] == ["throughput"]
    assert found.keys() == {
        "schema", "name", "description", "version", "tests", "preference", "maintainer",
    }  # fmt: skip
    assert found["preference"] < 10, "it does not take the place of iperf3 unasked"


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        ({"type": "throughput", "spec": {"dest": "psdev2", "duration": "PT5S", "schema": 1}}, []),
        ({"type": "throughput", "spec": {"dest": "h", "schema": 7, "parallel": 4, "fq-rate": 10**9}}, []),
        ({"type": "throughput", "spec": {"dest": "h", "udp": True, "buffer-length": 1400}}, []),
        ({"type": "latency", "spec": {}}, ["fullpipe runs only throughput tests"]),
        ({"type": "throughput"}, ["the specification of the test is missing"]),
        ({"type": "throughput", "spec": {"dest": "h", "schema": 8}},
         ["fullpipe's tool knows specifications up to schema 7"]),
        ({"type": "throughput", "spec": {"dest": "h", "zero-copy": True, "flow-label": 3}},
         ["fullpipe does not support zero-copy", "fullpipe does not support flow-label"]),
        ({"type": "throughput", "spec": {"dest": "h", "parallel": 257, "ip-tos": 33}},
         ["fullpipe sends over at most 256 streams",
          "fullpipe sets the DSCP, not the two ECN bits of ip-tos"]),
        ({"type": "throughput", "spec": {"dest": "h", "buffer-length": 9000, "duration": "10"}},
         ["duration: '10' is not a duration such as PT10S",
          "fullpipe supports buffer-length only over UDP, as the size of a datagram"]),
        ({"type": "throughput", "spec": {"dest": "h", "udp": True, "congestion": "bbr"}},
         ["fullpipe does not support congestion over UDP"]),
    ],
)  # fmt: skip
def test_can_run(tool: Path, given: object, reasons: list[str]) -> None:
    found = answer(tool, "can-run", given)
    assert found == ({"can-run": False, "reasons": reasons} if reasons else {"can-run": True})


@pytest.mark.parametrize(
    ("spec", "whole"),
    [
        # 10 s by default, 20 round trips of 200 ms, 2 s for the server's start, 3 s for its end.
        ({"dest": "h"}, "PT19S"),
        ({"dest": "h", "duration": "PT1M30S", "omit": "PT5S", "link-rtt": "PT0.01S"}, "PT101S"),
        ({"dest": "h", "duration": "P1DT1H", "link-rtt": "PT0.3S"}, "PT90011S"),
    ],
)
def test_duration(tool: Path, spec: dict[str, Any], whole: str) -> None:
    assert answer(tool, "duration", {"type": "throughput", "spec": spec}) == {"duration": whole}


def test_participant_data(tool: Path, tmp_path: Path) -> None:
    test = {"test": {"type": "throughput", "spec": {"dest": "psdev2", "schema": 1}}}
    assert answer(tool, "participant-data", test | {"participant": 0}) == {"schema": 1}
    config = tmp_path / "fullpipe.conf"
    second = test | {"participant": 1}
    where = {"FULLPIPE_PSCHEDULER_CONF": str(config)}
    assert answer(tool, "participant-data", second, **where) == {"schema": 1, "server_port": 7412}
    config.write_text("[fullpipe]\nserver_port = 7500\n")
    assert answer(tool, "participant-data", second, **where) == {"schema": 1, "server_port": 7500}
    config.write_text("[fullpipe]\nserver_port = 7500\nprogram = /opt/100%/fullpipe\n")
    assert answer(tool, "participant-data", second, **where) == {"schema": 1, "server_port": 7500}
    config.write_text("server_port = 7500\n")
    assert call(tool, "participant-data", second, **where).returncode == 1


def made(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The input of `run` for both participants, of a test that starts at once."""
    data: list[dict[str, Any]] = [{"schema": 1}, {"schema": 1, "server_port": free_port()}]
    start = datetime.now(UTC).isoformat()
    test = {"type": "throughput", "spec": {"schema": 1, "dest": "127.0.0.1", **spec}}
    common = {
        "schema": 1, "task-uuid": "00000000-0000-0000-0000-000000000000",
        "schedule": {"start": start, "duration": "PT19S"}, "test": test, "participant-data": data,
        "limits-passed": [],
    }  # fmt: skip
    return [common | {"participant": number} for number in (0, 1)]


def run_both(tool: Path, tmp_path: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Runs a test as pScheduler does: both participants at once, then the merging of their results."""
    client, server = made(spec)
    config = tmp_path / "fullpipe.conf"
    config.write_text(f"[fullpipe]\nserver_port = {server['participant-data'][1]['server_port']}\n")
    environment = os.environ | {"FULLPIPE": built_program(), "FULLPIPE_PSCHEDULER_CONF": str(config)}
    with subprocess.Popen(
        [tool / "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(server))
        process.stdin.close()
        process.stdin = None
        first = answer(tool, "run", client, FULLPIPE=built_program())
        out = process.communicate(timeout=60)[0]
    second = json.loads(out)
    merged: dict[str, Any] = answer(
        tool, "merged-results", {"test": client["test"], "results": [first, second]}
    )
    check(merged)
    assert second["succeeded"], second
    return merged


def test_a_test_over_tcp(tool: Path, tmp_path: Path) -> None:
    spec = {
        "duration": "PT3S", "interval": "PT1S", "omit": "PT1S", "parallel": 2, "bandwidth": 200_000_000,
        "window-size": 1_000_000, "source": "127.0.0.1", "ip-version": 4, "ip-tos": 32,
    }  # fmt: skip
    found = run_both(tool, tmp_path, spec)
    assert found["succeeded"], found
    assert "Participant 0:\n" in found["diags"] and "Participant 1:\n" in found["diags"]
    assert "--dscp 8" in found["diags"] and "--bind 127.0.0.1" in found["diags"]
    whole = found["summary"]["summary"]
    assert 0 < whole["throughput-bits"] <= 1.05 * 200e6 and whole["receiver-throughput-bits"] > 0
    assert whole["retransmits"] is not None and found["requested-tcp-window-size"] == 1_000_000
    assert (whole["start"], whole["end"]) == (pytest.approx(1, abs=0.3), pytest.approx(4, abs=0.3))
    assert [one["summary"]["omitted"] for one in found["intervals"]] == [True, False, False, False]
    assert [len(one["streams"]) for one in (*found["intervals"], found["summary"])] == [2] * 5
    kept = [one["summary"] for one in found["intervals"] if not one["summary"]["omitted"]]
    assert sum(one["throughput-bytes"] for one in kept) == pytest.approx(whole["throughput-bytes"], rel=0.2)
    for one in found["intervals"]:
        assert one["summary"]["throughput-bytes"] == sum(s["throughput-bytes"] for s in one["streams"])
        assert {"rtt", "tcp-window-size", "retransmits"} <= one["streams"][0].keys()


def test_a_test_over_udp_in_reverse(tool: Path, tmp_path: Path) -> None:
    spec = {"duration": "PT2S", "udp": True, "bandwidth": 20_000_000, "reverse": True, "buffer-length": 1200}
    found = run_both(tool, tmp_path, spec)
    assert found["succeeded"], found
    whole = found["summary"]["summary"]
    assert whole["throughput-bits"] == pytest.approx(20e6, rel=0.2)
    assert whole["sent"] > 1000 and whole["lost"] == 0 and whole["jitter"] >= 0
    assert "retransmits" not in whole
    assert sum(one["summary"]["sent"] for one in found["intervals"]) == pytest.approx(whole["sent"], rel=0.05)


def test_a_single_ended_test_without_a_server_fails_with_the_reason(tool: Path, tmp_path: Path) -> None:
    port = free_port()
    (client, _) = made({"duration": "PT1S", "single-ended": True, "single-ended-port": port})
    client["participant-data"].pop()
    found = answer(tool, "run", client, FULLPIPE=built_program())
    assert not found["succeeded"]
    assert f"fullpipe ended with code 4: error: cannot connect to 127.0.0.1:{port}" in found["error"]
    merged = answer(tool, "merged-results", {"test": client["test"], "results": [found]})
    check(merged)
    assert merged["error"] == found["error"]


def test_a_server_without_a_client_ends(tool: Path, tmp_path: Path) -> None:
    _, server = made({"duration": "PT1S", "link-rtt": "PT0.001S"})
    config = tmp_path / "fullpipe.conf"
    config.write_text(f"[fullpipe]\nserver_port = {free_port()}\n")
    where = {"FULLPIPE_PSCHEDULER_CONF": str(config), "FULLPIPE": built_program()}
    found = answer(tool, "run", server, **where)
    assert (found["succeeded"], found["error"]) == (False, "no client came")


def test_what_cannot_run_is_told(tool: Path, tmp_path: Path) -> None:
    client, _ = made({})
    none = answer(tool, "run", client, FULLPIPE=str(tmp_path / "none"))
    assert not none["succeeded"] and "there is no program" in none["error"]
    for method, given, said in (
        ("run", client | {"participant": 2}, "run: there is no participant 2 in this test"),
        ("run", client | {"participant-data": [{}]}, "run: the test needs another number of participants"),
        ("run", {"participant": 0}, "run: the input lacks 'test'"),
        ("duration", "{", "duration: the input is not JSON"),
        ("can-run", "[]", "can-run: the input is not a JSON object"),
        ("merged-results", {"test": client["test"], "results": []}, "merged-results: the test has 0 results"),
    ):
        done = call(tool, method, given)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(said) and done.stderr.count("\n") == 1
    assert subprocess.run([sys.executable, TOOL], capture_output=True).returncode == 1


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOL.parent))
    return importlib.import_module("tool")


def test_a_late_sample_does_not_change_the_rate_of_an_interval(plugin: Any) -> None:
    """1 Gb/s by two streams, sampled every 0.1 s, 3 to 30 ms late."""
    lines: list[dict[str, Any]] = [{"kind": "run", "sender": {"mss": 8948, "mtu": 9000, "sndbuf": 4096}}]
    for i in range(1, 36):
        t = i / 10 + (0.03 if i % 10 == 0 else 0.003)
        for stream, share in ((0, 2 / 3), (1, 1 / 3)):
            count = int(share * 1.25e8 * t)
            common = {"kind": "sample", "t": t, "stream": stream, "bytes": count}
            lines.append(common | {"end": "receiver"})
            tcp = {"total_retrans": i * (stream + 1), "snd_cwnd": 10, "snd_mss": 9000, "rtt": 250}
            lines.append(common | {"end": "sender"} | tcp)
    of_stream = [{"bytes": 10, "retransmits": 35}, {"bytes": 5, "retransmits": 70}]
    result = {"goodput_bps": 1e9, "bytes": 15, "seconds": 3.5, "retransmits": 105, "streams": of_stream}
    lines.append({"kind": "result"} | result)
    found = plugin.result_of("\n".join(map(json.dumps, lines)), {"dest": "h"}, "x")
    check(found)
    assert [one["summary"]["start"] for one in found["intervals"]] == [0, 1, 2, 3]
    assert found["intervals"][-1]["summary"]["end"] == pytest.approx(3.503)
    for one in found["intervals"]:
        assert one["summary"]["throughput-bits"] == pytest.approx(1e9, rel=1e-6)
        assert one["streams"][0]["throughput-bits"] == pytest.approx(2e9 / 3, rel=1e-6)
        assert (one["streams"][0]["tcp-window-size"], one["streams"][0]["rtt"]) == (90_000, 250)
    assert [one["summary"]["retransmits"] for one in found["intervals"]] == [30, 30, 30, 15]
    assert found["summary"]["summary"]["retransmits"] == 105
    assert [one["retransmits"] for one in found["summary"]["streams"]] == [35, 70]


def test_output_that_is_no_record_fails(plugin: Any) -> None:
    for text in ("", "{", '{"kind":"run"}', "[]", '{"kind":"run"}\n{"kind":"result"}'):
        found = plugin.result_of(text, {"dest": "h"}, "x")
        check(found)
        assert not found["succeeded"] and found["error"]
    none: dict[str, Any] = {
        "kind": "result",
        "goodput_bps": None,
        "no_rate": "it is too short",
        "streams": [],
    }
    found = plugin.result_of('{"kind":"run"}\n' + json.dumps(none), {"dest": "h"}, "x")
    assert found["error"] == "the run has no rate: it is too short"


def test_the_command_of_each_specification(plugin: Any) -> None:
    def words(**spec: Any) -> str:
        return " ".join(plugin.client_command("fullpipe", {"dest": "127.0.0.1"} | spec, 7412)[2:])

    plain = "127.0.0.1:7412 --json --duration 10s --streams 1 --sample 0.1s"
    assert words() == plain
    assert words(**{"dest": "::1", "ip-version": 6}) == plain.replace("127.0.0.1", "[::1]")
    # `bandwidth` is of the whole test, `fq-rate` of each stream.
    assert words(bandwidth=10**9, parallel=4).endswith("--streams 4 --sample 0.1s --pacing 1000000000bit")
    assert words(**{"fq-rate": 10**9, "parallel": 4}).endswith("--pacing 4000000000bit")
    assert words(udp=True).endswith("--transport udp --pacing 1000000bit")
    assert words(interval="PT0.1S", congestion="bbr", mss=1400, reverse=True) == (
        plain.replace("0.1s", "0.05s") + " --cc bbr --mss 1400 --reverse"
    )
    assert words(source="192.0.2.1") == plain, "a source that is no address of this host is left to the route"
    with pytest.raises(plugin.InputError, match="is no address of this host"):
        words(**{"local-address": "192.0.2.1"})


def test_the_server_ends_with_the_method(tool: Path, tmp_path: Path) -> None:
    _, server = made({"duration": "PT30S"})
    port = free_port()
    config = tmp_path / "fullpipe.conf"
    config.write_text(f"[fullpipe]\nserver_port = {port}\n")
    where = os.environ | {"FULLPIPE_PSCHEDULER_CONF": str(config), "FULLPIPE": built_program()}
    with subprocess.Popen([tool / "run"], stdin=subprocess.PIPE, text=True, env=where) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(server))
        process.stdin.close()
        listens(port, True)
        process.terminate()
        assert process.wait(timeout=10) == 1
    listens(port, False)


def listens(port: int, expected: bool) -> None:
    """Waits until a server listens at a port of this host, or none does."""
    for _ in range(200):
        with socket.socket() as probe:
            if (probe.connect_ex(("127.0.0.1", port)) == 0) == expected:
                return
        time.sleep(0.05)
    raise AssertionError(f"port {port}: expected {expected}")


def test_times_of_the_schedule(plugin: Any) -> None:
    noon = datetime(2026, 1, 31, 12, 0, tzinfo=UTC).timestamp()
    for text in ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "2026-01-31T06:30:00-0530"):
        assert plugin.unix_time(text) == noon
    assert plugin.unix_time("2026-01-31T12:00:00.250000+00:00") == noon + 0.25
    local = plugin.unix_time("2020-03-19T12:34:56")
    assert local == datetime(2020, 3, 19, 12, 34, 56).astimezone().timestamp()
    for wrong in ("noon", "2026-01-31"):
        with pytest.raises(plugin.InputError):
            plugin.unix_time(wrong)
