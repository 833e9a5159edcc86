"""Predicts the throughput of a transport over a path; a million predictions take seconds.

The model is deterministic and simplifies Linux's TCP on a dedicated path with a drop-tail queue. It
simulates slow start burst by burst, with CUBIC's HyStart (`ramp`), and then windows as a fluid, with losses
that hit all streams at once (`steady`). It covers window limits, the congestion controls `cubic`, `htcp`,
`scalable`, `reno` and `bbr`, parallel streams with their shares of a transfer, and random loss by closed
forms. `python -m fullpipe.model.check` compares it with runs in the testbed.

Three of its numbers were measured rather than taken from the kernel's sources: `buffers.MEMORY_SHARE` and
`buffers.AUTO_MEMORY_BYTES` (in runs of their own), and `ramp.BBR_STARTUP_LAG` (in one cell of a profile).

Its approximations:

- A queue that overflows by a packet or two makes only some streams lose packets; in the model all do. This
  matters for H-TCP and Reno, whose windows after slow start add up to just what the path and its queue hold.
- BBR is reduced to its startup, a window of two BDPs, and PROBE_RTT. Losses during its startup are ignored.
- Under random loss windows have their mean size. The spread over runs, which is large if losses are few, is
  not modelled.
- In queues of a few packets it matters how packets are grouped, which the model ignores.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from fullpipe.buffers import granted_window
from fullpipe.errors import UsageError
from fullpipe.flatten import sized_by_sobas
from fullpipe.model.congestion import CUBIC_BETA, HTCP_BETA_LOW, RENO_BETA, SCALABLE_BETA
from fullpipe.model.ramp import Cases, Floats, bbr_startup, even_starts, seeded_starts, slow_start
from fullpipe.model.steady import BBR_PROBE_EVERY_S, BBR_PROBE_RTT_S, sustain
from fullpipe.run import LabPath, RunSpec
from fullpipe.tcp import ETHERNET_HEADER, TCP_HEADERS

CONGESTION_CONTROLS = ("bbr", "cubic", "htcp", "reno", "scalable")
"""The congestion controls that the model covers."""

FRAMING_BYTES = {"10gige": 24, "oc192": 12}
"""The bytes that a modality's line adds to each frame."""
MAX_STREAMS = 128
OTHER_CONDITIONS = (
    "jitter_ms", "reorder", "duplicate", "corrupt", "cross", "host_noise_ms", "host_a", "host_b", "disk_a",
    "disk_b", "mss",
)  # fmt: skip
"""The columns of runs for conditions that the model does not cover."""
_BLOCK = 65536


@dataclass(frozen=True)
class NetworkPath:
    """A dedicated path. Fields are numbers, or arrays that broadcast against each other."""

    rtt_s: ArrayLike
    """The round-trip time of the empty path, in s."""
    rate_bps: ArrayLike
    """The rate of the bottleneck in bit/s, counting frames."""
    queue_bytes: ArrayLike | None = None
    """The size of the bottleneck's drop-tail queue in bytes of frames; None or NaN for one BDP."""
    mtu: ArrayLike = 9000
    """The largest IP packet in bytes."""
    loss: ArrayLike = 0.0
    """The probability that a packet is lost, independently of others."""
    framing_bytes: ArrayLike = 0
    """The bytes that the line adds to each Ethernet frame: 24 for `10gige`, 12 for `oc192`."""


@dataclass(frozen=True)
class Transport:
    """A transport: congestion control, streams, socket buffer and pacing."""

    cc: str | ArrayLike = "cubic"
    """One of :data:`CONGESTION_CONTROLS`, or an array of them."""
    streams: ArrayLike = 1
    """The number of parallel streams, 1 to 128."""
    buffer_bytes: ArrayLike | None = None
    """The socket buffer of each stream at both ends in bytes; None or NaN for autotuning."""
    pacing_bps: ArrayLike | None = None
    """The pacing rate of all streams together in bit/s of frames; None or NaN for no limit."""


@dataclass(frozen=True)
class Workload:
    """A workload, either a size or a duration. In arrays, NaN marks the one that is not given."""

    size_bytes: ArrayLike | None = None
    """The size over all streams in bytes; streams carry equal shares."""
    duration_s: ArrayLike | None = None
    """The duration from the first byte's arrival, in s."""


