"""Bring an emulated cluster up, change it, and take it down again."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from launch.emulation import configuration, daemons, network, requirements
from launch.emulation.node import EmulationError, Node, NodeBirth, end_nodes, find_nodes
from launch.emulation.plan import FABRIC, HEAD, ClusterPlan, StateFolder
from results.model import write_atomically
from results.yaml_file import ConfigurationError, nearest

_OWN_FOLDERS = ("etc", "log", "slurmctld", "scratch", "nodes")


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """How one node is."""

    name: str
    running: bool
    slurm_state: str
    rates: dict[str, str]
    """Present rate of each rail as the kernel tells it; empty when the node does not run."""


class Cluster:
    """The emulated cluster whose state lies in one folder. All methods need root."""

    def __init__(self, folder: Path) -> None:
        self.state = StateFolder(folder.resolve())
        self._births: list[NodeBirth] = []

    def up(self, plan: ClusterPlan, *, stay: bool = True, say: Callable[[str], None] = lambda _: None) -> None:
        """Bring the cluster up and return when Slurm shows every node as idle. A failure leaves nothing running.

        When this process is killed on the way, the nodes end by themselves. With `stay=False` they do so later as well:
        the cluster ends with this process, however that ends. `say` is told each stage.

        Raises:
            ConfigurationError: no root, missing packages, a wrong rate, a folder with other files, or it is up already.
            EmulationError: a step failed.
        """
        requirements.check()
        network.check_rate(plan.rate)
        self._refuse_other_files()
        self.state.path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if find_nodes(self.state):
                raise ConfigurationError(f"a cluster is up in {self.state.path}; take it down first: trainscale cluster down")
            self._prepare_folder(plan)
            try:
                say(f"starting {plan.nodes} nodes")
                self._births = [NodeBirth(self.state, name) for name in configuration.machines(plan)]
                nodes = {birth.name: birth.wait_ready() for birth in self._births}
                say(f"linking {plan.rails} rails, {plan.rate}")
                network.make_switches(nodes[FABRIC], plan)
                linked = [node for name, node in nodes.items() if name != FABRIC]
                for node in linked:
                    network.connect(nodes[FABRIC], node, plan, plan.rate)
                say("starting munge, sshd and Slurm")
                daemons.start(self.state, linked)
                daemons.wait_idle(self.state, nodes[HEAD], plan.node_names)
            except BaseException:
                self._end()
                raise
            if stay:
                for birth in self._births:
                    birth.let_stay()
                self._births = []

    def down(self) -> int:
        """End every process of the cluster, whatever state it is in; return how many sets of namespaces still ran.

        Logs and configuration stay in the folder. Host interfaces need no cleaning: all links lie in the nodes' own namespaces.
        """
        self._need_root()
        if not self.state.path.is_dir():
            return self._end()  # somebody deleted the folder; the processes may be there all the same
        with self._locked():
            return self._end()

    def plan(self) -> ClusterPlan:
        """The plan that the cluster came up with.

        Raises:
            ConfigurationError: no cluster was ever brought up in this folder.
        """
        try:
            return ClusterPlan.model_validate_json(self.state.plan.read_text())
        except FileNotFoundError:
            raise ConfigurationError(f"no cluster in {self.state.path}; bring one up: trainscale cluster up") from None

    def node(self, name: str) -> Node:
        """A running node by name.

        Raises:
            ConfigurationError: no such node, or it does not run.
        """
        self._need_root()
        known = configuration.machines(self.plan())
        if name not in known:
            raise ConfigurationError(f"no node {name}{nearest(name, known)}")
        running = find_nodes(self.state)
        if name not in running:
            raise ConfigurationError(f"{name} does not run; see: trainscale cluster status --state {self.state.path}")
        return running[name]

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """Tokens that run `command` on a node; use `environment` with it."""
        return self.node(name).inside(command)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a command on a node: this process's own, with the cluster's Slurm."""
        return daemons.environment(self.state)

    def run(
        self, name: str, command: Sequence[str], *, timeout_s: float | None = None, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node to its end and return its status and output; `environment` adds to the usual one."""
        together = {**self.environment, **(environment or {})}
        return subprocess.run(
            self.command(name, command), env=together, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s
        )

    def set_rate(self, rate: str, nodes: Sequence[str] | None = None, rails: Sequence[str] | None = None) -> None:
        """Change the rate of the named rails of the named nodes (None: all that run, all of them); see `network.set_rate`."""
        plan, fabric = self.plan(), self.node(FABRIC)
        for rail in rails or ():
            if rail not in plan.rail_names:
                raise ConfigurationError(f"no rail {rail}{nearest(rail, plan.rail_names)}")
        running = find_nodes(self.state)
        for name in nodes or [name for name in plan.node_names if name in running]:
            network.set_rate(fabric, self.node(name), rails or plan.rail_names, rate)

    def power_off(self, name: str) -> None:
        """End a node with everything on it at once, as when its power is cut."""
        self.node(name)
        end_nodes(self.state, [name])

    def power_on(self, name: str) -> None:
        """Start a node that was powered off, and return when Slurm shows it as idle."""
        plan, head, fabric = self.plan(), self.node(HEAD), self.node(FABRIC)
        if name not in plan.node_names:
            raise ConfigurationError(f"no node {name}{nearest(name, plan.node_names)}")
        if name in find_nodes(self.state):
            raise ConfigurationError(f"{name} runs already")
        birth = NodeBirth(self.state, name)
        try:
            node = birth.wait_ready()
            network.connect(fabric, node, plan, plan.rate)
            daemons.start(self.state, [node])
            daemons.wait_idle(self.state, head, [name])
        except BaseException:
            end_nodes(self.state, [name])
            birth.collect()
            raise
        if self._births:
            self._births.append(birth)  # a cluster that ends with this process
        else:
            birth.let_stay()

    def status(self) -> list[NodeStatus]:
        """How every node is, by the kernel and by Slurm."""
        self._need_root()
        plan, running = self.plan(), find_nodes(self.state)
        states = daemons.node_states(self.state, running[HEAD]) if HEAD in running else {}
        found = []
        for name in plan.node_names:
            alive = name in running and FABRIC in running
            rates = {rail: network.shown_rate(running[FABRIC], name, rail) for rail in plan.rail_names} if alive else {}
            found.append(NodeStatus(name, name in running, states.get(name, "unknown"), rates))
        return found

    def _end(self) -> int:
        ended = end_nodes(self.state)
        for birth in self._births:
            birth.collect()
        self._births = []
        return ended

    def _refuse_other_files(self) -> None:
        """Raise unless the folder is new, empty or an earlier cluster's: what is in it will be removed."""
        own = {self.state.lock.name}
        if self.state.plan.exists():
            own |= {*_OWN_FOLDERS, self.state.plan.name}
        others = sorted({entry.name for entry in self.state.path.iterdir()} - own) if self.state.path.is_dir() else []
        if others:
            raise ConfigurationError(
                f"{self.state.path} holds other files, such as {others[0]}; name a folder of the cluster's own"
            )

    def _prepare_folder(self, plan: ClusterPlan) -> None:
        """Empty the folder of an earlier cluster, and write keys and configuration."""
        state = self.state
        others = {entry.name for entry in state.path.iterdir()} - {*_OWN_FOLDERS, state.plan.name, state.lock.name}
        if others:
            raise ConfigurationError(
                f"{state.path} holds other files ({sorted(others)[0]}, …); name a folder of the cluster's own"
            )
        write_atomically(state.plan, plan.model_dump_json(indent=2) + "\n")
        for name in _OWN_FOLDERS:
            shutil.rmtree(state.path / name, ignore_errors=True)
            (state.path / name).mkdir()
        for name in configuration.machines(plan):
            state.node_scratch(name).mkdir(parents=True)
        for key in (state.ssh_key, state.ssh_host_key):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "trainscale emulated cluster", "-f", key], check=True
            )
        state.munge_key.touch(mode=0o600)
        state.munge_key.write_bytes(secrets.token_bytes(1024))
        host_public_key = state.ssh_host_key.with_suffix(".pub").read_text()
        root_is_locked = configuration.is_locked("root", Path("/etc/shadow").read_text())
        for name, text in configuration.files(plan, state, host_public_key, root_is_locked=root_is_locked).items():
            (state.etc / name).write_text(text)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One command at a time; the kernel lets go of the lock when its holder dies."""
        try:
            with FileLock(self.state.lock, timeout=0):
                yield
        except Timeout:
            raise ConfigurationError(f"another `trainscale cluster` command works on {self.state.path}; wait for it") from None

    def _need_root(self) -> None:
        if os.geteuid() != 0:
            requirements.check()


def run_once(plan: ClusterPlan, command: Sequence[str], *, say: Callable[[str], None] = lambda _: None) -> int:
    """Run a command on the login node of a cluster that is there for it alone; returns its exit status.

    Raises:
        ConfigurationError, EmulationError: as `Cluster.up`.
    """
    with tempfile.TemporaryDirectory(prefix="trainscale-cluster-") as folder, _sigterm_raises():
        cluster = Cluster(Path(folder) / "state")
        cluster.up(plan, stay=False, say=say)
        try:
            return subprocess.run(cluster.command(HEAD, command), env=cluster.environment).returncode
        finally:
            cluster.down()
            say("the cluster is down")


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that what has to be taken down is."""

    def leave(number: int, _: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # whoever asks twice does not stop the taking down
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


__all__ = ["Cluster", "ClusterPlan", "EmulationError", "NodeStatus"]
