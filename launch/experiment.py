"""An experiment file: workloads x nodes x interconnects x repeats, as one list of RunSpecs."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt

from launch import catalog
from launch.emulation import inside_emulated_node
from results.model import Document, write_atomically
from results.spec import RunSpec
from results.yaml_file import ConfigurationError, load_document

SEEDS_FILE = "seeds.json"


class FabricCheck(Document):
    """What the fabric must reach before the runs may start; `fabric_check: 80%` says it in short."""

    expect: str
    """Least share of the line rate that an allreduce between all nodes reaches, for example `80%`."""
    line_rate: str | None = None
    """Of one rail, for example `100gbit`; default: what the interconnect configuration states."""


class WorkloadEntry(Document):
    """One workload of an experiment."""

    name: str
    preset: str | None = None
    """Default: the embedded preset."""
    data_dir: Path | None = None
    """Default: `data/<dataset>` beside the runs."""
    settings: dict[str, Any] = {}
    """Overrides of the preset by dotted key, such as `input.source: torch`."""


class Experiment(Document):
    """What an experiment file says; its product is the list of runs."""

    name: str
    system: str
    """Name of the machine in reports."""
    workloads: Annotated[list[WorkloadEntry], Field(min_length=1)]
    nodes: Annotated[list[PositiveInt], Field(min_length=1)]
    ranks_per_node: PositiveInt
    interconnects: Annotated[list[str], Field(min_length=1)]
    repeats: PositiveInt = 5
    seeds: list[NonNegativeInt] = []
    """One for each repeat; without it, each run's seed is drawn from the operating system and recorded."""
    hosts: list[str] = []
    """`name` or `name:slots`; empty: this host, or the allocation that this runs in."""
    emulate_nodes: bool = False
    """Put all nodes on this one host; every report says so in its title."""
    launcher: str | None = None
    """mpirun, srun, horovodrun or local; None: the site's, or mpirun without a site profile."""
    fabric_check: Annotated[FabricCheck | None, BeforeValidator(lambda value: _in_full(value))] = None
    """Measure the fabric first, and start no run where it stays below."""
    description: str = ""


def _in_full(value: Any) -> Any:
    return {"expect": value} if isinstance(value, str) else value


def load_experiment(path: Path) -> Experiment:
    """Read and check an experiment file.

    Raises:
        ConfigurationError: with file, line and the way out.
    """
    experiment = load_document(path, Experiment)
    if experiment.seeds and len(experiment.seeds) < experiment.repeats:
        raise ConfigurationError(f"{path}: {len(experiment.seeds)} seeds for {experiment.repeats} repeats; name one for each")
    return experiment


def plan(experiment: Experiment, runs: Path, *, keep_seeds: bool = True) -> list[RunSpec]:
    """All runs of an experiment, smallest node count of each workload first; run folders lie under `runs`.

    Drawn seeds are kept in `runs`/seeds.json, so that the plan is the same when asked again; `keep_seeds=False` writes nothing.

    Raises:
        ConfigurationError: an unknown workload, preset or setting.
    """
    seeds = _Seeds(runs / SEEDS_FILE, experiment.seeds)
    specs = []
    for entry in experiment.workloads:
        preset = entry.preset or catalog.default_preset(entry.name)
        for interconnect in experiment.interconnects:
            for nodes in experiment.nodes:
                settings = catalog.settings(entry.name, preset, entry.settings, nodes * experiment.ranks_per_node)
                for repeat in range(1, experiment.repeats + 1):
                    shape = f"n{nodes}x{experiment.ranks_per_node}"
                    run_id = f"{entry.name}-{Path(preset).stem}-{shape}-{interconnect}-r{repeat}"
                    spec = RunSpec(
                        run_id=run_id,
                        experiment=experiment.name,
                        workload=entry.name,
                        preset=preset,
                        nodes=nodes,
                        ranks_per_node=experiment.ranks_per_node,
                        interconnect=interconnect,
                        system=experiment.system,
                        emulated_nodes=experiment.emulate_nodes or inside_emulated_node(),
                        repeat=repeat,
                        seed=seeds.take(run_id, repeat),
                        data_dir=(entry.data_dir or default_data_dir(settings.dataset)).absolute(),
                        settings=settings,
                    )
                    specs.append(spec)
    if keep_seeds:
        seeds.write()
    return specs


def default_data_dir(dataset: str) -> Path:
    """Where a data set lies unless the user says otherwise."""
    return Path("data") / dataset


def draw_seed() -> int:
    """A seed from the operating system, as MLPerf's rules ask."""
    return secrets.randbelow(2**31)


class _Seeds:
    def __init__(self, path: Path, named: list[int]) -> None:
        self.path, self.named = path, named
        self.drawn: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def take(self, run_id: str, repeat: int) -> int:
        if self.named:
            return self.named[repeat - 1]
        return self.drawn.setdefault(run_id, draw_seed())

    def write(self) -> None:
        if self.drawn:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, json.dumps(self.drawn, indent=1) + "\n")
