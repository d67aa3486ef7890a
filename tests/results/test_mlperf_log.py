"""The parser takes what real logs hold, and whatever else."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from results.mlperf_log import LogEvent, parse_log, read_log

OLD = b':::MLL 1558570764.081 run_start: {"value": null, "metadata": {"file": "train.py", "lineno": 610}}'
NEW = b':::MLLOG {"namespace": "", "time_ms": 1593115818302, "event_type": "POINT", "key": "seed", "value": 7, "metadata": {}}'


def test_both_formats() -> None:
    parsed = parse_log(OLD + b"\n" + NEW + b"\n")
    assert parsed.events == [
        LogEvent(1558570764.081, "run_start", None, {"file": "train.py", "lineno": 610}),
        LogEvent(1593115818.302, "seed", 7, {}),
    ]
    assert parsed.formats == {"MLL", "MLLOG"}
    assert parsed.broken == 0


def test_among_other_output_of_a_launcher_and_windows_line_ends() -> None:
    data = b"NCCL INFO ring\r\n[1,0]<stdout>:" + OLD + b"\r\n\xff\xfe\x00 50%|#####   | 3/6\r" + NEW + b"\r\n"
    assert [event.key for event in parse_log(data).events] == ["run_start", "seed"]


def test_two_ranks_on_one_line_and_text_behind() -> None:
    data = NEW + NEW + b" epoch 3 done\n" + OLD + OLD + b"\n"
    assert [event.key for event in parse_log(data).events] == ["seed", "seed", "run_start", "run_start"]


def test_cut_last_line_is_counted_and_left_out() -> None:
    parsed = parse_log(OLD + b"\n" + NEW[:60])
    assert [event.key for event in parsed.events] == ["run_start"]
    assert parsed.broken == 1


def test_only_the_keys_asked_for() -> None:
    data = OLD + b"\n" + NEW + b"\n"
    assert [event.key for event in parse_log(data, {"seed"}).events] == ["seed"]
    assert [event.key for event in parse_log(data, {"run_start"}).events] == ["run_start"]


def test_gzip_whole_and_cut(tmp_path: Path) -> None:
    lines = b"\n".join(
        b':::MLL %d.0 epoch_start: {"value": %d, "metadata": {}}' % (n, random.getrandbits(60)) for n in range(5000)
    )
    whole, cut = tmp_path / "whole.gz", tmp_path / "cut.gz"
    whole.write_bytes(gzip.compress(lines))
    cut.write_bytes(gzip.compress(lines)[:-1000])
    assert len(read_log(whole).events) == 5000
    assert 1000 < len(read_log(cut).events) < 5000


def test_values_of_any_json_kind() -> None:
    for value in ({"BBOX": 0.37, "SEGM": 0.34}, [40, 50], True, "text with } and { and \\", None, 1.5):
        line = f":::MLLOG {json.dumps({'time_ms': 1000, 'key': 'k', 'value': value, 'metadata': {}})}".encode()
        assert parse_log(line).events == [LogEvent(1.0, "k", value, {})]


@given(st.binary(max_size=2000))
def test_any_bytes(data: bytes) -> None:
    parse_log(data)
    parse_log(b":::MLLOG " + data)
    parse_log(b":::MLL 1.5 key: " + data)


@given(
    st.lists(st.text(st.characters(exclude_characters="\n\r:", exclude_categories=["Cs"]), max_size=60), max_size=12), st.data()
)
def test_other_output_between_lines_changes_nothing(noise: list[str], data: st.DataObject) -> None:
    lines = [OLD, NEW, OLD]
    for text in noise:
        lines.insert(data.draw(st.integers(0, len(lines))), text.encode())
    assert [event.key for event in parse_log(b"\n".join(lines)).events] == ["run_start", "seed", "run_start"]
