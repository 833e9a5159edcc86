"""Runs on a Dask cluster: a local one, or one that exists already."""

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from dask.typing import Key
from distributed import Client, Future, LocalCluster, Lock, as_completed
from distributed.comm.addressing import get_address_host_port

from fullpipe.campaign.cost import model_s
from fullpipe.campaign.execute import Outcome, execute
from fullpipe.errors import MissingError
from fullpipe.run import RunSpec

_AHEAD = 1000  # enough for a cluster that scales with what waits, little enough to cancel at once


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Processes started meanwhile never see Ctrl-C; it is this one that ends them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def connect(scheduler: str | None, workers: int) -> Iterator[Client]:
    """A Dask client: of the scheduler at that address, or of a local cluster with so many workers.

    Raises:
        MissingError: No scheduler answers there.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if scheduler is not None:
        try:
            get_address_host_port(scheduler, strict=True)
            client = Client(scheduler, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise MissingError(
                f"no Dask scheduler answers at {scheduler} ({error}); start one with 'dask scheduler', "
                "or leave out --scheduler"
            ) from error
        with client:
            yield client
        return
    with _no_interrupt():
        # Guests count their own memory; a worker only waits for them.
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            # Not the usual port: another campaign may have it.
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
    with cluster:
        with Client(cluster, set_as_default=False) as client:
            yield client


def _on_worker(run: RunSpec, folder: Path, binary: str | None, limit_s: float | None) -> Outcome:
    if isinstance(run.path, str):
        # Two measurements of one real path at once would measure each other.
        with Lock(f"fullpipe {run.path}"):
            return execute(run, folder, binary, limit_s)
    return execute(run, folder, binary, limit_s)


def run_all(
    client: Client,
    runs: Sequence[RunSpec],
    folder: Path,
    binary: str | None,
    limit_s: float | None,
    ended: Callable[[RunSpec, Outcome], None],
) -> None:
    """Runs all of them, longest first, and tells of each as it ends.

    Args:
        client: Of the cluster to use.
        runs: What to run.
        folder: Where the records go, as every worker sees it.
        binary: The `fullpipe` binary, or none for each worker to find its own.
        limit_s: Most real seconds of one run.
        ended: Called here, once for each run.
    """
    queue = iter(sorted(runs, key=model_s, reverse=True))
    running: dict[Key, RunSpec] = {}

    def submit(run: RunSpec) -> Future[Outcome]:
        # The key names the attempt, not the result: a failed run is tried again by the next campaign.
        future = client.submit(
            _on_worker, run, folder, binary, limit_s, pure=False, priority=round(model_s(run) * 1000)
        )
        running[future.key] = run
        return future

    pending = as_completed([submit(run) for run in islice(queue, _AHEAD)], loop=client.loop)
    for future in pending:
        run = running.pop(future.key)
        error = future.exception()
        if error is None:
            outcome: Outcome = future.result()
        else:
            outcome = Outcome(run.name, False, 1, f"its worker failed: {error}", 0.0)
        future.release()
        pending.update([submit(run) for run in islice(queue, 1)])
        ended(run, outcome)