def _of(kind: type, value: Any, what: str) -> Any:
    if isinstance(value, kind):
        return value
    if isinstance(value, Mapping):
        known = {field.name for field in fields(kind)}
        unknown = sorted(set(value) - known)
        if unknown:
            raise UsageError(f"{what} has no '{unknown[0]}'; it has {', '.join(sorted(known))}")
        try:
            return kind(**value)
        except TypeError as error:
            raise UsageError(f"{what}: {error}") from None
    raise UsageError(
        f"{what} must be a {kind.__name__} or a mapping of its fields, not {type(value).__name__}"
    )


def lab_path(path: LabPath, reverse: bool = False) -> NetworkPath:
    """Converts an emulated path for the model; `reverse` is for data that cross it from b to a."""
    return NetworkPath(
        rtt_s=path.rtt / 1e9,
        rate_bps=path.rate,
        queue_bytes=path.queue,
        mtu=path.mtu,
        loss=path.loss_back if reverse else path.loss,
        framing_bytes=FRAMING_BYTES.get(path.modality or "", 0),
    )


def _numbers(value: Any, what: str, missing: bool = False, zero: bool = False) -> Floats:
    """Converts to finite positive numbers; with `missing`, None and NaN stand for a missing value."""
    try:
        array = np.asarray(np.nan if value is None else value, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"{what} must be a number or an array of numbers") from None
    good = np.isfinite(array) & ((array >= 0) if zero else (array > 0))
    if missing:
        good |= np.isnan(array)
    if not good.all():
        least = "zero or more" if zero else "above zero"
        raise UsageError(f"{what} must be a finite number {least}; {array[~good].flat[0]:g} is not")
    return array


def _choice(cc: Any) -> NDArray[Any]:
    """Congestion controls as indices into :data:`CONGESTION_CONTROLS`."""
    names = np.asarray(cc)
    codes = np.full(names.shape, -1, dtype=np.int64)
    for code, name in enumerate(CONGESTION_CONTROLS):
        codes[names == name] = code
    if (codes < 0).any():
        raise UsageError(
            f"congestion control '{names[codes < 0].flat[0]}' has no model; there is one for "
            + ", ".join(CONGESTION_CONTROLS)
        )
    return codes


BETA = {
    "bbr": 1.0,
    "cubic": CUBIC_BETA,
    "htcp": HTCP_BETA_LOW,
    "reno": RENO_BETA,
    "scalable": SCALABLE_BETA,
}
"""Fraction of the window that remains after a loss. H-TCP keeps more from its third loss on (`steady`)."""


def _seeds(seed: Any) -> NDArray[np.uint64]:
    if seed is None:
        return np.zeros((), dtype=np.uint64)
    array = np.asarray(seed)
    if not np.issubdtype(array.dtype, np.integer) or (array < 0).any():
        raise UsageError("seeds must be whole numbers, zero or more")
    return array.astype(np.uint64)


def _phases(n: int, seeds: NDArray[np.uint64] | None, cases: int) -> Floats:
    if seeds is None:
        return np.broadcast_to(even_starts(n), (cases, n))
    distinct, which = np.unique(seeds, return_inverse=True)
    return np.array([seeded_starts(n, int(each)) for each in distinct])[which]


def _group(cc: str, n: int, c: Cases) -> tuple[Floats, Floats]:
    """When the last packet left, in RTTs since the first arrival, and the packets sent by the end."""
    state = bbr_startup(c, n) if cc == "bbr" else slow_start(c, n, hystart=cc == "cubic")
    state = sustain(cc, c, state)
    return state.finish - c.phase[:, 0], state.sent


