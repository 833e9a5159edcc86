"""Builds the commands that repeat the figures and the runs of a report."""

import shlex
from pathlib import Path
from typing import Any

from fullpipe.campaign.state import read_description
from fullpipe.flatten import SOBAS
from fullpipe.run import transport_flag


def campaign_of(folder: Path) -> dict[str, Any]:
    """Reads the description that a campaign left beside its records; empty without one."""
    about = read_description(folder) or {}
    known = all(isinstance(about.get(name), str) for name in ("file", "out"))
    return about if known else {}


def whole(folder: Path, about: dict[str, Any], out: Path) -> str:
    """The command that repeats the campaign, if there was one, and writes the report."""
    if not about:
        return f"fullpipe report {shlex.quote(str(folder))} -o {shlex.quote(str(out))}"
    default = Path("runs") / Path(about["file"]).stem
    where = "" if Path(about["out"]) == default else f" --out {shlex.quote(about['out'])}"
    where += f" --shard {about['shard']}" if "shard" in about else ""
    return (
        f"fullpipe campaign run {shlex.quote(about['file'])}{where} && "
        f"fullpipe report {shlex.quote(about['out'])} -o {shlex.quote(str(out))}"
    )


def storage(folder: Path, about: dict[str, Any]) -> str:
    """The command that prints the table of a folder's measurements of storage."""
    return f"fullpipe analyze {shlex.quote(about.get('out', str(folder)))}"


def figure(folder: Path, about: dict[str, Any], name: str, section: int) -> str:
    """The command that draws one figure; `section` counts from 1."""
    place = about.get("out", str(folder))
    which = "" if section == 1 else f" --section {section}"
    suffix = "" if section == 1 else f"-{section}"
    return f"fullpipe report {shlex.quote(place)} --figure {name}{which} -o {name}{suffix}.svg"


def _ends(path: str, copy: dict[str, Any], direction: str) -> list[str]:
    """The two ends of a copy as arguments, after the flag for encryption."""
    if path.startswith("lab:"):
        far = f"{path}:/FOLDER/"
    elif copy.get("over") == "ssh":
        host = path.rpartition(":")[0]
        far = f"{host}:FOLDER/"
    else:
        far = f"fullpipe://{path}/FOLDER/"
    plain = [] if copy.get("encrypted", True) else ["--no-encrypt"]
    return [*plain, "FILE", far] if direction == "send" else [*plain, far + "FILE", "."]


def measure(header: dict[str, Any]) -> str:
    """The command that repeats one run, from its record's first line.

    For a copy, FILE and FOLDER stand for the files, which the record does not name.
    """
    path, transport, workload = header["path"], header["transport"], header["workload"]
    if not isinstance(path, str):
        path = "lab:" + ",".join(f"{key}={value}" for key, value in path.items())
    copy = header.get("copy")
    disks = header.get("disks")
    is_cp = bool(copy or header.get("sobas"))
    if disks and isinstance(header["path"], dict) and "disk_a" in header["path"]:
        # `cp` copies into the testbed, never from one of its disks.
        is_cp = False
    words = ["fullpipe", "cp"] if is_cp else ["fullpipe", "measure", path]
    words += [*transport_flag(transport["cc"]), "--streams", str(transport["streams"])]
    words += (
        ["--buffer", SOBAS, "--sobas", header["sobas"]]
        if header.get("sobas")
        else ["--buffer", transport["buffer"]]
    )
    words += ["--pacing", transport["pacing"]] if transport.get("pacing") else []
    words += [w for key in ("dscp", "mss") if transport.get(key) for w in (f"--{key}", str(transport[key]))]
    if words[1] == "cp":
        return shlex.join([*words, *_ends(path, copy or {}, header["direction"])])
    words += [word for key, value in workload.items() for word in (f"--{key}", value)]
    words += ["--block", disks["block"], "--direct", disks["direct"]] if disks else []
    words += ["--seed", str(header["seed"]), "--sample", header["sample"]]
    words += ["--reverse"] if header["direction"] == "receive" else []
    return shlex.join(words)
