"""Runs fullpipe and reads what it prints."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]

#: A path's keys (docs/reference/path.md), as in `{"rtt": "45.6ms", "rate": "10gbit", "loss": 1e-3}`.
Keys = Mapping[str, str | int | float]
#: A line of NDJSON.
Line = dict[str, Any]


class ToolError(Exception):
    """fullpipe failed; its words, and its exit code."""

    def __init__(self, words: str, code: int) -> None:
        """With both."""
        super().__init__(words)
        self.code = code


def end(main: Callable[[], int]) -> NoReturn:
    """Ends a command: with what it returns, or with what fullpipe said and its exit code."""
    try:
        sys.exit(main())
    except ToolError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)


def binary() -> str:
    """fullpipe: `$FULLPIPE`, else what cargo builds in this repository."""
    return os.environ.get("FULLPIPE") or str(ROOT / "target/release/fullpipe")


def call(*words: str) -> str:
    """Standard output of `fullpipe WORDS`.

    Raises:
        ToolError: it cannot be started, or ends with another status than 0.
    """
    try:
        done = subprocess.run([binary(), *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolError(f"{binary()}: {error.strerror}; build it, or set FULLPIPE", 3) from error
    if done.returncode != 0:
        raise ToolError(done.stderr.strip() or f"status {done.returncode}", done.returncode)
    return done.stdout


@dataclass(frozen=True)
class Program:
    """A program on one end of the path."""

    end: str
    run: Sequence[str]
    start: str = "0s"
    wait: bool | None = None
    """Whether the scenario lasts until it ends; by default on end a only."""


@dataclass(frozen=True)
class Scene:
    """What a scenario gave."""

    stdout: list[str]
    """Of each program, in order."""
    queue: list[Line]
    path: Line

    def record(self, program: int) -> "Record":
        """The record that a program, `fullpipe measure --json`, has printed."""
        return Record.parse(self.stdout[program])


def scenario(
    keys: Keys,
    programs: Sequence[Program],
    *,
    until: str | None = None,
    sample: str = "100ms",
    sysctl: Mapping[str, str] | None = None,
) -> Scene:
    """Runs programs on the ends of a path."""
    # JSON's strings, numbers and booleans are TOML's.
    lines = [f"sample = {json.dumps(sample)}"]
    if until is not None:
        lines.append(f"until = {json.dumps(until)}")
    for title, table in (("path", keys), ("sysctl", sysctl or {})):
        lines.append(f"[{title}]")
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()]
    for program in programs:
        lines += ["[[program]]", f"end = {json.dumps(program.end)}", f"start = {json.dumps(program.start)}"]
        lines.append(f"run = {json.dumps(list(program.run))}")
        if program.wait is not None:
            lines.append(f"wait = {json.dumps(program.wait)}")
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write("\n".join(lines))
        file.flush()
        output = call("lab", "run", file.name, "--json", "--quiet")
    found = [json.loads(line) for line in output.splitlines()]
    return Scene(
        stdout=[line["stdout"] for line in found if line["kind"] == "program"],
        queue=[line for line in found if line["kind"] == "queue"],
        path=found[-1],
    )


@dataclass(frozen=True)
class Record:
    """A run's record (DESIGN: header, samples, result)."""

    header: Line
    samples: list[Line]
    """TCP_INFO by time, both ends, all streams."""
    queue: list[Line]
    result: Line

    @classmethod
    def parse(cls, text: str) -> "Record":
        """From NDJSON."""
        lines = [json.loads(line) for line in text.splitlines()]
        return cls(
            header=lines[0],
            samples=[line for line in lines if line["kind"] == "sample"],
            queue=[line for line in lines if line["kind"] == "queue"],
            result=lines[-1],
        )

    def of(self, end: str) -> list[Line]:
        """Samples of one end, `sender` or `receiver`."""
        return [sample for sample in self.samples if sample["end"] == end]

    @property
    def goodput(self) -> float:
        """Payload, bit/s."""
        return float(self.result["goodput_bps"])


def lab_text(keys: Keys) -> str:
    """A path as the command line takes it."""
    return "lab:" + ",".join(f"{key}={value}" for key, value in keys.items())


def measure_text(keys: Keys, *flags: str) -> str:
    """What `fullpipe measure PATH FLAGS --json` prints."""
    return call("measure", lab_text(keys), *flags, "--json", "--quiet")


def measure(keys: Keys, *flags: str) -> Record:
    """The record of `fullpipe measure PATH FLAGS`."""
    return Record.parse(measure_text(keys, *flags))
