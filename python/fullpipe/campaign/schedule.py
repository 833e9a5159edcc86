"""Executes runs on a Dask cluster: a local one, or one that exists already."""

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

_MAX_SUBMITTED = 1000
"""How many runs wait in the cluster: enough to make it scale up, few enough to cancel quickly."""


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Shields processes that start inside from Ctrl-C; this process ends them itself."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def connect(scheduler: str | None, workers: int) -> Iterator[Client]:
    """Connects to a Dask scheduler, or starts a local cluster.

    Args:
        scheduler: The address of a scheduler; None for a local cluster.
        workers: The number of workers of a local cluster.

    Raises:
        MissingError: No scheduler answers at the address.
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
        # A worker only waits for its guest, whose memory Dask does not see.
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            # Another campaign may use the usual port.
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
    with cluster:
        with Client(cluster, set_as_default=False) as client:
            yield client


def _on_worker(run: RunSpec, folder: Path, binary: str | None, limit_s: float | None) -> Outcome:
    if isinstance(run.path, str):
        # Two simultaneous measurements of one real path would disturb each other.
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
    """Executes runs, the longest first, and reports each when it ends.

    Args:
        client: The client of the cluster.
        runs: The runs.
        folder: The folder for the records, which every worker can reach.
        binary: The path of `fullpipe`; None to let each worker find its own.
        limit_s: The most real time of one run, in s.
        ended: Called in this process, once for each run.
    """
    queue = iter(sorted(runs, key=model_s, reverse=True))
    running: dict[Key, RunSpec] = {}

    def submit(run: RunSpec) -> Future[Outcome]:
        # The key names the attempt, not the result, so that a later campaign repeats a failed run.
        future = client.submit(
            _on_worker, run, folder, binary, limit_s, pure=False, priority=round(model_s(run) * 1000)
        )
        running[future.key] = run
        return future

    pending = as_completed([submit(run) for run in islice(queue, _MAX_SUBMITTED)], loop=client.loop)
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