def predict(
    path: NetworkPath | LabPath | Mapping[str, Any],
    transport: Transport | Mapping[str, Any],
    workload: Workload | Mapping[str, Any],
    seed: ArrayLike | None = None,
) -> Floats:
    """Predicts the goodput of transfers in bit/s.

    Goodput is the payload over the time from the first byte's arrival to the last.

    All fields of the three arguments broadcast against each other.

    Args:
        path: RTT, rate, queue, MTU, loss.
        transport: Congestion control, streams, socket buffer, pacing.
        workload: Either a size or a duration.
        seed: The seed of a run in the testbed, which determines when its streams start within the first RTT;
            None for evenly spaced starts.

    Returns:
        The goodput, of the arguments' common shape; a float64 array without dimension for single numbers.

    Raises:
        UsageError: A value is not a number or out of range, a congestion control has no model, neither or
            both of size and duration are given, or shapes do not broadcast.
    """
    line = lab_path(path) if isinstance(path, LabPath) else _of(NetworkPath, path, "path")
    how, what = _of(Transport, transport, "transport"), _of(Workload, workload, "workload")
    given = [
        _numbers(line.rtt_s, "path rtt_s"),
        _numbers(line.rate_bps, "path rate_bps"),
        _numbers(line.queue_bytes, "path queue_bytes", missing=True),
        _numbers(line.mtu, "path mtu"),
        _numbers(line.loss, "path loss", zero=True),
        _numbers(line.framing_bytes, "path framing_bytes", zero=True),
        _choice(how.cc),
        _numbers(how.streams, "transport streams"),
        granted_window(_numbers(how.buffer_bytes, "transport buffer_bytes", missing=True)),
        _numbers(how.pacing_bps, "transport pacing_bps", missing=True),
        _numbers(what.size_bytes, "workload size_bytes", missing=True),
        _numbers(what.duration_s, "workload duration_s", missing=True),
        _seeds(seed),
    ]
    try:
        whole = np.broadcast_arrays(*given)
    except ValueError as error:
        raise UsageError(f"fields of path, transport and workload do not broadcast: {error}") from None
    shape = whole[0].shape
    rtt, rate, queue, mtu, loss, framing, cc, streams, window, pacing, size, duration, seeds = (
        array.reshape(-1) for array in whole
    )
    if (mtu <= TCP_HEADERS + ETHERNET_HEADER).any():
        raise UsageError(f"path mtu must be above {TCP_HEADERS + ETHERNET_HEADER} bytes of headers")
    if (loss >= 1).any():
        raise UsageError("path loss must be below 1")
    if (streams != np.floor(streams)).any() or (streams > MAX_STREAMS).any():
        raise UsageError(f"transport streams must be whole numbers, 1 to {MAX_STREAMS}")
    if (np.isnan(size) == np.isnan(duration)).any():
        raise UsageError("workload: give either size_bytes or duration_s, and not both")
    if (size < streams).any():
        raise UsageError("workload size_bytes is less than a byte for each stream")

    payload = mtu - TCP_HEADERS
    per_s = rate / 8 / (mtu + ETHERNET_HEADER + framing)  # packets
    queue = np.where(np.isnan(queue), rate * rtt / 8, queue)
    b = per_s * rtt
    each = np.where(np.isnan(pacing), np.inf, pacing / streams / 8 / (mtu + ETHERNET_HEADER) * rtt)
    cases = Cases(
        rtt_s=rtt,
        b=b,
        queue=np.maximum(queue / (mtu + ETHERNET_HEADER), 1),
        # Pacing below the path's rate has the effect of a window limit, because nothing queues.
        window=np.minimum(window / payload, np.where(each * streams <= b, each, np.inf)),
        share=np.where(np.isnan(size), np.inf, size / streams / payload),
        end=np.where(np.isnan(duration), np.inf, duration / rtt),
        loss=loss,
        pacing=each,
        beta=np.ones_like(rtt),
        phase=np.zeros((len(rtt), 0)),
    )
    finish, sent = np.empty(len(rtt)), np.empty(len(rtt))
    # Similar cases are computed together in blocks, because they take about the same number of steps.
    key = cc * (MAX_STREAMS + 1) + streams.astype(np.int64)
    order = np.lexsort((np.minimum(cases.b, cases.window), key))
    bounds = np.flatnonzero(np.diff(key[order], prepend=-1, append=-1))
    for low, high in zip(bounds[:-1], bounds[1:], strict=True):
        name, n = CONGESTION_CONTROLS[cc[order[low]]], int(streams[order[low]])
        blocks = math.ceil((high - low) / max(_BLOCK // n, 512))
        for ids in np.array_split(order[low:high], blocks):
            block = cases.take(ids)
            block.beta = np.full_like(block.b, BETA[name])
            block.phase = _phases(n, None if seed is None else seeds[ids], len(ids))
            finish[ids], sent[ids] = _group(name, n, block)
    took = finish * rtt
    with np.errstate(invalid="ignore"):
        goodput = 8 * np.where(np.isnan(size), sent * payload / duration, size / took)
    if (bbr := cc == CONGESTION_CONTROLS.index("bbr")).any():
        # Every ten seconds BBR reduces its window to a few packets, to measure the RTT without a queue.
        lasting = np.where(np.isnan(duration), took, duration)
        pause = np.floor(lasting / BBR_PROBE_EVERY_S) * (BBR_PROBE_RTT_S + rtt) / lasting
        goodput = np.where(
            bbr, goodput * np.where(np.isnan(size), 1 - np.minimum(pause, 1), 1 / (1 + pause)), goodput
        )
    # Packets are lost behind the bottleneck, so lost packets take its time, too.
    return np.asarray(np.minimum(goodput, per_s * (1 - loss) * payload * 8).reshape(shape))


def predict_spec(spec: RunSpec) -> float:
    """Predicts the goodput of one run in bit/s.

    Raises:
        UsageError: The path is a real host, or :func:`predict` refuses a value.
    """
    if not isinstance(spec.path, LabPath):
        raise UsageError(
            f"'{spec.path}' is a real host: its rate and queue are not known; give predict a path"
        )
    duration = None if spec.duration is None else spec.duration / 1e9
    how = Transport(spec.cc, spec.streams, spec.buffer, spec.pacing)
    line = lab_path(spec.path, spec.reverse)
    return float(predict(line, how, Workload(spec.size, duration), spec.seed))


def covered() -> pl.Expr:
    """Whether the model covers a run of a frame."""
    found = pl.col("host").is_null() & pl.col("cc").is_in(CONGESTION_CONTROLS) & (pl.col("rtt_ms") > 0)
    found &= ~sized_by_sobas() & (pl.col("streams") <= MAX_STREAMS)
    for name in OTHER_CONDITIONS:
        found &= pl.col(name).is_null() | pl.col(name).cast(pl.String).is_in(["0", "0.0"])
    return found.fill_null(value=False)


def predict_runs(runs: pl.DataFrame, seeded: bool = True) -> Floats:
    """Predicts the goodput of each run of a frame in bit/s, of shape (runs,).

    It is NaN for runs that the model does not cover: real hosts, other congestion controls, more streams than
    :data:`MAX_STREAMS`, buffers sized by SOBAS, an RTT of zero, and paths with jitter, reordering, cross
    traffic or other conditions than RTT, rate, queue, MTU and loss. Lost acknowledgements are ignored.

    Args:
        runs: The runs, from :func:`fullpipe.read_runs`.
        seeded: Whether streams start as the run's seed determines, or evenly spaced.
    """
    out = np.full(len(runs), np.nan)
    which = runs.select(covered()).to_series().to_numpy()
    # Data cross the path from a to b, or from b to a for a run that receives.
    loss = pl.when(pl.col("direction") == "receive").then("loss_back").otherwise("loss")
    lab = runs.filter(covered()).with_columns(loss=loss)

    def column(name: str) -> Floats:
        return lab[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()

    if len(lab):
        framing = lab["modality"].replace_strict(FRAMING_BYTES, default=0).fill_null(0)
        path = NetworkPath(
            rtt_s=column("rtt_ms") / 1e3,
            rate_bps=column("rate_bps"),
            queue_bytes=column("queue_bytes"),
            mtu=column("mtu"),
            loss=lab["loss"].fill_null(0.0).to_numpy(),
            framing_bytes=framing.cast(pl.Float64).to_numpy(),
        )
        how = Transport(lab["cc"].to_numpy(), column("streams"), column("buffer_bytes"), column("pacing_bps"))
        seeds = lab["seed"].to_numpy() if seeded else None
        out[which] = predict(path, how, Workload(column("size_bytes"), column("duration_s")), seeds)
    return out
