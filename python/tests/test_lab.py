"""The programs of `lab` that need no testbed: how they count, and how they end."""

from collections.abc import Iterator

import pytest
from lab.sobas.__main__ import interval, side_by_side
from lab.validate import __main__ as validate
from lab.validate.row import Row


def test_an_interval_of_many_values() -> None:
    # t(0.975, 10) = 2.228 in any table; the standard deviation is the root of 11.
    assert interval([float(x) for x in range(995, 1006)]) == "1000 ± 2"
    assert interval([1000.0 + 100 * x for x in range(-5, 6)]) == "1000 ± 223"
    assert interval([5.0]) == "5"


def test_a_row_says_how_many_transfers_its_cells_have() -> None:
    def line(way: str, seed: int) -> dict[str, object]:
        about = {"path": "gigabit", "queue": "1MB", "cc": "cubic", "way": way, "seed": seed}
        return about | {"rate_bps": 9e8, "retransmits": 0, "queue_ms": [0.0, 1.0]}

    of_sobas = [line("sobas", seed) for seed in range(3)]
    assert side_by_side(of_sobas)[-1].endswith("| 3 |")
    assert side_by_side([*of_sobas, line("paper", 0)])[-1].endswith("| 1 to 3 |")


@pytest.mark.parametrize("error", [TypeError("a run without a rate"), RuntimeError()])
def test_a_broken_check_hides_no_other(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(_: bool) -> Iterator[Row]:
        yield Row("rate", "1 Gb/s", "1 Gb/s", True)
        raise error

    monkeypatch.setitem(validate.CHECKS, "rate", broken)
    (_, _), (row, _) = validate.run("rate", fast=True)
    assert row.ok is False and row.measured == (str(error) or repr(error))
