import ast

from conftest import ROOT

# Scripts that import each other by file name are no package, which import-linter needs.
BENCH = ROOT / "bench"
MAY_IMPORT = {"common": set[str](), "ends": {"common"}, "namespaces": set[str](), "udt_relay": set[str]()}
#: What several benchmarks use, and what one consists of.
SHARED = {"common", "ends", "namespaces", "udt_relay"}


def test_a_benchmark_imports_no_other_benchmark() -> None:
    modules = {file.stem for file in BENCH.glob("*.py")}
    for file in BENCH.glob("*.py"):
        found: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        assert found & modules <= MAY_IMPORT.get(file.stem, SHARED), file.name
