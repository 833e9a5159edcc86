"""Calls of the real program from Python, with a real server on loopback."""

import inspect
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, built_program

import fullpipe
from fullpipe import program
from fullpipe.calls import CopyOptions, CopyResult, DryRun, MeasureOptions, Progress, SelectOptions
from fullpipe.calls import child as child_module
from fullpipe.calls.child import Ended
from fullpipe.calls.measurements import StorageOptions
from fullpipe.calls.options import flags_of
from fullpipe.errors import (
    FailedError,
    FullpipeError,
    IncompleteError,
    MissingError,
    PeerError,
    RecordError,
    StoppedError,
    UncertainError,
    UsageError,
)
from fullpipe.storage import read_storage

BIG = 8_000_000
"""A copy of so many bytes takes four seconds at 16 Mb/s, so that it has progress and can be interrupted."""
WAIT_S = 60

INTERRUPTED = """
import os, sys, fullpipe
def progress(state):
    print(*open(f"/proc/self/task/{os.getpid()}/children").read().split(), flush=True)
try:
    fullpipe.copy(sys.argv[1], sys.argv[2], token_file=sys.argv[3], pacing="16mbit", progress=progress)
except KeyboardInterrupt:
    print("ended by KeyboardInterrupt", flush=True)
"""


@pytest.fixture(autouse=True)
def binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    found = built_program()
    monkeypatch.setenv("FULLPIPE", found)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return found


@dataclass
class Server:
    """A server below a folder, and what it prints."""

    address: str
    root: Path
    token: Path
    log: Path

    @property
    def url(self) -> str:
        return f"fullpipe://{self.address}/"

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in map(json.loads, self.log.read_text().splitlines()) if line["kind"] == kind]

    def errors(self, clients: int) -> list[str | None]:
        """How each of its clients ended, once that many have."""
        deadline = time.monotonic() + WAIT_S
        while len(ends := self.lines("end")) < clients:
            assert time.monotonic() < deadline, f"{len(ends)} of {clients} clients have ended"
            time.sleep(0.05)
        return [end["error"] for end in ends]


