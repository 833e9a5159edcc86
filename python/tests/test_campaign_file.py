import json
import re
from pathlib import Path

import pytest
from conftest import ROOT, SMALL, Command, campaign_of

from fullpipe.campaign import LabPath, RunSpec, expand, read_campaign
from fullpipe.campaign.ceiling import KernelLimit, kernel_limit
from fullpipe.campaign.lab_mount import MOUNT_KEYS
from fullpipe.errors import UsageError
from fullpipe.run import (
    DISK_RESERVE_BYTES,
    LINUX_CONGESTION_CONTROLS,
    MAX_MEASURED_STREAMS,
    MAX_STREAMS,
    MIN_PACING_BPS,
    MIN_UDT_BUFFER_BYTES,
    MIN_UDT_PACING_BPS,
    MOUNT_RESERVE_BYTES,
    DiskAccess,
    MountAccess,
)

GRID = """
[[grid]]
[grid.path]
rtt = "45.6ms"
rate = "10gbit"
[grid.transport]
cc = "cubic"
[grid.workload]
size = "1GB"
"""


def one(folder: Path, text: str) -> RunSpec:
    (run,) = expand(campaign_of(folder, text))
    return run


def test_the_program_knows_the_same_congestion_controls() -> None:
    source = (ROOT / "crates/fullpipe-path/src/transport.rs").read_text()
    listed = re.search(r"pub const \w+_CONGESTION_CONTROLS: \[&str; \d+\] = \[(.*?)\];", source, re.DOTALL)
    assert listed is not None
    assert tuple(re.findall(r'"(\w+)"', listed[1])) == LINUX_CONGESTION_CONTROLS


def test_a_grid_is_a_full_product_in_the_order_of_the_file(small: list[RunSpec]) -> None:
    assert len(small) == len(set(small)) == 2 * 2 * 2 * 2 * 2
    assert [run.seed for run in small[:2]] == [1, 2]
    assert small[0].path == LabPath(rtt=11_800_000, rate=10**10, queue=14_750_000)
    assert len({run.name for run in small}) == len(small)


def test_the_order_is_always_the_same(tmp_path: Path, small: list[RunSpec]) -> None:
    assert expand(campaign_of(tmp_path, SMALL)) == small


def test_the_same_run_in_other_words_is_one_run(tmp_path: Path) -> None:
    again = GRID.replace('"1GB"', '"1000MB"').replace("45.6ms", "45600us")
    assert len(expand(campaign_of(tmp_path, GRID + again))) == 1


def test_the_command(tmp_path: Path) -> None:
    text = GRID.replace('cc = "cubic"', 'cc = "bbr"\nstreams = 4\nbuffer = "256MB"\npacing = "9.9gbit"')
    text = text.replace(
        'rate = "10gbit"', 'rate = "10gbit"\nloss = "0.01%"\nqueue = "16MB"\ncross = "tcp:4x64KB"'
    )
    text = text.replace("[[grid]]", '[[grid]]\ndirection = "receive"\nsample = "10ms"\nseeds = [7]')
    assert one(tmp_path, text).arguments() == [
        "measure", "lab:rtt=45.6ms,rate=10gbit,queue=16MB,mtu=9000,loss=0.0001,cross=tcp:4x64KB",
        "--cc", "bbr", "--streams", "4", "--buffer", "256MB", "--pacing", "9.9gbit", "--size", "1GB",
        "--seed", "7", "--sample", "10ms", "--reverse",
    ]  # fmt: skip


def test_limits_are_those_of_the_program() -> None:
    source = (ROOT / "crates/fullpipe-path/src/transport.rs").read_text()
    for name, value in (("MAX_STREAMS", MAX_STREAMS), ("MAX_MEASURED_STREAMS", MAX_MEASURED_STREAMS)):
        assert f"pub const {name}: u16 = {value};" in source
    assert f"MIN_PACING: Rate = Rate({MIN_PACING_BPS:_});" in source
    assert f"MIN_UDT_PACING: Rate = Rate({MIN_UDT_PACING_BPS:_});" in source
    assert f"MIN_UDT_BUFFER: Size = Size({MIN_UDT_BUFFER_BYTES:_});" in source


def test_as_many_streams_as_measure_takes(tmp_path: Path) -> None:
    assert one(tmp_path, GRID.replace('cc = "cubic"', 'cc = "cubic"\nstreams = 256')).streams == 256
    udp = GRID.replace('cc = "cubic"', 'cc = "udp"\nstreams = 65\npacing = "1gbit"')
    assert one(tmp_path, udp).arguments()[2:4] == ["--transport", "udp"]
    assert one(tmp_path, GRID.replace('cc = "cubic"', 'cc = "udt"\nstreams = 64')).streams == 64


