import ast

from conftest import ROOT

# Scripts that import each other by file name are no package, which import-linter needs.
BENCH = ROOT / "bench"
#: What several benchmarks share, or one consists of besides itself, and what each of these may import.
SHARED = {
    "common": set[str](),
    "ends": {"common"},
    "kept": {"scenarios"},
    "namespaces": set[str](),
    "scenarios": {"common"},
    "udt_relay": set[str](),
}


def test_a_benchmark_imports_no_other_benchmark() -> None:
    modules = {file.stem for file in BENCH.glob("*.py")}
    for file in BENCH.glob("*.py"):
        found: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        assert found & modules <= SHARED.get(file.stem, set(SHARED)), file.name
