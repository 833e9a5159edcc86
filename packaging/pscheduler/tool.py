#!/usr/bin/env python3
"""The fullpipe tool of pScheduler, for its `throughput` test: all methods in one program.

pScheduler runs a program for each method, named as the method, in the folder of the tool. Those programs are
links to this file, which looks at the name that it was called by. Input is JSON on stdin, output JSON on
stdout; on an error there is one line on stderr and the exit code 1. docs/howto/perfsonar.md tells how to
install it.

It needs nothing but the standard library, and runs with Python 3.6 and later, which perfSONAR's hosts have.
"""

import bisect
import configparser
import datetime
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

NAME = "fullpipe"
MAX_SCHEMA = 7
"""The newest version of a specification of `throughput` that the program knows."""
CONFIG = "/etc/pscheduler/tool/fullpipe.conf"
DEFAULT_PORT = 7412
DEFAULT_DURATION_S = 10.0
DEFAULT_LINK_RTT_S = 0.2
DEFAULT_UDP_BPS = 1000000
"""The rate of a test over UDP that names none, bit/s, as with other tools."""
SERVER_START_S = 2.0
"""How long the client waits after the start of the schedule, so that the server listens."""
SERVER_END_S = 3.0
"""How long a run may take beyond its duration to exchange results and end."""
LINE_LIMIT = 4000
"""The most characters of a line of output that stand in the diagnostics."""

SUPPORTED = (
    "schema", "source", "source-node", "dest", "dest-node", "duration", "interval", "link-rtt", "parallel",
    "udp", "bandwidth", "fq-rate", "window-size", "mss", "buffer-length", "ip-tos", "ip-version", "omit",
    "local-address", "congestion", "single-ended", "single-ended-port", "reverse",
)  # fmt: skip
"""The keys of a specification that the program can act on."""

OF_SAMPLE = (
    "t", "end", "stream", "bytes", "total_retrans", "snd_cwnd", "snd_mss", "rtt", "datagrams_received",
    "datagrams_lost", "jitter_ns",
)  # fmt: skip
"""The fields of a sample that a result is made of."""

_DURATION = re.compile(
    r"P(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?(?:T(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?"
)
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d+))?\s*(Z|[+-]\d\d:?\d\d)?")


class InputError(Exception):
    """The input of a method is not what pScheduler's interface describes; the text says what is wrong."""


def seconds(text):
    """The seconds of an ISO 8601 duration such as `PT10S`."""
    found = _DURATION.fullmatch(str(text))
    if found is None or not any(found.groups()):
        raise InputError(f"'{text}' is not a duration such as PT10S")
    units = (604800, 86400, 3600, 60, 1)
    return sum(float(part or 0) * unit for part, unit in zip(found.groups(), units))  # noqa: B905


def unix_time(text):
    """The Unix time of an ISO 8601 instant; one without a zone is in this host's."""
    found = _INSTANT.fullmatch(str(text))
    if found is None:
        raise InputError(f"'{text}' is not a time such as 2026-01-31T12:34:56Z")
    day, clock, part, zone = found.groups()
    at = datetime.datetime.strptime(day + " " + clock, "%Y-%m-%d %H:%M:%S")
    fraction = float("0." + (part or "0"))
    if zone is None:
        return time.mktime(at.timetuple()) + fraction
    if zone != "Z":
        sign = -1 if zone[0] == "-" else 1
        at -= datetime.timedelta(minutes=sign * (60 * int(zone[1:3]) + int(zone[-2:])))
    return at.replace(tzinfo=datetime.timezone.utc).timestamp() + fraction  # noqa: UP017


def is_set(spec, key):
    """Whether a Boolean of a specification is true."""
    return bool(spec.get(key, False))


def duration_of(spec):
    """Seconds that a test moves data after what it omits."""
    return seconds(spec["duration"]) if spec.get("duration") else DEFAULT_DURATION_S


def omit_of(spec):
    """Seconds at the beginning of a test that its results leave out."""
    return seconds(spec["omit"]) if spec.get("omit") else 0.0


def setup_of(spec):
    """Seconds for the handshakes before data move: some 20 round trips, at least one second."""
    return max(20 * (seconds(spec["link-rtt"]) if spec.get("link-rtt") else DEFAULT_LINK_RTT_S), 1.0)


def config():
    """What this host's administrator has chosen: `program`, `server_port`, `data_ports`."""
    chosen = {"program": NAME, "server_port": str(DEFAULT_PORT), "data_ports": ""}
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(os.environ.get("FULLPIPE_PSCHEDULER_CONF", CONFIG))
    except configparser.Error as error:
        raise InputError(f"the configuration cannot be read: {str(error).splitlines()[0]}") from None
    if parser.has_section(NAME):
        chosen.update(parser.items(NAME))
    chosen["program"] = os.environ.get("FULLPIPE", chosen["program"])
    return chosen


