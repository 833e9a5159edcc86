"""Reads `claims.toml`: the papers' claims as clauses with their runs, test and printed number."""

import itertools
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lab.papers.cells import Value
from lab.papers.compare import Bounds

FILE = Path(__file__).parent / "claims.toml"
HOST_NOISE_MS = 10.0
"""The verdicts are of hosts whose programs pause for 10 ms on average, once a second."""
Conditions = dict[str, Value]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Clause(_Table):
    """What all clauses have."""

    says: str
    """The statement, in words."""
    source: str
    """The paper's figure or section."""
    printed: str
    """The paper's number, as printed or read."""
    because: str = ""
    """The known reason of a difference."""
    remark: str = ""
    """In what the clause is not the paper's text."""
    where: Conditions = {}
    """Conditions of all runs of the clause, beside the defaults of the file."""
    each: dict[str, list[Value]] = {}
    """Axes whose values are compared apart: every combination is one part."""

    def parts(self, defaults: Conditions) -> Iterator[tuple[str, Conditions]]:
        """The label and the conditions of each part."""
        for values in itertools.product(*self.each.values()):
            varied = dict(zip(self.each, values, strict=True))
            label = ", ".join(f"{name} {value}" for name, value in varied.items())
            yield label, defaults | self.where | varied


class _Bounded(_Clause):
    low: float = -math.inf
    high: float = math.inf

    @property
    def bounds(self) -> Bounds:
        """The range that the paper states."""
        return Bounds(self.low, self.high)


class Level(_Bounded):
    """The mean of a quantity over the runs of a cell lies in the range."""

    test: Literal["level"]
    of: str = "goodput_gbps"


class Ratio(_Bounded):
    """The ratio of two cells lies in the range; of their runs, or with `spread` of their spreads."""

    test: Literal["ratio"]
    of: str = "goodput_gbps"
    over: Conditions = {}
    """What differs in the cell above the line."""
    under: Conditions = {}
    """What differs in the cell below the line."""
    along: dict[str, list[Value]] = {}
    """Instead of both: an axis, each of whose values is divided by the one before."""
    others: dict[str, list[Value]] = {}
    """Instead of `under`: an axis, with each of whose values the cell above the line is compared."""
    best: dict[str, list[Value]] = {}
    """An axis: of each seed the largest value over it counts, on both sides."""
    spread: bool = False

    def pairs(self) -> list[tuple[str, Conditions, Conditions]]:
        """A label, what differs above the line, and what differs below it."""
        if self.along:
            ((axis, values),) = self.along.items()
            return [(f"{axis} {a} to {b}", {axis: b}, {axis: a}) for a, b in itertools.pairwise(values)]
        if self.others:
            ((axis, values),) = self.others.items()
            return [(f"against {value}", self.over, {axis: value}) for value in values]
        return [("", self.over, self.under)]


class Gain(_Bounded):
    """The ratio of two cells is larger under one condition than under another."""

    test: Literal["gain"]
    of: str = "goodput_gbps"
    over: Conditions
    under: Conditions
    here: Conditions
    """The conditions of the first ratio."""
    there: Conditions
    """The conditions of the second ratio, by which the first is divided."""


class Correlation(_Bounded):
    """The rank correlation of two quantities, over runs of one cell or means of several versions."""

    test: Literal["correlation"]
    of: str
    with_: Annotated[str, Field(alias="with")] = "goodput_gbps"
    across: dict[str, list[Value]] = {}
    """An axis whose values are the points, each with its means; without it, the runs are the points."""


class Shape(_Clause):
    """A profile has this shape."""

    test: Literal["shape"]
    shape: Literal["convex", "concave", "dual"]


class Transition(_Clause):
    """The dual sigmoid's transition RTT has this value with all these streams, in most replicates."""

    test: Literal["transition"]
    tau_ms: float
    streams: list[int]


class Growth(_Clause):
    """The dual sigmoid's transition RTT grows along an axis (Kendall), in most replicates."""

    test: Literal["growth"]
    along: dict[str, list[Value]]


class Untested(_Clause):
    """A statement for which this testbed has no measurement."""

    test: Literal["none"]


Clause = Annotated[
    Level | Ratio | Gain | Correlation | Shape | Transition | Growth | Untested, Field(discriminator="test")
]


class Claim(_Table):
    """A finding of the papers."""

    name: str
    title: str
    clause: list[Clause]


class Claims(_Table):
    """The whole file."""

    defaults: Conditions
    """Conditions of every clause that names no others."""
    claim: list[Claim]


def read_claims(file: Path = FILE) -> Claims:
    """Reads and checks a file of claims."""
    return Claims.model_validate(tomllib.loads(file.read_text()))
