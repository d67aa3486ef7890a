import pytest

from results.rates import parse_rate, show_rate
from results.yaml_file import ConfigurationError


@pytest.mark.parametrize(
    ("text", "bits_per_s"), [("200mbit", 2e8), ("1.5gbit", 1.5e9), ("100Gbit", 1e11), ("64kbit", 64e3), ("9600bit", 9600)]
)
def test_reads_rates_as_tc_does(text: str, bits_per_s: float) -> None:
    assert parse_rate(text) == bits_per_s


@pytest.mark.parametrize("text", ["", "200", "200mb", "0mbit", "-1gbit", "fast", "1e9bit", "200 mbit; rm"])
def test_refuses_what_is_no_rate(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a rate"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("bits_per_s", "text"), [(189.4e6, "189 Mbit/s"), (1e11, "100 Gbit/s"), (12, "12 bit/s"), (4500, "4.5 kbit/s")]
)
def test_shows_three_digits(bits_per_s: float, text: str) -> None:
    assert show_rate(bits_per_s) == text