def test_udt_has_a_least_pacing_for_each_stream(tmp_path: Path) -> None:
    udt = GRID.replace('cc = "cubic"', 'cc = "udt"\nstreams = 8\npacing = "PACING"')
    assert one(tmp_path, udt.replace("PACING", "8mbit")).streams == 8
    with pytest.raises(UsageError, match="7mbit is too slow for 8 streams of UDT; give at least 1mbit"):
        one(tmp_path, udt.replace("PACING", "7mbit"))


def test_udt_has_a_least_buffer(tmp_path: Path) -> None:
    udt = GRID.replace('cc = "cubic"', 'cc = "udt"\nbuffer = "SIZE"')
    assert one(tmp_path, udt.replace("SIZE", "144KB")).buffer == MIN_UDT_BUFFER_BYTES
    with pytest.raises(UsageError, match="143KB is too small for UDT, .*; give at least 144KB"):
        one(tmp_path, udt.replace("SIZE", "143KB"))


def test_no_run_begins_if_one_is_refused(tmp_path: Path, command: Command) -> None:
    (tmp_path / "c.toml").write_text(GRID.replace('cc = "cubic"', 'cc = ["cubic", "udp"]'))
    told = command("campaign", "run", "c.toml", "-o", "out")
    assert told.returncode == 2 and "transport pacing: is missing" in told.stderr
    assert not told.stdout and not (tmp_path / "out").exists()


def test_udt_stands_in_the_place_of_a_congestion_control(tmp_path: Path) -> None:
    run = one(tmp_path, GRID.replace('cc = "cubic"', 'cc = "udt"'))
    assert run.arguments()[2:4] == ["--transport", "udt"]
    assert run.name.startswith("udt-n1-bauto-")


def test_a_queue_follows_the_bdp_but_holds_a_packet(tmp_path: Path) -> None:
    text = GRID.replace(
        'rtt = "45.6ms"', 'rtt = ["1us", "0.4ms"]\nqueue_bdp = [0.5, 1.0]\nmtu = [1500, 9000]'
    )
    queues = [run.path.queue for run in expand(campaign_of(tmp_path, text)) if isinstance(run.path, LabPath)]
    assert queues == [1514, 9014, 250_000, 500_000, 250_000, 500_000]


def test_a_modality_brings_its_rate(tmp_path: Path) -> None:
    path = one(tmp_path, GRID.replace('rate = "10gbit"', 'modality = "oc192"')).path
    assert isinstance(path, LabPath)
    assert (path.rate, path.modality) == (9_600_000_000, "oc192")


def test_emulated_hosts(tmp_path: Path) -> None:
    """With an RTT, `host` is what both ends are, and an end's own key goes before it."""
    hosts = 'host = ["stock", "tuned"]\nhost_b = "tuned+user:user"'
    text = GRID.replace('rate = "10gbit"', f'rate = "10gbit"\n{hosts}')
    paths = list(dict.fromkeys(run.path for run in expand(campaign_of(tmp_path, text))))
    assert [(path.host_a, path.host_b) for path in paths if isinstance(path, LabPath)] == [
        ("stock", "tuned+user:user"),
        ("tuned", "tuned+user:user"),
    ]
    assert str(paths[0]).endswith("host_a=stock,host_b=tuned+user:user")
    table = '{ base = "stock", tcp_rmem = [4096, "128KiB", "32MiB"], rmem_max = "16MiB", ccs = ["reno"] }'
    for host in (table, '"stock+tcp_rmem:4KiB/131072/32MiB+rmem_max:16MiB+ccs:reno"'):
        path = one(tmp_path, GRID.replace('rate = "10gbit"', f'rate = "10gbit"\nhost = {host}')).path
        assert isinstance(path, LabPath)
        text = "stock+tcp_rmem:4096/131072/33554432+rmem_max:16777216+ccs:reno"
        assert path.host_a == path.host_b == text


def test_runs_from_disk_to_disk(tmp_path: Path) -> None:
    """All pairs of disks, blocks and direct I/O; without `disks`, what `fullpipe measure` does."""
    text = GRID.replace('rate = "10gbit"', 'rate = "10gbit"\ndisk_a = "1GB/s"\ndisk_b = ["1GB/s", "2GB/s"]')
    runs = expand(campaign_of(tmp_path, text))
    ends = [(run.path.disk_a, run.path.disk_b) for run in runs if isinstance(run.path, LabPath)]
    assert ends == [("1GB/s", "1GB/s"), ("1GB/s", "2GB/s")]
    assert {run.disks for run in runs} == {DiskAccess(8 << 20, "auto")}
    text += '[grid.disks]\nblock = ["8MiB", "62MiB"]\ndirect = ["on", "off"]\n'
    runs = expand(campaign_of(tmp_path, text))
    assert len(runs) == 8 and len({run.name for run in runs}) == 8
    arguments = runs[0].arguments()
    assert arguments[1].endswith(",disk_a=1GB/s,disk_b=1GB/s")
    assert arguments[-4:] == ["--block", "8.388608MB", "--direct", "on"]
    # From memory to memory, nothing has changed.
    assert not {"--block", "--direct"} & set(one(tmp_path, GRID).arguments())