def port(text):
    """A number of a port; raises InputError if it is none."""
    if not str(text).isdigit() or not 0 < int(text) < 65536:
        raise InputError(f"'{text}' is not a port")
    return int(text)


def enumerate_(_):
    """Describes the tool."""
    return {
        "schema": 1,
        "name": NAME,
        "description": "Measure network throughput with fullpipe",
        "version": "1.0",
        "tests": ["throughput"],
        "preference": 0,
        "maintainer": {"name": "The fullpipe authors"},
    }


def _reasons(spec):
    """Why the tool cannot run a test; none if it can."""
    if spec.get("schema", 1) > MAX_SCHEMA:
        return [f"fullpipe's tool knows specifications up to schema {MAX_SCHEMA}"]
    reasons = [f"fullpipe does not support {key}" for key in spec if key not in SUPPORTED]
    if not spec.get("dest"):
        reasons.append("the destination is missing")
    for key in ("duration", "omit", "interval", "link-rtt"):
        try:
            if spec.get(key):
                seconds(spec[key])
        except InputError as error:
            reasons.append(f"{key}: {error}")
    if spec.get("parallel", 1) > 256:
        reasons.append("fullpipe sends over at most 256 streams")
    if spec.get("bandwidth") and spec.get("fq-rate"):
        reasons.append("bandwidth and fq-rate exclude each other")
    if (spec.get("ip-tos") or 0) & 3:
        reasons.append("fullpipe sets the DSCP, not the two ECN bits of ip-tos")
    if is_set(spec, "udp"):
        names = ("congestion", "mss")
        reasons += [f"fullpipe does not support {name} over UDP" for name in names if spec.get(name)]
    elif spec.get("buffer-length"):
        reasons.append("fullpipe supports buffer-length only over UDP, as the size of a datagram")
    return reasons


def can_run(given):
    """Says whether the tool can run a test, and why not."""
    if given.get("type") != "throughput":
        return {"can-run": False, "reasons": ["fullpipe runs only throughput tests"]}
    if not isinstance(given.get("spec"), dict):
        return {"can-run": False, "reasons": ["the specification of the test is missing"]}
    reasons = _reasons(given["spec"])
    return {"can-run": False, "reasons": reasons} if reasons else {"can-run": True}


def duration(given):
    """Says how long a run takes, with what comes before and after the data."""
    spec = given["spec"]
    whole = setup_of(spec) + omit_of(spec) + duration_of(spec) + SERVER_START_S + SERVER_END_S
    return {"duration": f"PT{int(-(-whole // 1))}S"}


def participant_data(given):
    """What the other participant needs to know: the server's port."""
    chosen = config()
    if given["participant"] == 0:
        return {"schema": 1}
    if given["participant"] == 1:
        return {"schema": 1, "server_port": port(chosen["server_port"])}
    raise InputError("there is no participant {} in this test".format(given["participant"]))


