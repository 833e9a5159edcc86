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
    """The failure of a command of fullpipe, with its error text and exit code."""

    def __init__(self, words: str, code: int) -> None:
        """Takes the error text and the exit code."""
        super().__init__(words)
        self.code = code


def end(main: Callable[[], int]) -> NoReturn:
    """Runs a command and exits with its result, or with the error text and exit code of fullpipe."""
    try:
        sys.exit(main())
    except ToolError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)


def binary() -> str:
    """The path of fullpipe: `$FULLPIPE`, or the program that cargo builds in this repository."""
    return os.environ.get("FULLPIPE") or str(ROOT / "target/release/fullpipe")


def call(*words: str) -> str:
    """Runs `fullpipe WORDS` and returns its standard output.

    Raises:
        ToolError: The program cannot be started, or it fails.
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
    """Whether the scenario waits for its end; by default on end a only."""


@dataclass(frozen=True)
class Scene:
    """The result of a scenario."""

    stdout: list[str]
    """The standard output of each program, in order."""
    queue: list[Line]
    path: Line

    def record(self, program: int) -> "Record":
        """The record that one program, `fullpipe measure --json`, printed."""
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
    """A run's record: header, samples and result (docs/reference/record.md)."""

    header: Line
    samples: list[Line]
    """The samples of TCP_INFO by time, of both ends and all streams."""
    queue: list[Line]
    result: Line

    @classmethod
    def parse(cls, text: str) -> "Record":
        """Parses a record from NDJSON."""
        lines = [json.loads(line) for line in text.splitlines()]
        return cls(
            header=lines[0],
            samples=[line for line in lines if line["kind"] == "sample"],
            queue=[line for line in lines if line["kind"] == "queue"],
            result=lines[-1],
        )

    def of(self, end: str) -> list[Line]:
        """The samples of one end, `sender` or `receiver`."""
        return [sample for sample in self.samples if sample["end"] == end]

    @property
    def goodput(self) -> float:
        """The goodput in bit/s."""
        return float(self.result["goodput_bps"])


def lab_text(keys: Keys) -> str:
    """Formats a path for the command line."""
    return "lab:" + ",".join(f"{key}={value}" for key, value in keys.items())


def measure_text(keys: Keys, *flags: str) -> str:
    """Runs `fullpipe measure PATH FLAGS --json` and returns its output."""
    return call("measure", lab_text(keys), *flags, "--json", "--quiet")


def measure(keys: Keys, *flags: str) -> Record:
    """Runs `fullpipe measure PATH FLAGS` and returns its record."""
    return Record.parse(measure_text(keys, *flags))