@pytest.mark.parametrize(
    ("disks", "size", "said"),
    [
        ('disk = "1GB/s"', "5GB", "path disk_a: has 2GB, too little for a file of 5GB; add +size:6GB to it"),
        ('disk_a = "1GB/s+size:6GB"\ndisk_b = "1GB/s+size:5GB"', "5GB", "path disk_b: has 5GB, too little"),
        ('disk = "1GB/s+size:1299999999B"', "1GB", "path disk_a: has 1.299999999GB, too little"),
        ('disk = "1GB/s+size:1300MB"', "1GB", None),
    ],
)
def test_disks_have_room_for_the_file(tmp_path: Path, disks: str, size: str, said: str | None) -> None:
    text = GRID.replace('size = "1GB"', f'size = "{size}"')
    text = text.replace('rate = "10gbit"', f'rate = "10gbit"\n{disks}')
    if said is None:
        assert one(tmp_path, text).size == 10**9
        return
    with pytest.raises(UsageError, match=re.escape(said)):
        expand(campaign_of(tmp_path, text))


@pytest.mark.parametrize(
    ("file", "reserve"),
    [("disks.rs", DISK_RESERVE_BYTES), ("storage/in_lab.rs", MOUNT_RESERVE_BYTES)],
)
def test_the_program_needs_the_same_room(file: str, reserve: int) -> None:
    source = (ROOT / "crates/fullpipe/src/commands/measure" / file).read_text()
    rule = f"let least = size.0.saturating_add(size.0 / 10).saturating_add({reserve:_});"
    assert rule in source


MOUNT = """
[[grid]]
[grid.path]
rtt = "45.6ms"
rate = "10gbit"
mount = "nfs"
[grid.workload]
size = "1GB"
"""


def test_runs_on_mounts(tmp_path: Path) -> None:
    """All pairs of mounts, operations, threads and blocks; without `storage`, as `fullpipe measure` does."""
    runs = expand(campaign_of(tmp_path, MOUNT))
    assert [run.mount for run in runs] == [
        MountAccess("write", 1, 8 << 20, "auto"),
        MountAccess("read", 1, 8 << 20, "auto"),
    ]
    text = MOUNT.replace('"nfs"', '["nfs", "nfs+nconnect:4+read_ahead:64MiB"]')
    text += '[grid.storage]\noperation = "read"\nthreads = [1, 8]\nblock = ["1MiB", "8MiB"]\ndirect = "off"\n'
    runs = expand(campaign_of(tmp_path, text.replace("[[grid]]", "[[grid]]\nseeds = 2")))
    assert len(runs) == 2 * 2 * 2 * 2 and len({run.name for run in runs}) == 16
    assert runs[-1].arguments() == [
        "measure", "lab:rtt=45.6ms,rate=10gbit,queue=57MB,mtu=9000,mount=nfs+nconnect:4+read_ahead:64MiB",
        "--read", "--threads", "8", "--block", "8MiB", "--direct", "off", "--size", "1GB", "--seed", "2",
    ]  # fmt: skip
    assert runs[-1].name.startswith("mount-rtt45.6ms-read-t8-b8MiB-off-s2-")
    # Beside runs of a transport in the same file.
    assert [run.mount is None for run in expand(campaign_of(tmp_path, GRID + MOUNT))] == [True, False, False]