@pytest.fixture
def server(tmp_path: Path, binary: str) -> Iterator[Server]:
    root, log = tmp_path / "root", tmp_path / "server.ndjson"
    root.mkdir()
    token = tmp_path / "token"
    command = [
        binary, "serve", "--root", str(root), "--token-file", str(token), "--bind", "127.0.0.1",
        "--port", "0", "--json",
    ]  # fmt: skip
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + WAIT_S
            while not log.read_text().endswith("\n"):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            yield Server(json.loads(log.read_text().splitlines()[0])["address"], root, token, log)
        finally:
            process.terminate()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two files, one of them in a folder."""
    folder = tmp_path / "results"
    (folder / "raw").mkdir(parents=True)
    (folder / "a.h5").write_bytes(os.urandom(300_000))
    (folder / "raw" / "b.tmp").write_text("b")
    return folder


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big.bin"
    path.write_bytes(os.urandom(BIG))
    return path


def child() -> int:
    """The one process that this thread has started and that has not ended."""
    own = f"/proc/self/task/{threading.get_native_id()}/children"
    found = [
        int(word)
        for word in Path(own).read_text().split()
        if b"cp\0--json" in Path(f"/proc/{word}/cmdline").read_bytes()
    ]
    assert len(found) == 1
    return found[0]


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"{pid} is still running"
        time.sleep(0.05)


def test_a_tree_arrives_and_the_result_says_so(server: Server, tree: Path) -> None:
    result = fullpipe.copy(tree, server.url, recursive=True, token_file=server.token)
    assert (server.root / "results" / "a.h5").read_bytes() == (tree / "a.h5").read_bytes()
    assert (server.root / "results" / "raw" / "b.tmp").read_text() == "b"
    assert isinstance(result, CopyResult)
    assert (result.files, result.skipped, result.bytes) == (2, 0, 300_001)
    assert result.encrypted and result.left == () and result.verified is None and result.deleted is None
    assert result.rate_bps == pytest.approx(8 * result.bytes / result.seconds)
    assert 1 <= result.transport.streams <= 64 and result.rtt_s > 0


def test_a_tree_comes_back(server: Server, tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree, server.root / "results")
    back = tmp_path / "back"
    result = fullpipe.copy(
        f"{server.url}results/", back, recursive=True, token_file=str(server.token), verify=True
    )
    assert (back / "a.h5").read_bytes() == (tree / "a.h5").read_bytes()
    assert result.verified is not None and result.verified.files == 2


def test_progress_tells_how_far_a_copy_is(server: Server, big: Path) -> None:
    seen: list[Progress] = []
    result = fullpipe.copy(big, server.url, token_file=server.token, progress=seen.append, pacing=16e6)
    assert len(seen) >= 2
    assert all(isinstance(state, Progress) and state.found_bytes == BIG for state in seen)
    done = [state.bytes for state in seen]
    assert done == sorted(done) and 0 < done[0] < BIG
    assert seen[-1].fraction == pytest.approx(seen[-1].bytes / BIG)
    assert result.bottleneck in {state.bottleneck for state in seen}
    assert result.transport.pacing == "16mbit"


def test_progress_before_all_is_found_has_no_fraction() -> None:
    assert Progress(5, 1, 10, 2, False, 1e9, "network").fraction is None
    assert Progress(5, 1, 10, 2, True, 1e9, "network").fraction == 0.5
    assert Progress(0, 1, 0, 1, True, 0.0, "network").fraction == 1.0


def test_events_are_the_lines_of_the_program(server: Server, tree: Path) -> None:
    events: list[dict[str, Any]] = []
    fullpipe.copy(
        tree,
        server.url,
        recursive=True,
        token_file=server.token,
        event=lambda e: events.append(dict(e)),
        flags=["-v"],
    )
    assert {e["name"] for e in events if e["kind"] == "file"} == {"results/a.h5", "results/raw/b.tmp"}
    assert [e["kind"] for e in events][-1] == "done"


@pytest.mark.parametrize("name", ["-", "-r", "--help", "host:x", "lab:rtt=1ms", "two\nlines", "ü", "\udcff"])
def test_a_path_is_a_local_name_whatever_it_looks_like(server: Server, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(name, errors="surrogateescape")
    result = fullpipe.copy(Path(name), server.url, token_file=server.token)
    assert result.files == 1
    assert (server.root / name).read_text(errors="surrogateescape") == name
    (tmp_path / name).unlink()
    fullpipe.copy(f"{server.url}{name}", Path(name), token_file=server.token)
    assert (tmp_path / name).read_text(errors="surrogateescape") == name


def test_text_is_read_as_on_the_command_line(server: Server, tmp_path: Path) -> None:
    (tmp_path / "-x").write_text("dash")
    (tmp_path / "host:x").write_text("colon")
    fullpipe.copy(["-x", "./host:x"], server.url, token_file=server.token)
    assert sorted(path.name for path in server.root.iterdir()) == ["-x", "host:x"]
    with pytest.raises(UsageError, match="are both on this host"):
        fullpipe.copy("-x", "y")
    with pytest.raises(UsageError, match="goes over ssh at both"):
        fullpipe.copy("host:x", server.url, token_file=server.token)


def test_content_of_a_folder_as_text(server: Server, tree: Path) -> None:
    fullpipe.copy(f"{tree}/.", f"{server.url}new/", recursive=True, token_file=server.token)
    assert sorted(path.name for path in (server.root / "new").iterdir()) == ["a.h5", "raw"]


def test_patterns_that_include_come_first(server: Server, tree: Path) -> None:
    fullpipe.copy(
        tree, server.url, recursive=True, token_file=server.token, exclude="*", include=["*/", "*.h5"]
    )
    assert (server.root / "results" / "a.h5").exists()
    assert not (server.root / "results" / "raw" / "b.tmp").exists()


def test_what_is_there_is_skipped_and_what_is_not_at_the_source_deleted(server: Server, tree: Path) -> None:
    fullpipe.copy(tree, server.url, recursive=True, token_file=server.token)
    (server.root / "results" / "old").write_text("old")
    options = CopyOptions(recursive=True, update=True, delete=True, max_delete=5, token_file=server.token)
    result = fullpipe.copy(tree, server.url, **options)
    assert (result.skipped, result.bytes, result.deleted) == (2, 0, 1)
    assert result.bottleneck is None
    assert (result.error, result.exit_code, result.not_deleted) == (None, 0, ())
    assert not (server.root / "results" / "old").exists()


def test_a_list_of_names_and_removed_sources(server: Server, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"raw/b.tmp\0")
    options = CopyOptions(
        files_from=tmp_path / "list", from0=True, remove_source_files=True, token_file=server.token
    )
    planned = fullpipe.copy(tree, server.url, dry_run=True, **options)
    assert (planned.files, planned.removed_sources) == (1, 1)
    result = fullpipe.copy(tree, server.url, **options)
    assert (result.files, result.removed_sources, result.not_removed) == (1, 1, ())
    assert (server.root / "raw" / "b.tmp").exists() and not (tree / "raw" / "b.tmp").exists()
    assert (tree / "a.h5").exists()


def test_a_dry_run_copies_nothing(server: Server, tree: Path) -> None:
    result = fullpipe.copy(tree, server.url, recursive=True, token_file=server.token, dry_run=True)
    assert isinstance(result, DryRun)
    assert (result.files, result.bytes, result.left_total) == (2, 300_001, 0)
    assert (result.new, result.replaced, result.present) == (2, 0, 0)
    assert list(server.root.iterdir()) == []
    options = CopyOptions(recursive=True, quick_check=True, token_file=server.token)
    fullpipe.copy(tree, server.url, **options)
    (tree / "a.h5").write_bytes(b"changed")
    result = fullpipe.copy(tree, server.url, dry_run=True, **options)
    assert (result.files, result.bytes, result.replaced, result.present) == (1, 7, 1, 1)


def test_standard_input_from_a_file(server: Server, tree: Path) -> None:
    with (tree / "a.h5").open("rb") as file:
        result = fullpipe.copy("-", f"{server.url}x.h5", stdin=file, token_file=server.token)
    assert result.files == 1
    assert (server.root / "x.h5").read_bytes() == (tree / "a.h5").read_bytes()


def test_files_that_cannot_be_copied_are_in_the_error(server: Server, tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    with pytest.raises(IncompleteError) as caught:
        fullpipe.copy(tree, server.url, recursive=True, token_file=server.token)
    error = caught.value
    assert error.exit_code == 1 and str(error).startswith("1 file or folder was not copied")
    assert isinstance(error.result, CopyResult)
    assert error.result.files == 2 and error.result.left_total == 1
    assert (error.result.error, error.result.exit_code) == (str(error), 1)
    (left,) = error.result.left
    assert (left.name, left.for_good) == ("results/pipe", True) and "FIFO" in left.why
    assert error.result.notes == ()


def test_failures_have_the_class_of_their_exit_code(server: Server, tree: Path, tmp_path: Path) -> None:
    def fails(kind: type[FullpipeError], code: int, text: str, src: Any, dst: str, **options: Any) -> None:
        with pytest.raises(kind, match=text) as caught:
            fullpipe.copy(src, dst, **options)
        assert type(caught.value) is kind and caught.value.exit_code == code

    file, token = tree / "a.h5", {"token_file": server.token}
    fails(UsageError, 2, "nowhere: no such file", "nowhere", server.url, **token)
    fails(UsageError, 2, "folder; copy it with -r", tree, server.url, **token)
    fails(UsageError, 2, "'--nonsense'", file, server.url, flags=["--nonsense"], **token)
    fails(UsageError, 2, "streams", file, server.url, streams=99, **token)
    fails(UsageError, 2, "FULLPIPE_TOKEN", file, server.url)
    fails(MissingError, 3, "nosuchcc", file, server.url, cc="nosuchcc", **token)
    fails(PeerError, 4, "cannot connect", file, "fullpipe://127.0.0.1:1/", **token)
    damaged = tmp_path / "damaged"
    damaged.write_text("no token")
    fails(UsageError, 2, "damaged", file, server.url, token_file=damaged)


def test_a_destination_that_cannot_be_written(server: Server, tree: Path) -> None:
    (server.root / "file").write_text("")
    with pytest.raises(RecordError, match="/file/x: not a directory") as caught:
        fullpipe.copy(tree / "a.h5", f"{server.url}file/x", token_file=server.token)
    assert caught.value.exit_code == 5


def test_wrong_arguments_are_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FULLPIPE", str(tmp_path / "missing"))

    def wrong(text: str, *arguments: Any, **options: Any) -> None:
        with pytest.raises(UsageError, match=text):
            fullpipe.copy(*arguments, **options)

    wrong("no source", [], "host:")
    wrong("5 is neither text nor a path", 5, "host:")
    wrong("None is neither text nor a path", "x", None)
    wrong("standard output", "host:x", "-")
    wrong("give stdin=FILE", "-", "host:x")
    wrong("stdin has an effect only", "x", "host:x", stdin=0)
    wrong("no open file", "-", "host:x", stdin="text")
    wrong("recursive: 'yes' is neither True nor False", "x", "host:", recursive="yes")
    wrong("pacing: -1", "x", "host:", pacing=-1)
    for value in (2.7, 2.0, True, -1, [2]):
        wrong("streams: .* is not a whole number", "x", "host:", streams=value)
    wrong("stall: inf", "x", "host:", stall=float("inf"))
    wrong("flags: '--steady' is text", "x", "host:", flags="--steady")
    wrong("flags: '--'", "x", "host:", flags=["--", "y"])
    with pytest.raises(TypeError, match="copy.*'recursiv'"):
        fullpipe.copy("x", "host:", recursiv=True)  # type: ignore[call-overload]


def test_whole_numbers_are_written_as_they_are() -> None:
    for value in (0, 8, np.int64(8), "8"):
        assert flags_of("copy", {"streams": value}, CopyOptions) == [f"--streams={value}"]


def test_an_argument_that_no_program_can_get(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="null byte"):
        fullpipe.copy("x\0", "host:")
    with pytest.raises(UsageError, match="too long for one command line"):
        fullpipe.copy([f"{n}{'x' * 100_000}" for n in range(100)], "host:")


class Enough(Exception):
    pass


def test_an_exception_in_the_callback_ends_the_program_and_the_call_resumes(
    server: Server, big: Path
) -> None:
    pids: list[int] = []

    def stop(state: Progress) -> None:
        pids.append(child())
        raise Enough

    with pytest.raises(Enough):
        fullpipe.copy(big, server.url, token_file=server.token, pacing="16mbit", progress=stop)
    assert len(pids) == 1 and not Path(f"/proc/{pids[0]}").exists()
    (error,) = server.errors(1)
    assert error is not None and "interrupted" in error
    assert not (server.root / big.name).exists()

    result = fullpipe.copy(big, server.url, token_file=server.token)
    assert (server.root / big.name).read_bytes() == big.read_bytes()
    assert result.spared_bytes > 0 and result.bytes + result.spared_bytes == BIG


def start_interrupted(server: Server, big: Path) -> "tuple[subprocess.Popen[str], int]":
    """A process of its own, in a group of its own, that copies; and the program that it runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(big), server.url, str(server.token)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.mark.parametrize("whom", ["group", "python"])
