"""Checks the disks of the ends with fio: rate, latency, queue depth, stripes, and contents."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .row import Row
from .tool import Keys, Line, Program, scenario

#: Relative deviation that is allowed.
BAR = 0.02
#: Virtual seconds of each measurement of a rate. The driver lets the requests of its first 20 ms pass at
#: once, so a short measurement is faster: by 0.5% in 4 s, by 1% in the 2 s of the fast checks.
SECONDS, FAST_SECONDS = 4, 2
MIB = 1 << 20
#: The jobs of one guest share this file. With 200 MiB it lies in one piece, so every MiB of it is one stripe.
FILE, FILE_BYTES = "/disk/data", 200 * MIB
#: What every job gets. fio's own clock reads the processor's counter, which does not keep virtual time.
GLOBAL = (
    f"--filename={FILE}", f"--size={FILE_BYTES}", "--direct=1", "--time_based", "--stonewall",
    "--clocksource=clock_gettime",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A job of fio, and the figure that it should measure."""

    check: str
    flags: Sequence[str]
    figures: Callable[[Line], Sequence[float]]
    """Takes the job's part of fio's result, and returns one figure, or the least and the largest of many."""
    expected: float
    unit: str
    unit_size: float

    def row(self, disk: str, result: Line) -> Row:
        """The row of the job on a disk, from the job's result."""
        found = self.figures(result)
        measured = f"{' to '.join(f'{figure / self.unit_size:.2f}' for figure in found)} {self.unit}"
        each = "each " if len(found) > 1 else ""
        if len(found) == 1:
            measured += f" ({100.0 * (found[0] / self.expected - 1.0):+.2f}%)"
        return Row(
            check=f"disk {disk}: {self.check}",
            bar=f"{each}{self.expected / self.unit_size:.2f} {self.unit} ± {BAR:.0%}",
            measured=measured,
            ok=all(abs(figure / self.expected - 1.0) <= BAR for figure in found),
        )


def rate(check: str, rw: str, expected: float, seconds: int) -> Job:
    """Writes or reads in blocks of 1 MiB, 32 at once, and compares the rate in bytes/s."""
    direction = rw.partition(":")[0]
    return Job(
        check,
        [f"--rw={rw}", f"--bs={MIB}", "--ioengine=libaio", "--iodepth=32", f"--runtime={seconds}"],
        lambda result: [float(result[direction]["bw_bytes"])],
        expected, "MB/s", 1e6,
    )  # fmt: skip


def latency(expected_us: float, seconds: int) -> Job:
    """Reads 4 KiB at a time from one thread, and compares the time of every read."""
    return Job(
        "4 KiB, one thread",
        ["--rw=randread", "--bs=4k", "--ioengine=psync", f"--runtime={seconds}"],
        lambda result: [float(result["read"]["clat_ns"][limit]) for limit in ("min", "max")],
        expected_us * 1e3, "µs", 1e3,
    )  # fmt: skip


def queue(depth: int, latency_us: float, seconds: int) -> Job:
    """Reads 4 KiB at a time, more at once than the device takes, and compares the reads per second."""
    return Job(
        "4 KiB, 256 at once",
        ["--rw=randread", "--bs=4k", "--ioengine=libaio", "--iodepth=256", f"--runtime={seconds}"],
        lambda result: [float(result["read"]["iops"])],
        depth / latency_us * 1e6, "reads/s", 1.0,
    )  # fmt: skip


def printed(disk: str, *run: str, end: str = "a") -> str:
    """Runs a program at an end that has the disk, and returns what the program prints."""
    keys: Keys = {"rtt": "1ms", "rate": "1gbit", f"disk_{end}": disk}
    return scenario(keys, [Program(end, run, wait=True)], sample="1s").stdout[0]


def rows(disk: str, *jobs: Job) -> Iterator[Row]:
    """Runs jobs of fio one after another in one guest."""
    command = ["fio", "--output-format=json", "--name=global", *GLOBAL]
    for number, job in enumerate(jobs):
        command += [f"--name={number}", *job.flags]
    results = json.loads(printed(disk, *command))["jobs"]
    for job, result in zip(jobs, results, strict=True):
        yield job.row(disk, result)


def rates() -> Iterator[Row]:
    """Checks two rates of one and of four devices, and the rate of one device of four."""
    for text, expected in (("500MB/s", 500e6), ("2GB/s", 2e9)):
        for devices in ("", "+devices:4"):
            jobs = [rate(f"{rw}s", rw, expected, SECONDS) for rw in ("write", "read")]
            yield from rows(f"{text}{devices}", *jobs)
    yield from rows("500MB/s+fs:ext4", rate("writes", "write", 500e6, SECONDS))
    # In a tick of 20 ms, a device of 40 MB/s has bytes for one request and a half.
    for text, expected in (("40MB/s", 40e6), ("100MB/s", 100e6), ("200MB/s+devices:4", 200e6)):
        yield from rows(text, rate("writes", "write", expected, SECONDS))
    # A job that skips three stripes after each stripe that it reads finds all of them on one device.
    yield from rows("2GB/s+devices:4", rate("reads of every fourth stripe", "read:3M", 2e9 / 4, SECONDS))