def test_a_mount_serves_a_disk_or_memory(tmp_path: Path) -> None:
    disk = 'mount = "nfs"\ndisk_b = "1GB/s+size:9GB"'
    (path,) = {run.path for run in expand(campaign_of(tmp_path, MOUNT.replace('mount = "nfs"', disk)))}
    assert str(path).endswith(",disk_b=1GB/s+size:9GB,mount=nfs")
    for old, new, said in (
        ('"1GB"', '"3GB"', "path mount: has 2GB, too little for a file of 3GB; add +size:4GB to it"),
        ('"nfs"', '"nfs+size:1GB"', "path mount: has 1GB, too little for a file of 1GB; add +size:2GB"),
        ('mount = "nfs"', 'mount = "nfs+size:9GB"\ndisk_b = "1GB/s+size:1GB"', "path disk_b: has 1GB"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            expand(campaign_of(tmp_path, MOUNT.replace(old, new)))


def test_a_file_on_a_mount_has_a_block_for_each_thread(tmp_path: Path) -> None:
    for threads, said in (
        (1, "it has no block of 1GiB$"),
        (2, "it has no block of 1GiB for each of 2 threads$"),
    ):
        text = MOUNT + f'[grid.storage]\nblock = "1GiB"\nthreads = {threads}\n'
        with pytest.raises(UsageError, match=said):
            expand(campaign_of(tmp_path, text))


def test_the_program_knows_the_same_mounts() -> None:
    source = (ROOT / "crates/fullpipe-path/src/lab_mount.rs").read_text()
    listed = re.search(r'const KEYS: &str = "(.*?)";', source)
    assert listed is not None
    assert listed[1].split(", ") == list(MOUNT_KEYS)


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ('"nfs"', '"lustre"', ["grid 1 path mount", "'lustre' is not a mount", "nfs+nconnect:4"]),
        ('"nfs"', "true", ["grid 1 path mount", "True is not a mount"]),
        ('"nfs"', '"nfs+nconnect"', ["'nconnect' should be KEY:VALUE"]),
        ('"nfs"', '"nfs+threads:2"', ["path mount", "'threads' is not a key of a mount: vers, nconnect"]),
        ('"nfs"', '["nfs", "nfs+nconnect:17"]', ["path mount", "nconnect: '17'", "from 1 to 16"]),
        ('"nfs"', '"nfs+vers:3"', ["vers: '3' is none of 4.0, 4.1, 4.2"]),
        ('"nfs"', '"nfs+rsize:2MiB"', ["rsize: 2MiB is not a multiple of 4KiB from 4KiB to 1MiB"]),
        ('"nfs"', '"nfs+slots:8+vers:4.0"', ["NFS 4.0 has no sessions"]),
        (
            'rate = "10gbit"',
            'rate = "10gbit"\ndisk = "1GB/s"',
            ["'disk' is at the end that mounts", "disk_b"],
        ),
        (
            'rate = "10gbit"',
            'rate = "10gbit"\ndisk_a = "1GB/s"\ndisk_b = "1GB/s"',
            ["'disk_a' is at the end"],
        ),
        ('rtt = "45.6ms"\nrate = "10gbit"', 'host = "dtn2"', ["'host' is a real path; it takes no 'mount'"]),
        (
            "[[grid]]",
            '[[grid]]\ntransport = { cc = "cubic" }',
            ["grid 1: 'transport' has no effect on a mount"],
        ),
        ("[[grid]]", '[[grid]]\ndisks = { block = "8MiB" }', ["'disks' has no effect", "'storage' instead"]),
        ("[[grid]]", '[[grid]]\ndirection = "receive"', ["'direction' has no effect", "storage.operation"]),
        ("[[grid]]", '[[grid]]\nsample = "10ms"', ["'sample' has no effect on a mount: leave it out"]),
        (
            "[[grid]]",
            "[[grid]]\nstorage = { treads = 2 }",
            ["'treads' in grid 1 storage; known keys: operation"],
        ),
        ("[[grid]]", "[[grid]]\nstorage = { threads = 65 }", ["grid 1 storage threads", "64"]),
        ("[[grid]]", '[[grid]]\nstorage = { operation = "rw" }', ["storage operation: 'rw' is not allowed"]),
        ("[[grid]]", '[[grid]]\nstorage = { block = "2GiB" }', ["storage block", "4KiB to 1GiB"]),
        (
            "[[grid]]",
            '[[grid]]\nstorage = { threads = 64, block = "16MiB" }',
            ["has no block of", "64 threads"],
        ),
        ('size = "1GB"', 'duration = "9s"', ["'duration' has no effect on a mount", "workload.size"]),
        ('mount = "nfs"', "", ["grid 1: 'transport' is missing; add it"]),
    ],
)
def test_one_error_names_what_no_mount_has(tmp_path: Path, old: str, new: str, parts: list[str]) -> None:
    assert old in MOUNT
    with pytest.raises(UsageError) as caught:
        expand(campaign_of(tmp_path, MOUNT.replace(old, new)))
    for part in parts:
        assert part in str(caught.value), caught.value
    assert str(caught.value).startswith(str(tmp_path)) and "\n" not in str(caught.value)