def test_ctrl_c_ends_the_program_cleanly(server: Server, big: Path, whom: str) -> None:
    process, pid = start_interrupted(server, big)
    # A terminal sends its signal to the whole group, a notebook's button sometimes to Python alone.
    (os.killpg if whom == "group" else os.kill)(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("ended by KeyboardInterrupt\n")
    assert not Path(f"/proc/{pid}").exists()
    (error,) = server.errors(1)
    assert error is not None and "interrupted" in error


def test_ctrl_c_while_the_program_starts(big: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    start = child_module._start

    def interrupted_start(*arguments: Any) -> "subprocess.Popen[bytes]":
        os.kill(os.getpid(), signal.SIGINT)
        process = start(*arguments)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(child_module, "_start", interrupted_start)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fullpipe.copy(big, server.url, token_file=server.token)
    assert len(pids) == 1 and not Path(f"/proc/{pids[0]}").exists()
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_program_ends_with_a_python_that_is_killed(server: Server, big: Path) -> None:
    process, pid = start_interrupted(server, big)
    process.kill()
    process.communicate(timeout=WAIT_S)
    wait_for_end(pid)
    (error,) = server.errors(1)
    assert error is not None and "interrupted" in error


def test_a_copy_in_a_thread_that_another_process_interrupts(server: Server, big: Path) -> None:
    raised: list[BaseException] = []

    def work() -> None:
        try:
            fullpipe.copy(
                big, server.url, token_file=server.token, pacing="16mbit",
                progress=lambda _: os.kill(child(), signal.SIGINT),
            )  # fmt: skip
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(WAIT_S)
    (error,) = raised
    assert isinstance(error, StoppedError) and error.exit_code == 130
    assert "interrupted" in str(error)


def test_a_program_that_is_killed(server: Server, big: Path) -> None:
    with pytest.raises(FailedError, match="SIGKILL") as caught:
        fullpipe.copy(
            big, server.url, token_file=server.token, pacing="16mbit",
            progress=lambda _: os.kill(child(), signal.SIGKILL),
        )  # fmt: skip
    assert caught.value.exit_code == 128 + signal.SIGKILL


def test_a_measurement_is_a_record_that_read_runs_reads(server: Server, tmp_path: Path) -> None:
    measured = fullpipe.measure(
        server.address, streams=2, size=20e6, seed=3, token_file=server.token, out=tmp_path / "runs"
    )
    (file,) = (tmp_path / "runs").iterdir()
    assert file.name == f"{measured.id}.ndjson"
    assert measured.bytes == 20_000_000 and measured.transport.streams == 2 and measured.seconds > 0
    from_file, in_memory = fullpipe.read_runs(file), fullpipe.read_runs(measured)
    assert in_memory.runs.equals(from_file.runs, null_equal=True)
    assert in_memory.samples.equals(from_file.samples, null_equal=True)
    assert in_memory.runs["goodput_bps"].to_list() == [measured.goodput_bps]

    again = fullpipe.measure(server.address, streams=2, size="20MB", seed=3, token_file=server.token)
    both = fullpipe.read_runs([measured, again])
    assert both.runs["id"].to_list() == [measured.id, f"{measured.id}~2"]
    assert both.skipped == []


def test_interval_lines_are_no_part_of_the_record(server: Server) -> None:
    measured = fullpipe.measure(
        server.address, duration=0.4, omit=0.1, token_file=server.token, flags=["--interval", "100ms"]
    )
    assert b'"interval"' not in measured.body and fullpipe.read_runs(measured).runs.height == 1
    assert measured.result["after_omitted"]["omit_s"] == 0.1


def test_a_measurement_is_one_record(server: Server) -> None:
    for flags in (["--repeat=2"], ["--repeat=2", "--interval=50ms"], ["--bidir"]):
        with pytest.raises(UsageError, match="measure: returns one record; leave out --repeat and --bidir"):
            fullpipe.measure(server.address, size="1MB", token_file=server.token, flags=flags)


def test_a_measurement_without_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULLPIPE", fake(tmp_path, "echo hello"))
    for call in (fullpipe.measure, fullpipe.measure_storage):
        with pytest.raises(RecordError, match="ended without a result; leave out flags"):
            call("host")


def test_measurements_that_fail(server: Server) -> None:
    with pytest.raises(PeerError, match="cannot connect"):
        fullpipe.measure("127.0.0.1:1", size="1MB")
    with pytest.raises(UsageError, match="streams"):
        fullpipe.measure(server.address, streams=300)
    with pytest.raises(UsageError, match="measure_storage"):
        fullpipe.measure("disk:/tmp")
    with pytest.raises(UsageError, match="mount: is storage, not a path; use fullpipe.measure_storage"):
        fullpipe.measure("mount:/tmp")
    with pytest.raises(UsageError, match=r"mount=nfs is storage; use fullpipe.measure_storage"):
        fullpipe.measure("lab:rtt=2ms,rate=1gbit,mount=nfs", size="20MB")


def test_storage_is_measured_for_each_value(tmp_path: Path) -> None:
    measured = fullpipe.measure_storage(
        tmp_path, write=True, threads=[1, 2], block="1MiB", direct="off", size="8MB"
    )
    assert [(run.operation, run.threads, run.block_bytes, run.direct) for run in measured] == [
        ("write", 1, 2**20, False),
        ("write", 2, 2**20, False),
    ]
    rows = read_storage(measured).runs
    assert rows["rate_bps"].to_list() == [run.rate_bps for run in measured]
    with pytest.raises(UsageError, match="no such file"):
        fullpipe.measure_storage(tmp_path / "missing")
    assert measured[0].mount is None
    (run,) = fullpipe.measure_storage("lab:rtt=10ms,rate=1gbit,mount=nfs+nconnect:2", read=True, size="10MB")
    assert run.mount is not None and "nconnect=2" in run.mount["options"] and run.rate_bps < 1e9
    with pytest.raises(UsageError, match="is not mounted over a network or by FUSE"):
        fullpipe.measure_storage(tmp_path, mount=True)


def test_a_selection_has_its_ranking(server: Server) -> None:
    chosen = fullpipe.select(rtt=0.0916, rate="10gbit", loss=1e-5, size="1GB")
    assert chosen.choice in chosen.ranking
    best = chosen.ranking[0].expected.mean_bps
    assert best == max(choice.expected.mean_bps for choice in chosen.ranking)
    assert chosen.choice.expected.mean_bps >= (1 - chosen.within) * best
    assert chosen.for_size is not None and chosen.for_size.bytes == 10**9
    assert chosen.path.startswith("lab:rtt=91.6ms,rate=10gbit") and chosen.path.endswith("loss=1e-5")
    assert fullpipe.select(server.address).capacity_bps is not None


def test_a_selection_over_one_protocol() -> None:
    def protocols(transport: str | None) -> set[str]:
        chosen = fullpipe.select(rtt="91.6ms", rate="10gbit", loss=1e-5, transport=transport)
        assert chosen.choice in chosen.ranking
        return {"udt" if one.transport.cc == "udt" else "tcp" for one in chosen.ranking}

    assert protocols("udt") == {"udt"}
    assert protocols("tcp") == {"tcp"}
    assert protocols(None) == {"udt", "tcp"}
    with pytest.raises(UsageError, match="sctp"):
        fullpipe.select(rtt="91.6ms", transport="sctp")


def test_a_selection_that_is_not_certain() -> None:
    with pytest.raises(UncertainError, match="no transport is certain") as caught:
        fullpipe.select(rtt="91.6ms", certain=0.95)
    needed = caught.value.selection.needed
    assert needed and all(runs.runs > 0 for runs in needed)
    assert caught.value.exit_code == 1 and "Runs to add" in str(caught.value)
    with pytest.raises(UsageError, match="no path given"):
        fullpipe.select()


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("cp", CopyOptions),
        ("measure", MeasureOptions),
        ("measure", StorageOptions),
        ("select", SelectOptions),
    ],
)
def test_every_option_is_a_flag_of_the_program(binary: str, verb: str, options: type) -> None:
    text = subprocess.run([binary, verb, "--help"], capture_output=True, text=True, check=True).stdout
    # A line that begins further to the right is of a description.
    known = dict(re.findall(r"^ {2,6}(?:-\w, )?--([\w-]+)( <\S+>)?", text, re.MULTILINE))
    for name, hint in inspect.get_annotations(options).items():
        assert name.replace("_", "-") in known, name
        assert bool(known[name.replace("_", "-")]) == ("Switch" not in str(hint)), (
            f"{name} has a value, or not"
        )