def largest_request() -> Iterator[Row]:
    """Tells the largest request of a device. Checks that a larger one is split into such requests."""
    kib = int(printed("500MB/s", "cat", "/sys/block/disk_a0/queue/max_sectors_kb"))
    yield Row("disk: largest request of a device", "", f"{kib} KiB", None)
    parts, latency_s = math.ceil(MIB / (kib << 10)), 5e-3
    yield from rows(
        f"500MB/s+latency:{latency_s * 1e3:g}ms+depth:1",
        rate(f"writes of 1 MiB, {parts} requests each", "write", MIB / (parts * latency_s), SECONDS),
    )


def nothing_kept() -> Iterator[Row]:
    """Checks that a disk that keeps nothing is larger than the guest's memory, and takes more than that."""
    written = 8 << 30
    fio = f"fio --name=w --filename={FILE} --size={written} --rw=write --bs=1M --direct=1"
    lines = printed(
        "2GB/s+size:200GB+keep:no",
        "sh", "-ec",
        f"df -B1 --output=size /disk | tail -n 1; {fio} --clocksource=clock_gettime >&2; stat -c %s {FILE}; "
        "awk '/MemTotal/ { print $2 * 1024 }' /proc/meminfo",
    ).split()  # fmt: skip
    size, stored, memory = (int(line) for line in lines)
    yield Row(
        check="disk 2GB/s+size:200GB+keep:no: 8 GiB written",
        bar="200 GB ± 2%, a file of 8.590 GB, in a guest of less than 2 GB",
        measured=f"{size / 1e9:.1f} GB, {stored / 1e9:.3f} GB, {memory / 1e9:.2f} GB",
        ok=abs(size / 200e9 - 1.0) <= BAR and stored == written and memory < 2e9,
    )


def contents(end: str, disk: str, node: str) -> Iterator[Row]:
    """Writes random bytes, empties the page cache, and reads the bytes again, from the device `node`."""
    sectors = f"awk '{{ print $3 }}' /sys/block/{node}/stat"
    digest = "sha256sum | cut -c -64"
    written, before, read, after = printed(
        disk,
        "sh", "-ec",
        f"head -c {FILE_BYTES} /dev/urandom | tee {FILE} | {digest}; sync; echo 3 >/proc/sys/vm/drop_caches; "
        f"{sectors}; cat {FILE} | {digest}; {sectors}",
        end=end,
    ).split()  # fmt: skip
    from_device = (int(after) - int(before)) * 512
    yield Row(
        check=f"disk_{end} {disk}: written, and read again without the page cache",
        bar=f"the same SHA-256, {FILE_BYTES} bytes read from the device",
        measured=f"{'the same' if written == read else 'another'}, {from_device} bytes",
        ok=written == read and from_device >= FILE_BYTES,
    )


def repeat(disk: str) -> Iterator[Row]:
    """Runs fio twice and compares all that it prints."""
    job = rate("", "write", 1.0, 1)
    command = ["fio", "--output-format=json", "--name=global", *GLOBAL, "--name=w", *job.flags]
    first, second = (printed(disk, *command).splitlines() for _ in range(2))
    differ = sum(a != b for a, b in zip(first, second, strict=False)) + abs(len(first) - len(second))
    yield Row(
        check=f"disk {disk}: fio twice",
        bar="no line differs",
        measured=f"{differ} of {len(first)} lines differ",
        ok=differ == 0,
    )


def disks(fast: bool) -> Iterator[Row]:
    """Checks that disks are as they were set."""
    if fast:
        disk = "500MB/s+latency:200us+depth:4"
        jobs = [rate("writes", "write", 500e6, FAST_SECONDS), latency(200.0, 1), queue(4, 200.0, 1)]
        yield from rows(disk, *jobs)
        return
    yield from rates()
    for text, microseconds in (("200us", 200.0), ("5ms", 5000.0)):
        yield from rows(f"500MB/s+latency:{text}", latency(microseconds, 1))
    for depth in (1, 4, 64):
        yield from rows(f"2GB/s+latency:1ms+depth:{depth}", queue(depth, 1000.0, 1))
    yield from largest_request()
    yield from nothing_kept()
    yield from contents("a", "500MB/s+devices:4", "dm-0")
    yield from contents("b", "500MB/s+fs:ext4", "disk_b0")
    yield from repeat("500MB/s+devices:4")