def test_a_real_host(tmp_path: Path) -> None:
    text = GRID.replace('rtt = "45.6ms"\nrate = "10gbit"', 'host = "dtn2:7412"')
    run = one(tmp_path, text.replace('size = "1GB"', 'duration = "100s"'))
    assert run.arguments()[:2] == ["measure", "dtn2:7412"]
    assert "--duration" in run.arguments()
    assert run.name.startswith("cubic-n1-bauto-dtn2_7412-s1-")


def test_directions_and_no_pacing_are_axes(tmp_path: Path) -> None:
    text = GRID.replace("[[grid]]", '[[grid]]\ndirection = ["send", "receive"]')
    text = text.replace("[grid.transport]", '[grid.transport]\npacing = ["none", "1gbit"]')
    runs = expand(campaign_of(tmp_path, text))
    assert [(r.pacing, r.reverse) for r in runs] == [
        (None, False), (None, True), (10**9, False), (10**9, True),
    ]  # fmt: skip


def test_sizes_and_durations_follow_each_other(tmp_path: Path) -> None:
    text = GRID.replace('size = "1GB"', 'size = ["1GB", "20GB"]\nduration = "100s"')
    runs = expand(campaign_of(tmp_path, text))
    assert [(r.size, r.duration) for r in runs] == [(10**9, None), (2 * 10**10, None), (None, 10**11)]


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        (
            'rtt = "45.6ms"',
            'rtt = "45.6ms"\nrttt = "1ms"',
            ["'rttt'", "grid 1 path", "known keys", "queue_bdp"],
        ),
        ("[[grid]]", "[[grid]]\nseed = 1", ["'seed'", "grid 1", "seeds"]),
        ("[[grid]]", "titel = 'x'\n[[grid]]", ["'titel'", "known keys: title, grid"]),
        ('rate = "10gbit"', 'rate = "10gb"', ["grid 1 path rate", "unit 'gb' is unknown"]),
        ('rate = "10gbit"', "rate = 10", ["grid 1 path rate", "'10'", "unit is missing"]),
        ('rate = "10gbit"', "", ["'rate' is missing"]),
        ('rtt = "45.6ms"', "", ["'rtt' is missing"]),
        ('rtt = "45.6ms"', "rtt = []", ["path rtt", "an empty list gives no runs"]),
        (
            'rate = "10gbit"',
            'rate = "10gbit"\nqueue = "8KB"',
            ["campaign.toml: grid 1 path queue", "smaller than one packet", "9014B"],
        ),
        ('rate = "10gbit"', 'rate = "10gbit"\nqueue = "5GB"', ["4.29GB"]),
        ('rate = "10gbit"', 'rate = "10gbit"\nqueue = "1MB"\nqueue_bdp = 1.0', ["exclude each other"]),
        ('rate = "10gbit"', 'rate = "10gbit"\nmtu = 1400', ["path mtu", "1500 or 9000"]),
        ('rate = "10gbit"', 'rate = "10gbit"\nkernel = 6.12', ["path kernel", "quotation marks"]),
        ('rate = "10gbit"', 'rate = "10gbit"\nhost = "dtn2"', ["'dtn2' is not a host of an emulated path"]),
        (
            'rate = "10gbit"',
            'rate = "10gbit"\nhost = "stock+foo:1"',
            ["'foo:1' is none of its keys", "tcp_rmem, tcp_wmem, rmem_max"],
        ),
        ('rate = "10gbit"', 'rate = "10gbit"\nhost_a = { rmem_max = "much" }', ["host_a", "much"]),
        (
            'rate = "10gbit"',
            'rate = "10gbit"\ndisk_b = "1GB/s+depth:1"',
            ["grid 1 path: 'disk_a' is missing", "memory to memory"],
        ),
        ('rate = "10gbit"', 'rate = "10gbit"\ndisk = "1GB/s"\ndisk_a = "1GB/s"', ["'disk' is for both ends"]),
        ('rate = "10gbit"', 'rate = "10gbit"\ndisk = "fast"', ["path disk", "'fast' is not a disk"]),
        ("[[grid]]", "[[grid]]\nstorage = { threads = 2 }", ["'storage' has no effect without 'mount'"]),
        (
            'rate = "10gbit"',
            'rate = "10gbit"\ndisk = "1GB/s"\n[grid.disks]\nblok = "8MiB"',
            ["'blok' in grid 1 disks; known keys: block, direct"],
        ),
        ("[[grid]]", '[[grid]]\ndisks = { direct = "on" }', ["'disks' has no effect without disks"]),
        (
            'rate = "10gbit"',
            'rate = "10gbit"\ndisk = "1GB/s"\n[grid.disks]\nblock = "4KiB"',
            ["grid 1 disks block", "64KiB to 64MiB"],
        ),
        (
            'rate = "10gbit"',
            'rate = "10gbit"\ndisk = "1GB/s"\n[grid.disks]\ndirect = "yes"',
            ["grid 1 disks direct", "'yes' is not allowed"],
        ),
        (
            'rate = "10gbit"\n[grid.transport]\ncc = "cubic"\n[grid.workload]\nsize = "1GB"',
            'rate = "10gbit"\ndisk = "1GB/s"\n[grid.transport]\ncc = "cubic"\n[grid.workload]\nduration="9s"',
            ["between disks", "give no duration"],
        ),
        ('rate = "10gbit"', 'rate = "10gbit"\nmodality = "atm"', ["path modality", "'atm'", "oc192"]),
        ('cc = "cubic"', 'cc = "cubik"', ["campaign.toml: grid 1 transport cc", "perhaps 'cubic'", "yeah"]),
        ('cc = "cubic"', 'cc = "qqqq"', ["'qqqq' is not in the testbed's kernel; it has bbr"]),
        ('cc = "cubic"', 'cc = "cubic"\nstreams = 257', ["grid 1 transport streams", "257", "at most 256"]),
        ('cc = "cubic"', 'cc = "cubic"\nstreams = 0', ["grid 1 transport streams", "give at least 1"]),
        ('cc = "cubic"', 'cc = "cubic"\nstreams = "4"', ["transport streams", "streams = [1, 4]"]),
        (
            'cc = "cubic"',
            'cc = ["cubic", "udt"]\nstreams = [1, 100]',
            ["grid 1 transport streams", "UDT takes at most 64 streams", "[[grid]] of its own"],
        ),
        (
            'rate = "10gbit"\n[grid.transport]\ncc = "cubic"',
            'rate = "10gbit"\ndisk = "1GB/s"\n[grid.transport]\ncc = "cubic"\nstreams = 65',
            ["grid 1 transport streams", "runs between disks take at most 64"],
        ),
        ('cc = "cubic"', 'cc = "UDT"', ["grid 1 transport cc: 'UDT'", "write udt (names are in lower case)"]),
        ('cc = "cubic"', 'cc = ["udt", "Cubic"]', ["grid 1 transport cc", "write cubic"]),
        ('cc = "cubic"', 'cc = "a congestion control"', ["transport cc", "up to 15 lower-case letters"]),
        ('cc = "cubic"', "cc = 1", ["transport cc", "quotation marks"]),
        (
            'cc = "cubic"',
            'cc = ["udp", "cubic"]',
            ["grid 1 transport pacing: is missing", "udp", 'give pacing = "100mbit"', "[[grid]] of its own"],
        ),
        ('cc = "cubic"', 'cc = "udp"\npacing = ["1gbit", "none"]', ["transport pacing: is missing"]),
        (
            'cc = "cubic"',
            'cc = "udp"\npacing = "1gbit"\nbuffer = "1MB"',
            ["grid 1 transport buffer: 1MB has no effect on plain UDP", "leave it out"],
        ),
        (
            'rate = "10gbit"\n[grid.transport]\ncc = "cubic"',
            'rate = "10gbit"\ndisk = "1GB/s"\n[grid.transport]\ncc = "udp"\npacing = "1gbit"',
            ["grid 1 transport cc: 'udp' loses data", "or udt"],
        ),
        ('cc = "cubic"', 'cc = "udt"\npacing = "1kbit"', ["transport pacing: 1kbit", "at least 64kbit"]),
        (
            'rtt = "45.6ms"\nrate = "10gbit"\n[grid.transport]\ncc = "cubic"',
            'host = "dtn2"\n[grid.transport]\ncc = "udt"\nstreams = [1, 4]\nbuffer = "1GB"',
            ["transport buffer: 1GB is too large for 4 streams of UDT", "need 8 GB", "has 3.22 GB"],
        ),
        ('rtt = "45.6ms"', 'rtt = ["1ms", "61s"]', ["grid 1 path rtt: 61s is over 5s"]),
        ('rate = "10gbit"', 'rate = "1kbit"', ["grid 1 path rate: 1kbit is below 8kbit"]),
        ('rate = "10gbit"', 'rate = "10gbit"\njitter = "23ms"', ["path jitter: 23ms is over half the RTT"]),
        ('rate = "10gbit"', 'rate = "10gbit"\ncross = "udp:41gbit"', ["path cross: udp:41gbit is over four"]),
        (
            'rate = "10gbit"',
            'rate = "10gbit"\ncross = "foo"',
            ["path cross: 'foo' is not cross traffic: write"],
        ),
        (
            'rate = "10gbit"',
            'rate = "10gbit"\ncross = "udp:4"',
            ["path cross: 'udp:4' is not", "unit is missing"],
        ),
        ('rate = "10gbit"', 'rate = "10gbit"\ncross = "tcp:65x1KB"', ["path cross", "from 1 to 64 flows"]),
        ("[[grid]]", '[[grid]]\nsample = "2h"', ["grid 1 sample", "the most is 1h"]),
        ('cc = "cubic"', 'cc = "cubic"\nbuffer = "2GB"', ["transport buffer", "1.073GB"]),
        ('cc = "cubic"', "", ["'cc' is missing"]),
        ('size = "1GB"', "", ["a size or a duration"]),
        ('size = "1GB"', 'size = "0B"', ["less than a byte"]),
        ('size = "1GB"', 'duration = "0s"', ["give a positive time"]),
        ("[[grid]]", "[[grid]]\nseeds = 0", ["seeds"]),
        ("[[grid]]", "[[grid]]\nseeds = 200001", ["seeds", "at most 200000 runs"]),
        (
            "[[grid]]",
            f"[[grid]]\nseeds = {[*range(400)]}\ndirection = {['send', 'receive'] * 501}",
            ["at most"],
        ),
        (
            "[[grid]]",
            "[[grid]]\nseeds = [18446744073709551616]",
            ["seeds", "18446744073709551616 is not allowed"],
        ),
        ("[[grid]]", '[[grid]]\nseeds = "five"', ["seeds: 'five' is no number of seeds, and no list"]),
        ("[[grid]]", "[grid]", ["grid: write [[grid]]"]),
        ("[[grid]]", '[[grid]]\nsample = "1ms"', ["sample", "10ms"]),
        ("[[grid]]", "[[grid]", ["is not TOML"]),
    ],
)
def test_one_error_names_the_thing(tmp_path: Path, old: str, new: str, parts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        expand(campaign_of(tmp_path, GRID.replace(old, new)))
    for part in parts:
        assert part in str(caught.value), caught.value
    assert "\n" not in str(caught.value)


def test_the_campaigns_that_come_with_it() -> None:
    demo = expand(read_campaign(ROOT / "campaigns" / "demo.toml"))
    assert len(demo) == 3 * 2 * 2 * 7 * 2
    hpdc = expand(read_campaign(ROOT / "campaigns" / "hpdc17.toml"))
    assert {run.cc for run in hpdc} == {"cubic", "htcp", "scalable", "bbr"}
    assert {run.streams for run in hpdc} == set(range(1, 11))
    rtts = {run.path.rtt / 1e6 for run in hpdc if isinstance(run.path, LabPath)}
    assert rtts == {0.01, 0.4, 11.6, 11.8, 22.6, 45.6, 91.6, 183, 366}
    assert {run.size for run in hpdc} == {None, 10**9, 2 * 10**10, 5 * 10**10, 10**11}
    assert {run.seed for run in hpdc} == set(range(1, 11))
    mounts = expand(read_campaign(ROOT / "campaigns" / "icccn17-mounts.toml"))
    assert len(mounts) == 7 * 2 * 2 * 4
    assert {run.mount.threads for run in mounts if run.mount} == {1, 2, 4, 8}


LONG = """
[[grid]]
path = { rtt = ["1ms", "183ms"], rate = "1gbit" }
transport = { cc = ["bbr"], streams = [1] }
workload = { duration = "5s" }
"""


def test_a_plan_warns_of_what_it_will_not_show(tmp_path: Path, command: Command) -> None:
    (tmp_path / "c.toml").write_text(LONG)
    told = command("campaign", "run", "c.toml", "--dry-run")
    assert told.returncode == 0, told.stderr
    # 0.71 of 4194304 B in 183 ms are 0.130 Gb/s.
    assert (
        "warning: 1 of 2 runs leaves the buffer to the kernel: tcp_wmem (4.19 MB) bounds it to window/RTT, "
        "about 3 MB in flight for each stream, for example 0.130 Gb/s for 1 stream at 183 ms; "
        "give transport.buffer" in told.stderr
    )
    assert "warning: 1 of 2 runs lasts less than 50 samples or RTTs" in told.stderr
    as_json = command("campaign", "run", "c.toml", "--dry-run", "--json")
    assert [f"warning: {said}" for said in json.loads(as_json.stdout)["warnings"]] == told.stderr.splitlines()
    (tmp_path / "c.toml").write_text(
        LONG.replace("streams = [1]", 'streams = [1], buffer = "64MB"').replace("5s", "60s")
    )
    assert "warning" not in command("campaign", "run", "c.toml", "--dry-run").stderr


def limit_of(folder: Path, host: str, transport: str = "", direction: str = "send") -> KernelLimit | None:
    text = LONG.replace('["1ms", "183ms"]', '"91.6ms"').replace("[1]", f"1{transport}")
    text = text.replace('rate = "1gbit"', f'rate = "1gbit"{host}').replace(
        "[[grid]]", f'[[grid]]\ndirection = "{direction}"'
    )
    return kernel_limit(one(folder, text))


def test_limits_of_kernels(tmp_path: Path) -> None:
    """Windows beside those of runs of 10 s in the testbed: goodput times RTT."""

    def check(sysctl: str, *arguments: str, window: float | None = None, rel: float = 0) -> None:
        found = limit_of(tmp_path, *arguments)
        assert found is not None and found.sysctl == sysctl
        assert found.bound_bps == pytest.approx(found.window_bytes * 8 / 0.0916)
        assert window is None or found.window_bytes == pytest.approx(window, rel=rel)

    large = ', buffer = "100MB"'
    check("tcp_wmem", ', host_a = "tuned+tcp_wmem:4096/16384/1000000"', window=751e3, rel=0.1)
    check("tcp_rmem", ', host_b = "tuned+tcp_rmem:4096/131072/1000000"', window=892e3, rel=0.25)
    check("rmem_max", ', host = "stock"', large, window=260.6e3, rel=0.01)
    check("rmem_max", ', host_b = "stock"', large)
    check("wmem_max", ', host_a = "stock"', large)
    check("rmem_max", ', host_a = "stock"', large, "receive")
    check("wmem_max", ', host = "stock+rmem_max:500000+user:user"', large)
    check("tcp_wmem", "")


@pytest.mark.parametrize(
    ("host", "transport"),
    [
        ("", ', buffer = "100KB"'),
        (', host = "stock"', ', buffer = "200KB"'),
        (', host = "stock+rmem_max:33554432+wmem_max:33554432"', ', buffer = "30MB"'),
        (', host = "tuned+tcp_rmem:4096/131072/33554432+tcp_wmem:4096/131072/33554432"', ""),
        ("", ', pacing = "100mbit"'),
    ],
)
def test_what_no_kernel_limits(tmp_path: Path, host: str, transport: str) -> None:
    assert limit_of(tmp_path, host, transport) is None


def test_udt_has_its_own_windows(tmp_path: Path) -> None:
    assert kernel_limit(one(tmp_path, GRID.replace('cc = "cubic"', 'cc = "udt"'))) is None


def test_a_plan_for_mounts(tmp_path: Path, command: Command) -> None:
    """The kernel's connections have autotuned buffers, and a read sends the other way."""
    text = MOUNT.replace('"nfs"', '"nfs+nconnect:4"\nhost_a = "tuned+tcp_rmem:4096/131072/1000000"')
    (tmp_path / "c.toml").write_text(text)
    told = command("campaign", "run", "c.toml", "--dry-run")
    assert "2 runs, 0 done, 2 to do" in told.stdout, told.stderr
    said = [line for line in told.stderr.splitlines() if "leaves the buffer to the kernel" in line]
    # 0.71 of 1000000 B, four times in 45.6 ms, are 0.498 Gb/s.
    assert any(
        "tcp_rmem (1 MB)" in line and "0.498 Gb/s for 4 connections at 45.6 ms; raise tcp_rmem" in line
        for line in said
    )
    assert any("tcp_wmem (4.19 MB)" in line for line in said) and "samples" not in told.stderr
    told = command("campaign", "run", "c.toml", "--find-best")
    assert told.returncode == 2 and "--find-best cannot search among runs on a mount" in told.stderr


def test_a_plan_for_stock_and_for_real_hosts(tmp_path: Path, command: Command) -> None:
    stock = LONG.replace('rate = "1gbit"', 'rate = "1gbit", host = "stock"')
    (tmp_path / "c.toml").write_text(stock.replace("[1]", '[1], buffer = "64MB"').replace("5s", "60s"))
    told = command("campaign", "run", "c.toml", "--dry-run").stderr
    assert "warning: 1 of 2 runs asks for more buffer than it gets: rmem_max (0.213 MB) bounds it" in told
    assert "0.0115 Gb/s for 1 stream at 183 ms; raise rmem_max in path.host" in told
    real = LONG.replace('rtt = ["1ms", "183ms"], rate = "1gbit"', 'host = "dtn2"').replace("5s", "2s")
    (tmp_path / "c.toml").write_text(real)
    told = command("campaign", "run", "c.toml", "--dry-run").stderr
    assert "warning: 1 of 1 run goes to a real host and leaves the buffer to its kernel" in told
    assert "about 0.238 Gb/s at 100 ms; give transport.buffer if the path is long" in told
    assert "warning: 1 of 1 run lasts less than 50 samples" in told
