"""The report in each format says the same, and says no more than the data show."""

from __future__ import annotations

import csv as csv_module
import io
import json as json_module
from itertools import pairwise
from pathlib import Path

import pytest
from published_logs import DATA
from records import a_record, a_settings, write_records

from results.archive import load
from results.fabric import FabricResult
from results.report import cells, csv, html, json, markdown, terminal
from results.report.build import build_report
from results.report.content import Report
from results.score import Interval
from results.staging import StagedData


def report_of(folder: Path, *against: str) -> Report:
    return build_report(load([folder]), [folder], against)


@pytest.fixture(scope="module")
def two_rails(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Five repeats at 1, 2 and 8 nodes on one rail and on two; a failed run, and one on other rails than asked."""
    records = []
    for rail, minutes in (("edr-1", {1: 150.0, 2: 76.0, 8: 25.0}), ("edr-2", {1: 150.0, 2: 75.98, 8: 21.0})):
        for nodes, value in minutes.items():
            epochs = 41 if nodes == 8 else 35
            for repeat in range(1, 6):
                time = value * (1 + 0.002 * repeat)
                share = 0.1 if nodes == 8 and rail == "edr-1" else 0.02
                records.append(
                    a_record(nodes=nodes, minutes=time, epochs=epochs, interconnect=rail, repeat=repeat, exposed_share=share)
                )
    records += [a_record(nodes=8, interconnect="edr-2", repeat=6, status="failed")]
    records += [a_record(nodes=2, interconnect="edr-1", repeat=6, minutes=70, rails="rails-differ")]
    return report_of(write_records(tmp_path_factory.mktemp("runs"), records), "mlperf-v0.6")


def test_terminal_fits_100_columns_and_cuts_nothing(two_rails: Report) -> None:
    text = terminal.render(two_rails)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "…" not in text
    for header in (
        "nodes",
        "ranks",
        "local",
        "global",
        "runs",
        "epochs",
        "minutes",
        "min–max",
        "speedup",
        "images/s",
        "eff.",
        "eval",
    ):
        assert header in text
    assert terminal.render(report_of(DATA)).count("\n") > 20
    assert max(len(line) for line in terminal.render(report_of(DATA)).splitlines()) <= 100


def test_the_bytes_of_every_rail_stand_in_the_report(two_rails: Report) -> None:
    lines = [" ".join(line.split()) for line in terminal.render(two_rails).splitlines()]
    assert "interconnect nodes runs mlx5_0:1 mlx5_1:1 verdict" in lines
    # Each record has 10^12 bytes in each direction on its rails, and 10^6 on the second where one was asked for.
    assert "edr-2 8 6 2,000.00 GB 2,000.00 GB as-asked" in lines
    assert "edr-1 2 6 2,000.00 GB 0.00 GB as-asked, rails-differ" in lines
    assert "| edr-2 | 8 | 6 | 2,000.00 GB |" in " ".join(markdown.render(two_rails).split())
    assert not any(line.startswith("edr-1 1 5 2,000") for line in lines)  # one node: nothing had to leave it


def test_the_base_case_stands_in_minutes_and_images_per_second(two_rails: Report) -> None:
    assert "Base case: 1 node, 4 ranks: 150.90 min, 5,106 images/s." in terminal.render(two_rails)


def test_failed_and_misrouted_runs_are_shown_and_not_counted(two_rails: Report) -> None:
    assert len(two_rails.not_counted) == 2
    for text in (terminal.render(two_rails), markdown.render(two_rails).replace("\\", "")):
        assert "rank 3 was killed by signal 9" in text
        assert "kept out of the speedups, rails differ: mlx5_1" in text
    assert all(row.runs == 5 for curve in two_rails.curves for row in curve.rows)


def test_runs_that_were_resumed_are_named_with_the_time_lost(tmp_path: Path) -> None:
    records = [a_record(repeat=repeat) for repeat in (1, 2)]
    records.append(a_record(repeat=3, restart_s=93.5).model_copy(update={"restarts": 2}))
    told = [remark for remark in report_of(write_records(tmp_path, records)).remarks if "resumed" in remark]
    assert told == ["Interrupted and resumed; the time lost counts in the time to train: resnet50-1n-edr-1-3 (2 times, 93.5 s)."]


def test_runs_that_may_have_read_from_memory_are_marked(tmp_path: Path) -> None:
    cleared = [a_record(repeat=repeat).model_copy(update={"page_cache_cleared": True}) for repeat in (1, 2)]
    warm = [a_record(repeat=repeat).model_copy(update={"page_cache_cleared": False}) for repeat in range(3, 10)]
    report = report_of(write_records(tmp_path, [*cleared, *warm, a_record(repeat=10)]))
    (told,) = [remark for remark in report.remarks if "Page cache" in remark]
    assert "every host): resnet50-1n-edr-1-3, resnet50-1n-edr-1-4" in told
    assert "resnet50-1n-edr-1-7 and 2 more. They" in told
    assert all("Page cache not cleared before" in text for text in (terminal.render(report), markdown.render(report)))
    marked = {run.name for run in report.runs if "page cache not cleared" in cells.run_row(run)[-1]}
    assert marked == {f"resnet50-1n-edr-1-{repeat}" for repeat in range(3, 10)}


def test_set_ups_say_where_the_data_were_read(tmp_path: Path) -> None:
    copies = [
        StagedData(host=host, path=Path("/nvme/trainscale/few-0123"), files=12, size_bytes=3456, copied=True, seconds_s=1.5)
        for host in ("node1", "node2")
    ]
    record = a_record().model_copy(update={"staging": copies, "page_cache_cleared": False})
    shown = html.render(report_of(write_records(tmp_path, [record])))
    assert "read from the copy on node1, node2: /nvme/trainscale/few-0123, 12 files, 3,456 bytes" in shown
    assert "page cache: NOT cleared before the run" in shown


def test_rails_side_by_side(two_rails: Report) -> None:
    (rails,) = two_rails.rails
    assert (rails.first, rails.second) == ("edr-1", "edr-2")
    two, eight = rails.rows
    assert two.verdict == "no difference shown: the intervals overlap"
    assert eight.verdict == "edr-2 scales better by 19.0%"  # 25 / 21
    assert eight.difference == pytest.approx(150.9 / (21 * 1.006) - 150.9 / (25 * 1.006))
    assert eight.difference_low is not None
    assert eight.difference_low < eight.difference


def test_no_difference_is_claimed_from_three_runs(tmp_path: Path) -> None:
    records = [
        a_record(nodes=nodes, minutes=minutes + 0.01 * repeat, interconnect=rail, repeat=repeat + 1)
        for rail, times in (("edr-1", (150, 100)), ("edr-2", (150, 50)))
        for nodes, minutes in zip((1, 2), times, strict=True)
        for repeat in range(3)
    ]
    (rails,) = report_of(write_records(tmp_path, records)).rails
    assert rails.rows[0].verdict == "no difference shown: 3 runs are too few, at least 4 are needed"


def test_sentence_names_the_loss_and_the_lever(two_rails: Report) -> None:
    text = terminal.render(two_rails, width=1000)
    assert "are epochs: global batch 6656 needs 41 epochs against 35; no interconnect changes that." in text


def test_titles_say_weak_or_strong_emulated_and_embedded(tmp_path: Path) -> None:
    settings = a_settings(embedded=True)
    report = report_of(
        write_records(tmp_path, [a_record(nodes=n, minutes=150 / n, emulated=True, settings=settings) for n in (1, 2)]),
        "mlperf-v0.6",
    )
    assert report.title == "Scale-out of ResNet-50 · EMULATED on one host · EMBEDDED data"
    (curve,) = report.curves
    assert curve.title == "ResNet-50 · C4140 · edr-1 · weak scaling (208 images per rank) · EMULATED on one host · EMBEDDED data"
    assert report.scale_up[0].rows == []
    assert "compare with no published number" in report.scale_up[0].remark
    for text in (terminal.render(report), markdown.render(report)):
        assert "EMULATED on one host" in text.splitlines()[0]


def test_scale_up_systems_of_as_many_gpus(two_rails: Report) -> None:
    (content,) = two_rails.scale_up
    assert content.kind == "official"
    rows = {(row.system, row.accelerators, row.nodes, row.interconnect) for row in content.rows}
    assert rows == {("DGX-1", 8, 2, "edr-1"), ("DGX-1", 8, 2, "edr-2")}  # 16 GPUs: no run on 4 nodes here
    assert content.rows[0].published_time_s == pytest.approx(115.22 * 60)


def test_logs_of_one_round_are_not_set_beside_another(tmp_path: Path) -> None:
    (v06,) = report_of(DATA / "v0.7", "mlperf-v0.6").scale_up
    assert v06.rows == []
    assert report_of(DATA / "v0.7", "mlperf-v0.7-others").scale_up[0].rows


def test_markdown_tables_are_well_formed(two_rails: Report) -> None:
    lines = markdown.render(two_rails).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert len(tables) > 20
    for before, line in pairwise(lines):
        if before.startswith("|") and line.startswith("|"):
            assert before.replace("\\|", "").count("|") == line.replace("\\|", "").count("|")


def test_csv_has_units_in_its_names_and_a_line_for_each_row(two_rails: Report) -> None:
    rows = list(csv_module.DictReader(io.StringIO(csv.render(two_rails))))
    assert len(rows) == 6
    first = rows[0]
    assert float(first["time_to_train_s"]) == pytest.approx(150 * 1.006 * 60)
    assert first["interconnect"] == "edr-1"
    assert first["scaling"] == "weak scaling"
    eight = next(row for row in rows if row["nodes"] == "8")
    lost = sum(float(value) for name, value in eight.items() if name.startswith("lost_points_") and value)
    assert lost == pytest.approx(100 * (1 - float(eight["speedup"]) / 8))


def test_csv_holds_no_formula(tmp_path: Path) -> None:
    text = csv.render(report_of(write_records(tmp_path, [a_record(system="=HYPERLINK(1)")])))
    assert "'=HYPERLINK(1)" in text


def test_json_is_json_and_says_all(two_rails: Report) -> None:
    document = json_module.loads(json.render(two_rails), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert document["title"] == two_rails.title
    assert [len(curve["rows"]) for curve in document["curves"]] == [3, 3]
    assert document["curves"][0]["rows"][2]["speedup"] == two_rails.curves[0].rows[2].speedup
    assert len(document["runs"]) == 32


def test_json_without_infinities(tmp_path: Path) -> None:
    """A missed run among six makes an interval that reaches zero on one side and infinity on the other."""
    records = [a_record(nodes=n, minutes=150 / n + r, repeat=r + 1) for n in (1, 2) for r in range(5)]
    records.append(a_record(nodes=1, repeat=9, status="target-missed"))
    text = json.render(report_of(write_records(tmp_path, records)))
    json_module.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    records = [a_record(), a_record(repeat=2, settings=a_settings(precision="bf16"))]
    report = report_of(write_records(tmp_path, records))
    assert sorted(curve.variant for curve in report.curves) == ["precision=bf16", "precision=fp16"]


def a_fabric(nodes: int, seconds_s: float, verdict: str = "as-asked", started_at: str = "2026-01-05T09:00:00Z") -> FabricResult:
    """8 MB and gradients of ResNet-50 in `seconds_s`."""
    point = {"fastest_s": seconds_s, "slowest_s": seconds_s, "iterations": 10, "seconds_s": seconds_s}
    return FabricResult.model_validate(
        {
            "interconnect": "edr-1", "emulated_nodes": False, "command": ["mpirun"], "fit": None,
            "asked": {"source": "infiniband-port-counters", "devices": ["mlx5_0:1"]},
            "measurement": {
                "started_at": started_at, "ranks": 4 * nodes, "hosts": [f"node{rank // 4}" for rank in range(4 * nodes)],
                "device": "cpu", "operations": "mpi", "mpi": "", "point_to_point": [], "least_exchange_bytes": 1,
                "allreduce": [{"size_bytes": 25_557_032 * 4, **point}], "before": {"nodes": []}, "after": {"nodes": []},
            },
            "evidence": {"verdict": verdict, "reason": "because"},
        }
    )  # fmt: skip


def test_the_fabric_bounds_the_speedup(tmp_path: Path) -> None:
    """The latest measurement counts, and one over other rails than asked bounds nothing."""
    write_records(tmp_path / "runs", [a_record(nodes=n, minutes=150 / n + n) for n in (1, 2, 4)])
    step_s = 1664 / (35 * 1_281_167 / (0.97 * 151 * 60))  # of 2 nodes at the ideal rate
    fabrics = {"old": a_fabric(2, 9.0, started_at="2025-01-01T00:00:00Z"), "new": a_fabric(2, 3 * step_s)}
    fabrics["elsewhere"] = a_fabric(4, 9.0, "rails-differ")
    for name, fabric in fabrics.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "fabric.json").write_text(fabric.model_dump_json())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "fabric.json").write_text("{}")
    report = report_of(tmp_path)
    two, four = report.curves[0].rows[1:]
    assert two.communication_bound is not None
    assert two.communication_bound == pytest.approx(1 / 3, rel=0.05)
    assert four.communication_bound is None
    assert [fabric.rails for fabric in report.fabrics] == ["as-asked", "rails-differ"]
    assert "not a fabric measurement" in report.problems[0][1]
    for text in (terminal.render(report), markdown.render(report), json.render(report)):
        assert "edr-1" in text
    assert "Fabric, measured by allreduce" in terminal.render(report)


def test_intervals() -> None:
    assert Interval(1, 2).overlaps(Interval(2, 3))
    assert not Interval(1, 2).overlaps(Interval(2.1, 3))


def test_nodes_without_rails_have_no_table_of_bytes(tmp_path: Path) -> None:
    """Nodes that are emulated on one host meet in its memory: its devices are there and carried nothing."""
    records = []
    for nodes in (1, 2):
        record = a_record(nodes=nodes, emulated=True, interconnect="loopback")
        idle = [rail.model_copy(update={"received_bytes": 0, "transmitted_bytes": 0}) for rail in record.rails.rails]
        records.append(record.model_copy(update={"rails": record.rails.model_copy(update={"rails": idle})}))
    report = report_of(write_records(tmp_path, records))
    assert cells.rail_bytes_table(report).rows == []
    assert "Bytes by rail" not in terminal.render(report)