def test_the_options_are_parameters_that_notebooks_complete() -> None:
    parameters = inspect.signature(fullpipe.copy).parameters
    assert {"src", "dst", "progress", "recursive", "token_file"} <= parameters.keys()
    assert parameters["recursive"].default is False and parameters["pacing"].default is None
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def fake(tmp_path: Path, script: str) -> str:
    path = tmp_path / "bin" / "fullpipe"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo hello", "printed 'hello' where a JSON object should be"),
        ("exit 0", "ended without a result"),
        ('echo \'{"kind":"done","files":1}\'', "of the same version"),
        ('echo \'{"kind":"progress","bytes":"many"}\'; exec sleep 60', "of the same version"),
    ],
)
def test_another_program_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, text: str
) -> None:
    monkeypatch.setenv("FULLPIPE", fake(tmp_path, script))
    with pytest.raises(RecordError, match=text):
        fullpipe.copy("x", "host:")


def test_a_program_that_fails_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULLPIPE", fake(tmp_path, "exit 6"))
    with pytest.raises(FullpipeError, match="exit code 6 without an error message") as caught:
        fullpipe.copy("x", "host:")
    assert caught.value.exit_code == 6


def test_why_a_program_ended() -> None:
    assert program.error_text(b"x\nerror: a\n  b\n\nerror: c\n  d\n\nusage", 2) == "c\n  d"
    assert program.error_text(b"x\ny\n", 1) == "y"
    assert program.error_text(b"x\n", -signal.SIGKILL).startswith("ended by SIGKILL;")
    real_time = signal.SIGRTMIN + 3
    assert program.error_text(b"", -real_time).startswith(f"ended by signal {real_time};")


def test_notes_end_where_the_error_begins() -> None:
    assert Ended(1, b"warning: w\nnot kept: x\nerror: a\nb\n").notes() == ["warning: w"]
    assert Ended(1, b"error: a\n  b\n").notes() == []
    assert Ended(0, b"").notes() == []


def test_where_the_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, binary: str) -> None:
    assert program.find_binary() == binary
    beside = fake(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("FULLPIPE")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "scripts"))
    assert program.find_binary() == beside
    (tmp_path / "scripts").mkdir()
    (tmp_path / "bin" / "fullpipe").rename(tmp_path / "scripts" / "fullpipe")
    assert program.find_binary() == str(tmp_path / "scripts" / "fullpipe")
    (tmp_path / "scripts" / "fullpipe").unlink()
    with pytest.raises(MissingError, match="neither in this Python environment nor on PATH"):
        fullpipe.copy("x", "host:")
    monkeypatch.setenv("FULLPIPE", str(tmp_path / "gone"))
    with pytest.raises(MissingError, match=r"\$FULLPIPE is .*gone, which is not a program") as caught:
        fullpipe.select(rtt="1ms")
    assert caught.value.exit_code == 3
