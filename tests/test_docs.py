"""The pages: links lead somewhere, commands are commands of this project, and those that can run here run."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from launch.cli import cli
from tests.results.records import a_record, write_records

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
PUBLISHED = ROOT / "tests" / "results" / "data" / "v0.7" / "DellEMC"


def commands(page: Path, program: str) -> list[str]:
    """Command lines of a page's code blocks, and those within its sentences; what follows three spaces or a # is a remark."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(rf"^    ((?:[A-Z_]+=\S+ )*{program}(?: .*)?)$", text, re.MULTILINE)
    found += re.findall(rf"`({program} [^`]+)`", text)
    return [re.split(r" {3,}| +#| · ", re.sub(r"  +(?=-)", " ", line))[0].strip() for line in found]


def documented(program: str) -> list[tuple[str, str]]:
    return [(str(page.relative_to(ROOT)), line) for page in PAGES for line in commands(page, program)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        other = page.parent / path if path else page
        assert other.exists(), f"{page.name} links to {target}"
        headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in [re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop().resolve()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        targets = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
        todo += [page.parent / target for target in targets if not target.startswith("http")]
    assert set(PAGES) - reached == set()


@pytest.mark.parametrize(("page", "line"), documented("trainscale"), ids=lambda value: str(value))
def test_each_command_is_one(page: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSCALE_CLUSTER_STATE", "/tmp/lab")
    words = shlex.split(line)[1:]
    group: click.Command = cli
    context = click.Context(cli)
    while isinstance(group, click.Group) and words:
        name, found, words = group.resolve_command(context, words)
        assert found is not None, f"{page}: {line}: no command {name}"
        group = found
    if words and not isinstance(group, click.Group):  # a bare name in a sentence is no command line
        group.make_context("trainscale", words)  # raises for an unknown option or a wrong value


DRY = {"run", "sweep", "submit"}
READ = {"report", "compare", "status", "interconnects", "check", "import", "plan", "fit"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages take for granted."""
    runs = [
        a_record(nodes=nodes, minutes=minutes, interconnect=interconnect, repeat=repeat)
        for nodes, minutes in ((1, 150.0), (8, 25.0))
        for interconnect in ("edr-1", "edr-2")
        for repeat in (1, 2, 3)
    ]
    for folder in ("runs", "runs/x", "runs/dell-curve", "before", "after"):
        write_records(tmp_path / folder, runs)
    write_records(tmp_path, [a_record().model_copy(update={"spec": a_record().spec.model_copy(update={"run_id": "RUN_DIR"})})])
    for name in ("A", "B", "DIR", "logs", "training_results_v0.7/DellEMC"):
        shutil.copytree(PUBLISHED, tmp_path / name)
    shutil.copytree(ROOT / "slurm", tmp_path / "slurm")
    shutil.copy(ROOT / "slurm/sites/edr-v100.yaml", tmp_path / "slurm/sites/mine.yaml")
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    shutil.copy(ROOT / "slurm/sites/edr-v100.yaml", tmp_path / "FILE")
    shutil.copy(ROOT / "experiments/demo.yaml", tmp_path / "experiment.yaml")
    (tmp_path / "hosts").write_text("".join(f"node{number} slots=4\n" for number in range(1, 9)))
    page = (DOCS / "adding-an-interconnect.md").read_text(encoding="utf-8")
    block = re.search(r"^    name: hdr-2\n(?:    .*\n)+", page, re.MULTILINE)
    assert block is not None
    (tmp_path / "hdr-2.yaml").write_text(re.sub("^    ", "", block[0], flags=re.MULTILINE))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def runnable() -> list[tuple[str, str]]:
    lines = [(page, line) for page, line in documented("trainscale") if len(line.split()) > 2 and "…" not in line]
    return sorted({(page, line) for page, line in lines if line.split()[1] in DRY | READ})


@pytest.mark.parametrize(("page", "line"), runnable(), ids=lambda value: str(value))
def test_each_command_that_can_run_here_runs(page: str, line: str, place: Path) -> None:
    words = shlex.split(line)[1:]
    if words[0] == "check":
        pytest.skip("the checker runs on a real log in tests/results/test_mlperf_writer.py")
    if "--test-only" in words:
        pytest.skip("it asks Slurm: tests/launch/test_slurm_for_real.py")
    words += ["--dry-run"] if words[0] in DRY and "--dry-run" not in words else []
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, f"{page}: {line}\n{result.output}"
    assert result.output.strip()


def test_sbatch_lines_name_files_and_commands() -> None:
    lines = [(page, line) for page, line in documented("sbatch") if " slurm/" in line]
    assert len(lines) >= 2
    for page, line in lines:
        words = shlex.split(line)
        script = next(word for word in words if word.startswith("slurm/"))
        assert (ROOT / script).is_file(), f"{page}: {line}"
        name = "sweep" if "experiment" in script else "run"
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        command.make_context(name, words[words.index(script) + 1 :])


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page, line in documented("make"):
        named = {word for word in line.split("make", 1)[1].split() if re.fullmatch(r"[a-z-]+", word)}
        assert named <= targets, f"{page}: {line}"


def test_all_twelve_rules_are_there() -> None:
    rows = re.findall(r"^\| (\d+) \| .+ \| .+ \|$", (DOCS / "hoefler-belli.md").read_text(), re.MULTILINE)
    assert rows == [str(number) for number in range(1, 13)]


def test_the_gallery_shows_the_published_speedups_and_fits() -> None:
    page = DOCS / "gallery" / "c4140.html"
    assert page.stat().st_size < 1_000_000
    text = page.read_text()
    for figure in ("154.04", "76.59", "39.88", "43.87", "22.67", "12.44", "2.01", "3.86", "1.94", "3.53"):
        assert f">{figure}<" in text
    assert str(DOCS.resolve()) not in text
    assert "/tmp/" not in text
