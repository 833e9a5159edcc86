"""Expands the grids of a campaign into runs; does no I/O."""

from collections.abc import Iterator
from itertools import islice, product

from fullpipe.campaign.file import MAX_RUNS, Campaign, DiskAxes, Grid, PathAxes, StorageAxes, TransportAxes
from fullpipe.errors import UsageError
from fullpipe.run import LINE_RATES, TUNED, DiskAccess, LabPath, MountAccess, RunSpec, bdp
from fullpipe.tcp import ETHERNET_HEADER


def _queues(axes: PathAxes, rate: int, rtt: int, mtu: int) -> list[int]:
    if axes.queue is not None:
        return axes.queue
    # On very short paths one BDP is less than a packet; a queue must hold at least one.
    return [max(round(m * bdp(rate, rtt)), mtu + ETHERNET_HEADER) for m in axes.queue_bdp or [1.0]]


def _disks(axes: PathAxes) -> list[tuple[str | None, str | None]]:
    """The disks of both ends: each of `disk` for both, or all pairs of `disk_a` and `disk_b`."""
    if axes.disk is not None:
        return [(disk, disk) for disk in axes.disk]
    none: list[str | None] = [None]
    return list(product(axes.disk_a or none, axes.disk_b or none))


def _accesses(grid: Grid) -> list[DiskAccess | None]:
    if not grid.path.has_disks:
        return [None]
    axes = grid.disks or DiskAxes()
    return [DiskAccess(block, direct) for block, direct in product(axes.block, axes.direct)]


def _paths(axes: PathAxes) -> Iterator[LabPath | str]:
    if axes.rtt is None:
        yield from axes.host or []
        return
    mounts: list[str | None] = list(axes.mount) if axes.mount else [None]
    both = [(host, host) for host in axes.host or [TUNED]]
    hosts = [
        (a, b) for host_a, host_b in both for a in axes.host_a or [host_a] for b in axes.host_b or [host_b]
    ]
    ends = _disks(axes)
    for modality, rtt in product(axes.modality, axes.rtt):
        for rate, mtu, (a, b), (from_disk, to_disk), mount in product(
            axes.rate or [LINE_RATES[modality]], axes.mtu, hosts, ends, mounts
        ):
            for queue, loss, loss_back, reorder, duplicate, corrupt, jitter, kernel, cross, noise in product(
                _queues(axes, rate, rtt, mtu), axes.loss, axes.loss_back, axes.reorder, axes.duplicate,
                axes.corrupt, axes.jitter, axes.kernel, axes.cross, axes.host_noise,
            ):  # fmt: skip
                yield LabPath(
                    rtt=rtt, rate=rate, queue=queue, mtu=mtu, loss=loss, loss_back=loss_back, reorder=reorder,
                    duplicate=duplicate, corrupt=corrupt, jitter=jitter or None, modality=modality,
                    kernel=kernel, cross=cross, host_noise=noise or None, host_a=a, host_b=b,
                    disk_a=from_disk, disk_b=to_disk, mount=mount,
                )  # fmt: skip


def _on_mounts(grid: Grid) -> Iterator[RunSpec]:
    """Runs that read and write what is mounted over a path, by the transport of the kernel that mounts it."""
    axes = grid.storage or StorageAxes()
    for path, size, direct, block, threads, operation, seed in product(
        _paths(grid.path), grid.workload.size, axes.direct, axes.block, axes.threads, axes.operation,
        grid.seeds,
    ):  # fmt: skip
        streams = path.mount_connections if isinstance(path, LabPath) else 1
        yield RunSpec(
            path=path, cc="cubic", streams=streams, buffer=None, pacing=None, size=size, duration=None,
            seed=seed, sample=grid.sample, reverse=operation == "read",
            mount=MountAccess(operation, threads, block, direct),
        )  # fmt: skip


def _on_streams(grid: Grid, transport: TransportAxes) -> Iterator[RunSpec]:
    """Runs that carry data from memory to memory, or from disk to disk, by a transport."""
    workload = grid.workload
    loads = [(size, None) for size in workload.size] + [(None, time) for time in workload.duration]
    for path, cc, streams, buffer, pacing, (size, duration), disks, direction, seed in product(
        _paths(grid.path), transport.cc, transport.streams, transport.buffer, transport.pacing,
        loads, _accesses(grid), grid.direction, grid.seeds,
    ):  # fmt: skip
        yield RunSpec(
            path=path, cc=cc, streams=streams, buffer=buffer, pacing=pacing, size=size, duration=duration,
            seed=seed, sample=grid.sample, reverse=direction == "receive", disks=disks,
        )  # fmt: skip


def expand(campaign: Campaign) -> list[RunSpec]:
    """Lists all runs of a campaign in the order of its file, each once.

    Raises:
        UsageError: A combination is impossible, such as a queue smaller than a packet. The text names the
            file and the grid. Or there are too many runs.
    """
    runs: dict[RunSpec, None] = {}
    for index, grid in enumerate(campaign.grid):
        try:
            of_grid = _on_mounts(grid) if grid.transport is None else _on_streams(grid, grid.transport)
            some = list(islice(of_grid, MAX_RUNS + 1))
        except UsageError as error:
            raise UsageError(f"{campaign.place(index)} {error}") from None
        runs |= dict.fromkeys(some)
        if max(len(some), len(runs)) > MAX_RUNS:
            raise UsageError(f"{campaign.place(index)}: a campaign has at most {MAX_RUNS} runs; make several")
    return list(runs)
