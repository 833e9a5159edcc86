"""Merges the folders of a campaign's shards into one folder, after checking that they fit together."""

import filecmp
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fullpipe.campaign.shard import Shard, parse_shard
from fullpipe.campaign.state import DESCRIPTION, describe, digest, read_description
from fullpipe.errors import FailedError, RecordError, UsageError
from fullpipe.files import whole, write_whole
from fullpipe.record import (
    FAILED,
    SUFFIXES,
    read_failures,
    read_outcome,
    record_name,
    records_in,
)
from fullpipe.units import counted, verb


@dataclass(frozen=True)
class Part:
    """The folder of one shard."""

    folder: Path
    about: dict[str, Any]
    """Its `campaign.json`."""
    shard: Shard
    records: dict[str, Path]
    """The complete records by the name of their run."""

    @property
    def missing(self) -> list[str]:
        """The names of the shard's runs that have no complete record."""
        return [name for name in self.about["names"] if name not in self.records]


@dataclass(frozen=True)
class Merged:
    """What a merge did."""

    runs: int
    """The number of runs of the whole campaign."""
    records: int
    """The number of records from the shards that the folder now has."""
    missing: int
    """The number of runs without a record in the folder; if `unknown` is not 0, the least that it can be."""
    others: list[str] = field(default_factory=list)
    """The names of records in the shards' folders that are not of the campaign; they were copied, too.

    Empty if a shard is absent, whose runs have names that nobody knows.
    """
    unknown: int = 0
    """With a shard absent, the number of records in the folder that may or may not be of its runs."""


def _records(folder: Path) -> dict[str, Path]:
    return {record_name(p): p for p in records_in(folder) if read_outcome(p) is not None}


def read_part(folder: Path) -> Part:
    """Reads what the folder of a shard has.

    Raises:
        RecordError: There is no such folder, or its `campaign.json` is missing or damaged.
        UsageError: The folder has a whole campaign.
    """
    if not folder.is_dir():
        raise RecordError(f"{folder}: no such folder; check the name")
    about = read_description(folder)
    if about is None:
        raise RecordError(
            f"{folder}: has no readable {DESCRIPTION}, which 'fullpipe campaign run --shard' writes; "
            "give the folders of shards"
        )
    if "shard" not in about:
        raise UsageError(
            f"{folder}: is no shard, but a campaign that ran without --shard; give the folders of shards"
        )
    try:
        shard = parse_shard(about["shard"])
        known = isinstance(about["runs"], int) and isinstance(about["runs_sha256"], str)
        known = known and isinstance(about["file"], str) and isinstance(about["title"], str | None)
        known = known and isinstance(about["names"], list)
        known = known and all(isinstance(name, str) for name in about["names"])
    except (KeyError, TypeError, AttributeError, UsageError):
        known = False
    if not known:
        raise RecordError(
            f"{folder / DESCRIPTION}: is damaged or of another version; repeat the shard's command, which "
            "rewrites it and keeps the records"
        )
    return Part(folder, about, shard, _records(folder))


def _of(part: Part) -> str:
    return f"{part.folder} is of {part.about['file']} ({counted(part.about['runs'], 'run')})"


def _check_campaign(parts: Sequence[Part]) -> None:
    first = parts[0]
    for part in parts[1:]:
        if part.about["runs_sha256"] != first.about["runs_sha256"]:
            raise UsageError(
                f"these are shards of different campaigns: {_of(first)}, {_of(part)}; "
                "merge each campaign by itself"
            )
        if part.shard.count != first.shard.count:
            raise UsageError(
                f"{first.folder} is shard {first.shard} and {part.folder} is shard {part.shard}: "
                "the numbers of shards differ; run all with the same one"
            )


def _check_once(parts: Sequence[Part]) -> None:
    by_shard: dict[Shard, Part] = {}
    records: dict[str, Part] = {}
    listed: dict[str, Part] = {}
    for part in parts:
        if (other := by_shard.setdefault(part.shard, part)) is not part:
            raise UsageError(f"{other.folder} and {part.folder} are both shard {part.shard}; leave one out")
        for name in part.about["names"]:
            if (other := listed.setdefault(name, part)) is not part:
                raise UsageError(
                    f"{name} belongs to shard {other.shard} and to shard {part.shard}: different versions of "
                    "fullpipe split the campaign; run all shards with one version"
                )
        for name in part.records:
            if (other := records.setdefault(name, part)) is not part:
                raise UsageError(
                    f"{name} has a record in {other.folder} and in {part.folder}; remove one of the two"
                )


