import math
import random
from collections.abc import Callable

import pytest

from fullpipe.errors import UsageError
from fullpipe.units import (
    format_block,
    format_rate,
    format_size,
    format_size_short,
    format_time,
    parse_probability,
    parse_rate,
    parse_size,
    parse_time,
)


def test_the_fields_units() -> None:
    assert parse_rate("10gbit") == 10**10
    assert parse_rate("9.92Gbit") == 9_920_000_000
    assert parse_size("256MB") == 256 * 10**6
    assert parse_size("256MiB") == 2**28
    assert parse_size("1e9B") == 10**9
    assert parse_time("45.6ms") == 45_600_000
    assert parse_time(" 1.5 min ") == 90 * 10**9
    assert parse_probability("0.1%") == 0.001
    assert parse_probability(1e-3) == parse_probability("1e-3") == 0.001


@pytest.mark.parametrize(
    "text", ["10Gb/s", "10Gbps", "10Gbit/s", "10gbit/s", "10GBIT", "10000Mbps", "1e10b/s", "0.01 Tbps"]
)
def test_rates_as_others_write_them(text: str) -> None:
    assert parse_rate(text) == 10**10


@pytest.mark.parametrize("text", ["10GB/s", "10GB", "10GBps", "10GBPS", "10GiB", "10MB/s", "10B"])
def test_bytes_are_no_rate(text: str) -> None:
    with pytest.raises(UsageError, match=f"'{text}' is not a rate: .* unknown; .*bits per second"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["10gbit", "9.92gbit", "970mbit", "1bit", "0bit"])
def test_rates_come_back(text: str) -> None:
    assert format_rate(parse_rate(text)) == text


def test_sizes_and_times_print_as_in_records() -> None:
    assert format_size(parse_size("2GiB")) == "2.147483648GB"
    assert [format_block(n) for n in (4096, 3 << 20, 1 << 30)] == ["4KiB", "3MiB", "1GiB"]
    assert format_size(2**22) == "4.194304MB"
    short = [format_size_short(n) for n in (0, 1000, 4096, 2**22, 256_000_000, 10**9, 2**30)]
    assert short == ["0B", "1KB", "4KiB", "4MiB", "256MB", "1GB", "1GiB"]
    assert format_size(parse_size("1000GB")) == "1TB"
    assert [format_size(n) for n in (0, 7, 10, 9014)] == ["0B", "7B", "10B", "9.014KB"]
    assert format_size(14_750_000) == "14.75MB"
    assert format_time(parse_time("0.4ms")) == "400us"
    for text in ("11.8ms", "366ms", "100s"):
        assert format_time(parse_time(text)) == text


@pytest.mark.parametrize("text", ["250KB", "500KB", "16MB", "250MB", "457.5MB", "1GB"])
def test_the_names_of_runs_keep_their_sizes(text: str) -> None:
    assert format_size(parse_size(text)) == text


@pytest.mark.parametrize(
    ("parse", "form", "most"),
    [(parse_rate, format_rate, 10**12), (parse_size, format_size, 10**15), (parse_time, format_time, 10**15)],
)
def test_every_value_comes_back(parse: Callable[[str], int], form: Callable[[int], str], most: int) -> None:
    draw = random.Random(1)
    for value in (int(10 ** draw.uniform(0, math.log10(most))) for _ in range(5000)):
        assert parse(form(value)) == value


def test_a_number_alone_lacks_its_unit() -> None:
    for parse, what, example in (
        (parse_rate, "rate", "10gbit"), (parse_size, "size", "256MB"), (parse_time, "time", "45.6ms"),
    ):  # fmt: skip
        for value in (10, "10"):
            with pytest.raises(UsageError, match=f"'10' is not a {what}: its unit is missing.*'{example}'"):
                parse(value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("fast", "should start with a number"),
        ("-1gbit", "should start with a number"),
        ("1.2.3gbit", "should start with a number"),
        ("10gb", "unit 'gb' is unknown"),
        ("10", "unit is missing"),
        ("99999tbit", "out of range"),
        ("1e999gbit", "out of range"),
    ],
)
def test_what_does_not_parse_says_why(text: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        parse_rate(text)


@pytest.mark.parametrize("text", ["1.5", "nan", "", "-0.1", "x"])
def test_no_probability(text: str) -> None:
    with pytest.raises(UsageError):
        parse_probability(text)


@pytest.mark.parametrize(("text", "unit"), [("1Mb", "MB"), ("1mb", "MB"), ("5kib", "KiB"), ("7b", "B")])
def test_a_small_b_may_mean_bits(text: str, unit: str) -> None:
    with pytest.raises(UsageError, match=f"may mean bits; write {unit} for bytes"):
        parse_size(text)
