"""Runs the rules of scripts/crates on single crates."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "crates"


@pytest.fixture(scope="module")
def crates() -> ModuleType:
    module = ModuleType("crates")
    module.__file__ = str(SCRIPT)
    sys.modules["crates"] = module
    exec(compile(SCRIPT.read_text(), SCRIPT, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize(
    ("licence", "says"),
    [
        ("MIT", None),
        ("MIT/Apache-2.0", None),
        ("Apache-2.0 WITH LLVM-exception OR MIT", None),
        ("(MIT OR GPL-3.0-only) AND Apache-2.0", None),
        ("GPL-3.0-only", "not among those"),
        ("MIT AND GPL-3.0-only", "not among those"),
        ("Apache-2.0 WITH LLVM-exception", "not among those"),
        ("MIT OR Unheard", "cannot be read"),
        ("", "no licence"),
    ],
)
def test_licences(crates: ModuleType, licence: str, says: str | None) -> None:
    found = crates.licence_fault(crates.Crate("x", "1.0.0", licence), {"MIT", "Apache-2.0"})
    assert found is None if says is None else says in found


def test_versions(crates: ModuleType) -> None:
    built = {crates.Crate("a", version, "MIT") for version in ("0.2.17", "0.4.1")}
    assert crates.version_faults(built, []) == ["a: 2 versions: 0.2.17, 0.4.1"]
    assert crates.version_faults(built, ["a@0.2"]) == []
    # 0.2 is no beginning of 0.21.
    other = {crates.Crate("a", version, "MIT") for version in ("0.21.0", "0.4.1")}
    assert crates.version_faults(other, ["a@0.2"]) != []