def _check_whole(parts: Sequence[Part]) -> None:
    count = parts[0].shard.count
    there = {part.shard.number for part in parts}
    gone = [str(Shard(number, count)) for number in range(1, count + 1) if number not in there]
    if gone:
        few = ", ".join(gone[:10]) + (f" and {len(gone) - 10} more" if len(gone) > 10 else "")
        what = f"shard {few} is missing" if len(gone) == 1 else f"shards {few} are missing"
        raise UsageError(f"{what}; give all {count} folders, or merge what there is with --partial")
    if digest(name for part in parts for name in part.about["names"]) != parts[0].about["runs_sha256"]:
        raise UsageError(
            "the shards together are not the whole campaign: different versions of fullpipe split it; "
            "run all shards with one version"
        )
    lacking = [part for part in parts if part.missing]
    if lacking:
        lines = "".join(
            f"\n  shard {part.shard} in {part.folder}: {len(part.missing)} of "
            f"{counted(len(part.about['names']), 'run')}"
            for part in lacking
        )
        total = sum(len(part.missing) for part in lacking)
        raise FailedError(
            f"{total} of {counted(parts[0].about['runs'], 'run')} {verb(total, 'has', 'have')} no record; "
            f"run these shards again, or merge what there is with --partial:{lines}"
        )


def _check_out(out: Path, parts: Sequence[Part]) -> None:
    for part in parts:
        if out.exists() and out.samefile(part.folder):
            raise UsageError(f"{out} is itself shard {part.shard}; give another folder for all of them")
    about = read_description(out)
    if about is not None and "shard" in about:
        raise UsageError(f"{out} has shard {about['shard']}; give another folder for all of them")
    if about is not None and about.get("runs_sha256") != parts[0].about["runs_sha256"]:
        raise UsageError(f"{out} has another campaign already; give a new folder")
    for part in parts:
        for name, file in part.records.items():
            for there in (out / f"{name}{suffix}" for suffix in SUFFIXES):
                same = there.name == file.name and there.exists() and filecmp.cmp(file, there, shallow=False)
                if there.exists() and not same:
                    raise UsageError(
                        f"{there} exists already and differs from {file}; remove one of the two, or give a "
                        "new folder"
                    )


def _copy(file: Path, out: Path) -> None:
    if (out / file.name).exists():
        return
    with whole(out / file.name) as partial:
        shutil.copy2(file, partial)


def _merge_failures(out: Path, parts: Sequence[Part], done: set[str]) -> None:
    every = [failure for folder in (out, *(p.folder for p in parts)) for failure in read_failures(folder)]
    kept = list(dict.fromkeys(json.dumps(failure) for failure in every if failure["name"] not in done))
    if kept:
        write_whole(out / FAILED, "".join(line + "\n" for line in kept))
    else:
        (out / FAILED).unlink(missing_ok=True)


def merge(out: Path, folders: Sequence[Path], partial: bool = False) -> Merged:
    """Copies the records of a campaign's shards into one folder. The shards stay as they are.

    Nothing is written before all checks have passed. A merge that was interrupted goes on when it is
    repeated: records that the folder has already are compared and kept.

    Args:
        out: The folder for the whole campaign.
        folders: The folders of the shards.
        partial: Whether shards and runs may be missing.

    Returns:
        The numbers of runs and records.

    Raises:
        UsageError: The shards are of different campaigns, a shard or a run is there twice, a shard is
            missing, or the folder has other records of these names.
        FailedError: Runs have no record.
        RecordError: A folder cannot be read or written.
    """
    parts = sorted(map(read_part, folders), key=lambda part: part.shard.number)
    _check_campaign(parts)
    _check_once(parts)
    if not partial:
        _check_whole(parts)
    _check_out(out, parts)
    first = parts[0].about
    about = describe(first["file"], out, first["title"], first["runs"], first["runs_sha256"])
    write_whole(out / DESCRIPTION, json.dumps(about, indent=1) + "\n")
    for part in parts:
        for file in part.records.values():
            _copy(file, out)
    listed = {name for part in parts for name in part.about["names"]}
    copied = {name for part in parts for name in part.records}
    done = set(_records(out))
    _merge_failures(out, parts, done)
    if digest(listed) == first["runs_sha256"]:
        return Merged(first["runs"], len(copied), len(listed - done), sorted(copied - listed))
    # The names of an absent shard's runs are unknown: any other record in the folder may be of one.
    unknown, unlisted = len(done - listed), first["runs"] - len(listed)
    missing = len(listed - done) + max(unlisted - unknown, 0)
    return Merged(first["runs"], len(copied), missing, unknown=unknown)
