import pytest

from fullpipe.errors import UsageError
from fullpipe.units import (
    format_rate,
    format_size,
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


@pytest.mark.parametrize("text", ["10gbit", "9.92gbit", "970mbit", "1bit", "0bit"])
def test_rates_come_back(text: str) -> None:
    assert format_rate(parse_rate(text)) == text


def test_sizes_and_times_print_as_in_records() -> None:
    assert format_size(parse_size("2GiB")) == "2147483.648KB"
    assert format_size(14_750_000) == "14.75MB"
    assert format_time(parse_time("0.4ms")) == "400us"
    for text in ("11.8ms", "366ms", "100s"):
        assert format_time(parse_time(text)) == text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("fast", "should start with a number"),
        ("-1gbit", "should start with a number"),
        ("1.2.3gbit", "should start with a number"),
        ("10gb", "unit 'gb' is unknown"),
        ("10", "unit '' is unknown"),
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