def _addresses(name, version):
    families = {4: socket.AF_INET, 6: socket.AF_INET6}
    if version is not None and version not in families:
        raise InputError(f"'{version}' is not a version of IP")
    try:
        found = socket.getaddrinfo(name, None, families.get(version, 0), socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise InputError(f"no address of {name} is known: {error.strerror}") from None
    return [(family, address[0]) for family, _, _, _, address in found]


def _is_own(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def own_address(name, family):
    """An address of this host that a name has in a family; None if it has none."""
    if not name:
        return None
    try:
        found = _addresses(name, None)
    except InputError:
        return None
    return next((address for kind, address in found if kind == family and _is_own(kind, address)), None)


def _rate(spec):
    """The rate in bit/s of all streams together that a specification allows; None for no limit."""
    if spec.get("bandwidth"):
        return int(spec["bandwidth"])
    if spec.get("fq-rate"):
        return int(spec["fq-rate"]) * int(spec.get("parallel") or 1)
    return DEFAULT_UDP_BPS if is_set(spec, "udp") else None


def interval_of(spec):
    """Seconds between two reports."""
    return (seconds(spec["interval"]) if spec.get("interval") else 0.0) or 1.0


def client_command(program, spec, server_port):
    """The words of the client's command for a test."""
    family, address = _addresses(spec["dest"], spec.get("ip-version"))[0]
    local = spec.get("local-address")
    source = own_address(local or spec.get("source"), family)
    if local and source is None:
        raise InputError("{} is no address of this host for {}".format(local, spec["dest"]))
    host = f"[{address}]" if family == socket.AF_INET6 else address
    words = [program, "measure", f"{host}:{server_port}", "--json"]
    words += ["--duration", f"{duration_of(spec):g}s", "--streams", str(spec.get("parallel") or 1)]
    # An interval needs two samples.
    words += ["--sample", f"{min(0.1, interval_of(spec) / 2):g}s"]
    if omit_of(spec):
        words += ["--omit", f"{omit_of(spec):g}s"]
    if is_set(spec, "udp"):
        words += ["--transport", "udp"]
        if spec.get("buffer-length"):
            words += ["--datagram-size", str(spec["buffer-length"])]
    if _rate(spec):
        words += ["--pacing", f"{_rate(spec)}bit"]
    if spec.get("congestion"):
        words += ["--cc", spec["congestion"]]
    if spec.get("window-size"):
        words += ["--buffer", "{}B".format(spec["window-size"])]
    if spec.get("mss"):
        words += ["--mss", str(spec["mss"])]
    if spec.get("ip-tos"):
        words += ["--dscp", str(spec["ip-tos"] >> 2)]
    if source is not None:
        words += ["--bind", source]
    return words + (["--reverse"] if is_set(spec, "reverse") else [])


def server_command(chosen, spec):
    """The words of the server's command for a test."""
    words = [chosen["program"], "serve", "--once", "--port", str(port(chosen["server_port"]))]
    words += ["--max-duration", f"{duration_of(spec) + omit_of(spec) + 1:g}s"]
    if chosen["data_ports"]:
        words += ["--data-ports", chosen["data_ports"]]
    found = _addresses(spec["dest"], spec.get("ip-version"))
    own = [address for family, address in found if _is_own(family, address)]
    # A host behind a translated address, or with several, listens on all.
    return words + (["--bind", own[0]] if len(own) == 1 and own[0] != "0.0.0.0" else [])


def _shortened(text):
    return "\n".join(line[:LINE_LIMIT] for line in text.strip().splitlines())


def run_program(words, timeout):
    """Runs a command; returns its exit code (None if the time was over), stdout and stderr.

    The command ends with this program, also if that is told to end.
    """
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    try:
        out, err = child.communicate(timeout=timeout)
        return child.returncode, out, err
    except subprocess.TimeoutExpired:
        child.terminate()
        out, err = child.communicate()
        return None, out, err
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def _failed(error, diags):
    return {
        "succeeded": False,
        "error": error,
        "diags": diags,
        "intervals": [],
        "summary": {"streams": [], "summary": {}},
    }


def _record(text):
    """The first line, the samples and the last line of a record as `fullpipe measure --json` prints it."""
    header, samples, result = None, [], None
    for line in text.splitlines():
        content = json.loads(line)
        if content["kind"] == "run":
            header = content
        elif content["kind"] == "sample":
            samples.append({key: content[key] for key in OF_SAMPLE if key in content})
        elif content["kind"] == "result":
            result = content
    return header, samples, result


class _Samples:
    """The samples of one stream at one end, in the order of time."""

    def __init__(self, samples):
        self.samples = samples
        self.times = [sample["t"] for sample in samples]

    def at(self, instant):
        """The sample nearest to an instant; None for the run's start, of which there is none."""
        after = bisect.bisect_left(self.times, instant)
        near = [0.0] + self.times
        # The sample before the instant is near[after], the one after it near[after + 1].
        if after < len(self.times) and near[after + 1] - instant < instant - near[after]:
            after += 1
        return self.samples[after - 1] if after else None


def _data(start, end, count, rate=None):
    """One `throughput-data` of pScheduler: times in s, total bytes, bit/s."""
    bps = 8.0 * count / (end - start) if rate is None and end > start else (rate or 0.0)
    return {"start": start, "end": end, "throughput-bits": bps, "throughput-bytes": count}


def _counts(stream, before, after, is_udp):
    """What the kernel, or the receiver of datagrams, counted for a stream between two samples of an end."""

    def change(key):
        if after is None or key not in after:
            return None
        return max(after[key] - (before or {}).get(key, 0), 0)

    found = {"stream-id": stream}
    if is_udp:
        received, lost = change("datagrams_received"), change("datagrams_lost")
        found["lost"] = lost
        found["sent"] = None if received is None or lost is None else received + lost
        found["jitter"] = None if after is None or "jitter_ns" not in after else after["jitter_ns"] / 1e6
        return found
    found["retransmits"] = change("total_retrans")
    if after is not None and "snd_cwnd" in after and "snd_mss" in after:
        found["tcp-window-size"] = after["snd_cwnd"] * after["snd_mss"]
    if after is not None and "rtt" in after:
        found["rtt"] = after["rtt"]
    return found


def _sum(blocks, key):
    known = [block[key] for block in blocks if block.get(key) is not None]
    return sum(known) if known else None


def _summed(blocks, is_udp):
    """The counts of all streams together."""
    if not is_udp:
        return {"retransmits": _sum(blocks, "retransmits")}
    jitters = [block["jitter"] for block in blocks if block.get("jitter") is not None]
    found = {"sent": _sum(blocks, "sent"), "lost": _sum(blocks, "lost")}
    found["jitter"] = sum(jitters) / len(jitters) if jitters else None
    return found


def _intervals(samples, streams, spec, is_udp):
    """The intervals of a test, from the samples of both ends: bytes are those that the receiver read.

    Samples come a little late. The rate of an interval is that between the samples nearest to its ends.
    """
    step, omit = interval_of(spec), omit_of(spec)
    lists = {(end, stream): [] for end in ("sender", "receiver") for stream in range(streams)}
    for sample in samples:
        lists[sample["end"], sample["stream"]].append(sample)
    of = {key: _Samples(found) for key, found in lists.items()}
    last = max([sample["t"] for sample in samples if sample["end"] == "receiver"] or [0.0])
    found = []
    begin = 0.0
    while begin < last - 1e-9:
        # A rest shorter than half an interval belongs to the last one.
        end = begin + step if last - begin - step > step / 2 else last
        blocks = []
        for stream in range(streams):
            before, after = (of["receiver", stream].at(instant) for instant in (begin, end))
            count = max((after or {}).get("bytes", 0) - (before or {}).get("bytes", 0), 0)
            taken = (after or {}).get("t", 0.0) - (before or {}).get("t", 0.0)
            block = _data(begin, end, count, 8.0 * count / taken if taken > 0 else 0.0)
            counting = of["receiver" if is_udp else "sender", stream]
            block.update(_counts(stream, counting.at(begin), counting.at(end), is_udp))
            block["omitted"] = end <= omit + 1e-3
            blocks.append(block)
        whole = _data(
            begin,
            end,
            sum(block["throughput-bytes"] for block in blocks),
            sum(block["throughput-bits"] for block in blocks),
        )
        whole.update(_summed(blocks, is_udp))
        whole["omitted"] = blocks[0]["omitted"]
        found.append({"streams": blocks, "summary": whole})
        begin = end
    return found


def _datagrams(udp):
    """The counts of datagrams of a result line."""
    received, lost = udp["received"], udp["lost"]
    return {"sent": received + lost, "lost": lost, "jitter": udp["jitter_s"] * 1e3}


def _summary(result, intervals, is_udp):
    """The summary of a test, of the time after what it omits."""
    counted = result.get("after_omitted") or result
    start = result["after_omitted"]["omit_s"] if "after_omitted" in result else 0.0
    end = start + counted["seconds"]
    whole = _data(start, end, counted["bytes"], counted["goodput_bps"])
    whole["receiver-throughput-bits"] = counted["goodput_bps"]
    if is_udp:
        whole.update(_datagrams(counted["udp"]))
    else:
        whole["retransmits"] = counted["retransmits"]
    kept = [interval["streams"] for interval in intervals if not interval["summary"]["omitted"]]
    streams = []
    for number, stream in enumerate(result["streams"]):
        if "after_omitted" in result:
            blocks = [interval[number] for interval in kept]
            block = _data(start, end, sum(one["throughput-bytes"] for one in blocks))
            block.update(_summed(blocks, is_udp))
        else:
            block = _data(start, end, stream["bytes"])
            block.update(_datagrams(stream["udp"]) if is_udp else {"retransmits": stream["retransmits"]})
        block["stream-id"] = number
        streams.append(block)
    return {"streams": streams, "summary": whole}


def result_of(text, spec, diags):
    """The result of `throughput` that a record as `fullpipe measure --json` prints it amounts to."""
    try:
        header, samples, result = _record(text)
        if header is None or result is None:
            return _failed("fullpipe printed no result", diags)
        if result["goodput_bps"] is None or (result.get("after_omitted") or result)["goodput_bps"] is None:
            why = (result.get("after_omitted") or {}).get("no_rate") or result.get("no_rate")
            return _failed(f"the run has no rate: {why}", diags)
        is_udp = is_set(spec, "udp")
        intervals = _intervals(samples, len(result["streams"]), spec, is_udp)
        found = {
            "succeeded": True,
            "diags": diags,
            "intervals": intervals,
            "summary": _summary(result, intervals, is_udp),
        }
        sender = header["sender"]
        for key, name in (("mss", "mss"), ("mtu", "mtu"), ("tcp-window-size", "sndbuf")):
            if isinstance(sender.get(name), int):
                found[key] = sender[name]
        if spec.get("window-size"):
            found["requested-tcp-window-size"] = spec["window-size"]
        return found
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return _failed(f"fullpipe printed what is no record: {error!r}", diags)


def _last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return (errors or lines or ["no message"])[-1]


def _run_client(given, spec, chosen):
    single = is_set(spec, "single-ended")
    at = (
        spec.get("single-ended-port") or DEFAULT_PORT
        if single
        else given["participant-data"][1]["server_port"]
    )
    words = client_command(chosen["program"], spec, port(at))
    wait_until(given["schedule"]["start"], 0.0 if single else SERVER_START_S)
    timeout = duration_of(spec) + omit_of(spec) + setup_of(spec) + SERVER_END_S
    code, out, err = run_program(words, timeout)
    diags = "\n\n".join(filter(None, [" ".join(words), _shortened(err)]))
    if code is None:
        return _failed(f"fullpipe did not end in {timeout:g} s", diags)
    if code:
        return _failed(f"fullpipe ended with code {code}: {_last_line(err)}", diags)
    last = out.strip().splitlines()[-1] if out.strip() else ""
    return result_of(out, spec, "\n\n".join(filter(None, [diags, last[:LINE_LIMIT]])))


def _run_server(given, spec, chosen):
    words = server_command(chosen, spec)
    wait_until(given["schedule"]["start"], 0.0)
    timeout = SERVER_START_S + duration_of(spec) + omit_of(spec) + setup_of(spec) + SERVER_END_S
    code, out, err = run_program(words, timeout)
    diags = "\n\n".join(filter(None, [" ".join(words), _shortened(out), _shortened(err)]))
    if code == 0:
        return {"succeeded": True, "diags": diags}
    why = "no client came" if code is None else f"fullpipe ended with code {code}: {_last_line(err)}"
    return {"succeeded": False, "error": why, "diags": diags}


def wait_until(start, further):
    """Sleeps until some seconds after an instant; not at all if that has passed."""
    time.sleep(max(unix_time(start) + further - time.time(), 0.0))


def run(given):
    """Takes part in a test as one of its participants; the first one's result is that of the test."""
    spec, participants = given["test"]["spec"], len(given["participant-data"])
    if participants != (1 if is_set(spec, "single-ended") else 2):
        raise InputError(f"the test needs another number of participants than {participants}")
    chosen = config()
    try:
        if given["participant"] == 0:
            return _run_client(given, spec, chosen)
        if given["participant"] == 1:
            return _run_server(given, spec, chosen)
    except FileNotFoundError:
        return _failed(
            "there is no program '{}'; install it, or name it in {}".format(chosen["program"], CONFIG), ""
        )
    raise InputError("there is no participant {} in this test".format(given["participant"]))


def merged_results(given):
    """Joins the participants' results: the client's has all numbers, and both have diagnostics."""
    results = given["results"]
    expected = 1 if is_set(given["test"]["spec"], "single-ended") else 2
    if len(results) != expected:
        raise InputError(f"the test has {len(results)} results instead of {expected}")
    found = dict(results[0] or _failed("the client has no result", ""))
    if not found.get("succeeded") and expected == 2:
        server = results[1] or {}
        if server.get("error"):
            found["error"] = "{}; the server: {}".format(found.get("error"), server["error"])
    said = [
        "Participant {}:\n{}".format(i, one["diags"])
        for i, one in enumerate(results)
        if one and one.get("diags")
    ]
    found["diags"] = "\n\n".join(said)
    return found


METHODS = {
    "enumerate": enumerate_,
    "can-run": can_run,
    "duration": duration,
    "participant-data": participant_data,
    "run": run,
    "merged-results": merged_results,
}


def main():
    """Runs the method by whose name the program was called, or which its first argument names."""
    name = os.path.basename(sys.argv[0])
    if name not in METHODS:
        name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in METHODS:
        return "call this program by the name of a method: {}".format(", ".join(METHODS))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        given = {} if name == "enumerate" else json.load(sys.stdin)
        if not isinstance(given, dict):
            raise InputError("the input is not a JSON object")
        print(json.dumps(METHODS[name](given)))
    except InputError as error:
        return f"{name}: {error}"
    except ValueError as error:
        return f"{name}: the input is not JSON: {error}"
    except (KeyError, IndexError) as error:
        return f"{name}: the input lacks {error}"
    except (TypeError, AttributeError) as error:
        return f"{name}: the input is not what the interface describes: {error}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
