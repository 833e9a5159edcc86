"""Runs scripts/layers on small crates, and checks which circles and upward imports it reports."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "layers"


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("layers")
    module.__file__ = str(SCRIPT)
    monkeypatch.setitem(sys.modules, "layers", module)
    exec(compile(SCRIPT.read_text(), SCRIPT, "exec"), module.__dict__)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def crate(folder: Path, files: dict[str, str]) -> Path:
    for name, code in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(code)
    return folder / "lib.rs"


@pytest.mark.parametrize(
    "mention",
    [
        "use crate::b::g;",
        "use crate::{b::{self, g}};",
        "use super::b; fn f() { b::g() }",
        "use crate::again;",
        "use crate::b::*;",
        "fn f() -> Vec<crate::b::G> {}",
        'fn f() { println!("{}", crate::b::g()) }',
        "fn f() { crate::b::G::<u8>::new() }",
    ],
)
def test_circles_are_found(layers: ModuleType, tmp_path: Path, mention: str) -> None:
    root = crate(
        tmp_path,
        {
            "lib.rs": "mod a; mod b; pub use b::g as again;",
            "a.rs": f"{mention} pub struct A;",
            "b.rs": "use crate::a::A; pub fn g() {} pub struct G;",
        },
    )
    found = layers.circles(layers.read_imports(layers.read_file(root, [], None)))
    assert found == [[tmp_path / "a.rs", tmp_path / "b.rs"]]


def test_a_parent_and_its_child_may_be_a_circle(layers: ModuleType, tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a;",
        "a.rs": "mod b; use b::B; pub struct A;",
        "a/b.rs": "use super::A; pub struct B;",
    }
    found = layers.circles(layers.read_imports(layers.read_file(crate(tmp_path, files), [], None)))
    assert found == [[tmp_path / "a/b.rs", tmp_path / "a.rs"]]


def test_tests_comments_and_other_crates_are_no_imports(layers: ModuleType, tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; mod b;",
        "a.rs": "// crate::b::g\nuse b2::g; #[cfg(test)] mod tests { use crate::b::g; } pub struct A;",
        "b.rs": "use crate::a::A; pub fn g() {}",
    }
    root = layers.read_file(crate(tmp_path, files), [], None)
    imports = layers.read_imports(root)
    assert layers.circles(imports) == []
    assert imports == {tmp_path / "b.rs": {tmp_path / "a.rs": {"A"}}}
    assert layers.check_order(root, imports, [["b"], ["a"]]) == []
    (upward,) = layers.check_order(root, imports, [["a"], ["b"]])
    assert "b.rs imports a.rs, a higher layer: A" in upward
    (homeless,) = layers.check_order(root, imports, [["a"]])
    assert "b.rs stands in no layer" in homeless
