"""The emulated cluster for real: needs root and Slurm, and skips with the reason without."""

import contextlib
import functools
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.emulation.cluster import Cluster
from launch.emulation.node import EmulationError, find_nodes
from results import rails
from results.rails import AskedRails
from results.yaml_file import ConfigurationError

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = sys.executable
MPIRUN = str(Path(sys.executable).with_name("mpirun"))
TCP = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm,tcp"}
NODES = ["node01", "node02", "node03", "node04"]


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Return when `condition` holds."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition was never met"
        time.sleep(0.01)


def output(cluster: Cluster, node: str, *command: str, timeout_s: float = 60.0, environment: dict[str, str] | None = None) -> str:
    done = cluster.run(node, command, timeout_s=timeout_s, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def trainscale(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PYTHON, "-m", "launch.cli", *arguments], capture_output=True, text=True, timeout=120)


def host_state() -> dict[str, str]:
    """What of the host must not change."""

    def shown(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    etc = hashlib.sha256()
    for path in sorted(Path("/etc").rglob("*")):
        if path.is_file() and not path.is_symlink():
            etc.update(f"{path} {path.stat().st_mtime_ns} {path.stat().st_size}\n".encode())
    return {
        "interfaces": shown("ip", "-o", "link"),
        "addresses": shown("ip", "-o", "addr"),
        "routes": shown("ip", "route"),
        "shaping": shown("tc", "qdisc"),
        "mounts": Path("/proc/self/mounts").read_text(),
        "hostname": shown("hostname"),
        "etc": etc.hexdigest(),
    }


def test_nodes_differ_in_name_addresses_and_shared_memory(cluster: Cluster) -> None:
    for number, name in enumerate(NODES, start=1):
        assert output(cluster, name, "hostname").strip() == name
        addresses = {
            device["ifname"]: device["addr_info"] for device in json.loads(output(cluster, name, "ip", "-j", "-4", "addr"))
        }
        assert addresses["ib1"][0]["local"] == f"10.10.2.{number}"
        assert set(addresses) == {"lo", "eth0", "ib0", "ib1"}
    output(cluster, "node01", "touch", "/dev/shm/mine", "/run/mine", str(cluster.state.scratch / "mine"))
    for path in ("/dev/shm/mine", "/run/mine", str(cluster.state.scratch / "mine")):
        assert cluster.run("node02", ["test", "-e", path]).returncode == 1
        assert cluster.run("node01", ["test", "-e", path]).returncode == 0


def test_a_node_knows_that_it_is_emulated(cluster: Cluster) -> None:
    program = "from launch.emulation import inside_emulated_node; print(inside_emulated_node())"
    assert output(cluster, "node01", PYTHON, "-c", program).strip() == "True"


def test_slurm_shows_all_nodes_idle_and_runs_on_each(cluster: Cluster) -> None:
    assert all(node.slurm_state == "idle" and node.running for node in cluster.status())
    assert sorted(output(cluster, "head", "srun", "-N4", "hostname").split()) == NODES


def test_ssh_needs_no_question(cluster: Cluster) -> None:
    assert output(cluster, "head", "ssh", "node03", "hostname").strip() == "node03"
    assert output(cluster, "node03", "ssh", "node01-ib1", "hostname").strip() == "node01"
    assert output(cluster, "head", "ssh", "node03", "printenv", "SLURM_CONF").strip() == str(cluster.state.slurm_conf)


def test_nothing_leads_out_of_the_cluster(cluster: Cluster) -> None:
    assert "default" not in output(cluster, "node01", "ip", "route")


def test_rails_are_no_faster_than_shaped(cluster: Cluster) -> None:
    program = (
        "import socket,sys,time\n"
        "server=socket.create_server(('10.10.1.1',5000)) if sys.argv[1]=='receive' else None\n"
        "if server:\n"
        "  print('ready',flush=True); peer=server.accept()[0]; start=time.perf_counter(); n=0\n"
        "  while (got:=len(peer.recv(65536))): n+=got\n"
        "  print(8*n/(time.perf_counter()-start))\n"
        "else:\n"
        "  peer=socket.create_connection(('10.10.1.1',5000)); peer.sendall(bytes(10_000_000)); peer.close()\n"
    )
    receiver = subprocess.Popen(cluster.command("node01", [PYTHON, "-c", program, "receive"]), stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    assert receiver.stdout.readline().strip() == "ready"
    output(cluster, "node02", PYTHON, "-c", program, "send")
    rate = float(receiver.stdout.read())
    # The shaper lets 256 kB pass at once; nothing can be faster than its rate beyond that.
    assert rate < 200e6 * 1.05
    assert receiver.wait() == 0


def test_rates_change_while_it_runs_and_a_cut_rail_is_down(cluster: Cluster) -> None:
    try:
        cluster.set_rate("50mbit", ["node02"], ["ib1"])
        cluster.set_rate("cut", ["node03"], ["ib0"])
        rates = {node.name: node.rates for node in cluster.status()}
        assert rates["node02"] == {"ib0": "200Mbit", "ib1": "50Mbit"}
        assert rates["node03"] == {"ib0": "cut", "ib1": "200Mbit"}
        assert cluster.run("node01", ["ssh", "-o", "ConnectTimeout=1", "node03-ib0", "true"]).returncode != 0
        cluster.set_rate("unshaped", ["node04"])
        assert cluster.status()[3].rates == {"ib0": "unshaped", "ib1": "unshaped"}
        with pytest.raises(ConfigurationError, match="no rail ib2"):
            cluster.set_rate("50mbit", rails=["ib2"])
        with pytest.raises(ConfigurationError, match="not a rate"):
            cluster.set_rate("quick")
    finally:
        cluster.set_rate("200mbit")
    assert all(set(node.rates.values()) == {"200Mbit"} for node in cluster.status())
    assert output(cluster, "node01", "ssh", "node03-ib0", "hostname").strip() == "node03"


LAUNCHES = {
    "mpirun-over-ssh": ["head", MPIRUN, "--host", "node01:2,node02:2,node03:2,node04:2", "-np", "8"],
    "mpirun-in-allocation": ["head", "salloc", "-Q", "-N4", "--ntasks-per-node=2", MPIRUN],
    "srun-pmix": ["head", "srun", "--mpi=pmix", "-N4", "--ntasks-per-node=2"],
}


@pytest.mark.parametrize("way", LAUNCHES)
def test_every_way_of_launching_puts_ranks_where_they_belong(cluster: Cluster, way: str) -> None:
    node, *command = LAUNCHES[way]
    environment = {**TCP, "OMPI_MCA_btl_tcp_if_include": "ib0", "PYTHONPATH": str(Path.cwd())}
    printed = output(cluster, node, *command, PYTHON, str(PROGRAMS / "place.py"), environment=environment)
    assert json.loads(printed) == [[rank, 8, NODES[rank // 2], rank, 8, rank % 2] for rank in range(8)]


@pytest.mark.slow
def test_32_ranks_through_slurm(new_cluster: Callable[[int], Cluster]) -> None:
    cluster = new_cluster(8)
    command = ["srun", "--mpi=pmix", "-N8", "--ntasks-per-node=4", PYTHON, str(PROGRAMS / "place.py")]
    environment = {**TCP, "OMPI_MCA_btl_tcp_if_include": "ib0", "PYTHONPATH": str(Path.cwd())}
    found = json.loads(output(cluster, "head", *command, environment=environment, timeout_s=180))
    assert [(rank, host, local) for rank, _, host, _, _, local in found] == [
        (rank, f"node{rank // 4 + 1:02d}", rank % 4) for rank in range(32)
    ]


@pytest.mark.parametrize("devices", [["ib0"], ["ib1"], ["ib0", "ib1"]])
def test_counters_prove_which_rails_carried_the_bytes(cluster: Cluster, devices: list[str], tmp_path: Path) -> None:
    size_bytes = 8_000_000
    environment = {**TCP, "OMPI_MCA_btl_tcp_if_include": ",".join(devices), "PYTHONPATH": str(Path.cwd())}
    ranks = [MPIRUN, "--host", ",".join(NODES), "-np", "4", PYTHON, str(PROGRAMS / "ring.py"), str(size_bytes), str(tmp_path)]
    output(cluster, "head", *ranks, environment=environment)
    before, after = rails.read_sample(tmp_path / "before.json"), rails.read_sample(tmp_path / "after.json")
    for asked in (["ib0"], ["ib1"], ["ib0", "ib1"]):
        found = rails.judge(
            asked=AskedRails(source="interface-counters", devices=asked),
            before=before,
            after=after,
            least_exchange_bytes=size_bytes,
        )
        assert found.verdict == ("as-asked" if asked == devices else "rails-differ"), found.reason
    carried = {(rail.host, rail.device): rails.exchanged_bytes(rail) for rail in found.rails}
    assert sum(carried[host, device] for host in NODES for device in ("ib0", "ib1")) >= 4 * 1.5 * size_bytes


def test_a_job_that_outgrows_its_memory_is_ended(cluster: Cluster) -> None:
    program = "import time; hog = bytearray(700_000_000); hog[::4096] = b'x' * len(hog[::4096]); time.sleep(60)"
    done = cluster.run("head", ["srun", "--mem=200", PYTHON, "-c", program], timeout_s=60)
    assert done.returncode != 0
    assert "memory" in done.stderr.lower()


def test_a_restarted_controller_knows_its_jobs(cluster: Cluster) -> None:
    job = output(cluster, "head", "sbatch", "--parsable", "-N1", "--wrap", "sleep 600", "-o", "/dev/null").strip()
    until(lambda: output(cluster, "head", "squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING")
    output(cluster, "head", "scontrol", "shutdown", "slurmctld")
    until(lambda: cluster.run("head", ["pgrep", "-x", "slurmctld"]).returncode == 1)
    output(cluster, "head", "slurmctld")
    until(lambda: cluster.run("head", ["squeue", "-h", "-j", job, "-o", "%T"]).stdout.strip() == "RUNNING")
    output(cluster, "head", "scancel", job)
    until(lambda: all(node.slurm_state == "idle" for node in cluster.status()))


def test_the_host_stays_as_it_was_and_no_process_is_left(new_cluster: Callable[[int], Cluster]) -> None:
    before = host_state()
    cluster = new_cluster(3)
    output(cluster, "node01", "sh", "-c", "exec >/dev/null 2>&1; sleep 1000 & setsid sleep 1000 & true")
    assert host_state() == before
    assert cluster.down() == 5  # the switches, the head and three nodes
    assert processes_of(cluster) == []
    assert host_state() == before
    assert cluster.down() == 0


def test_a_cluster_whose_folder_was_deleted_can_be_ended(new_cluster: Callable[[int], Cluster]) -> None:
    cluster = new_cluster(1)
    shutil.rmtree(cluster.state.path)
    assert cluster.down() == 3
    assert processes_of(cluster) == []


def test_the_command_goes_up_and_down_again(tmp_path: Path, new_cluster: object) -> None:
    state = ["--state", str(tmp_path / "lab")]
    cluster = Cluster(tmp_path / "lab")
    for _ in range(2):  # the second time in the folder of the first
        done = trainscale("cluster", "up", "--nodes", "2", "--rails", "1", "--rate", "100mbit", *state)
        assert done.returncode == 0, done.stderr
        try:
            assert len(find_nodes(cluster.state)) == 4
            again = trainscale("cluster", "up", "--nodes", "2", *state)
            assert again.returncode == 2
            assert "take it down first" in again.stderr
            status = trainscale("cluster", "status", "--json", *state)
            assert json.loads(status.stdout)[1] == {
                "name": "node02",
                "running": True,
                "slurm_state": "idle",
                "rates": {"ib0": "100Mbit"},
            }
            assert trainscale("cluster", "exec", *state, "node02", "--", "sh", "-c", "hostname; exit 7").returncode == 7
            assert "did you mean node02?" in trainscale("cluster", "exec", *state, "node2", "--", "true").stderr
        finally:
            down = trainscale("cluster", "down", *state)
        assert (down.returncode, down.stdout) == (0, "the cluster is down\n")
        assert processes_of(cluster) == []
    assert "no cluster" not in trainscale("cluster", "down", *state).stderr


def test_a_cluster_for_one_command_ends_with_it(tmp_path: Path, new_cluster: object) -> None:
    seen = tmp_path / "seen"
    words = ["cluster", "run", "--nodes", "2", "--rails", "1", "--rate", "100mbit", "--", "sh", "-c"]
    done = trainscale(*words, f"srun -N2 hostname | sort > {seen}; exit 7")
    assert done.returncode == 7, done.stderr
    assert seen.read_text().split() == ["node01", "node02"]
    assert done.stderr.splitlines()[-1] == "the cluster is down"
    assert nodes_of_any_run_once() == []


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_cluster_for_one_command_ends_however_that_ends(tmp_path: Path, new_cluster: object, end: signal.Signals) -> None:
    seen = tmp_path / "seen"
    words = ["cluster", "run", "--nodes", "1", "--rails", "1", "--", "sh", "-c", f"touch {seen}; sleep 1000"]
    process = subprocess.Popen(
        [PYTHON, "-m", "launch.cli", *words], stderr=subprocess.DEVNULL, start_new_session=True,
        # Where the tests themselves run in the background, a shell has them ignore it, and their children with them.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        until(seen.exists)
        process.send_signal(end)
        process.wait(timeout=60)
        until(lambda: nodes_of_any_run_once() == [], timeout_s=20)
        assert process.returncode != 0
    finally:
        process.kill()


def nodes_of_any_run_once() -> list[str]:
    """Command lines of the nodes of clusters that `trainscale cluster run` brought up."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().replace(b"\0", b" ").decode()
            if "trainscale-cluster-" in words and "launch.cli" not in words:
                found.append(words)
    return found


def test_a_killed_command_leaves_nothing_running(tmp_path: Path, new_cluster: object) -> None:
    cluster = Cluster(tmp_path / "lab")
    stages: list[Callable[[], object]] = [
        lambda: len(find_nodes(cluster.state)) >= 1,
        lambda: len(find_nodes(cluster.state)) >= 9,
        lambda: (cluster.state.log / "start-munged-head.log").exists(),
    ]
    for reached in stages:
        shutil.rmtree(cluster.state.log, ignore_errors=True)
        command = [PYTHON, "-m", "launch.cli", "cluster", "up", "--nodes", "8", "--state", str(cluster.state.path)]
        up = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(reached)
        up.send_signal(signal.SIGKILL)
        up.wait()
        until(lambda: processes_of(cluster) == [], timeout_s=20)
    assert cluster.down() == 0
    done = trainscale("cluster", "up", "--nodes", "2", "--state", str(cluster.state.path))
    try:
        assert done.returncode == 0, done.stderr
    finally:
        cluster.down()


def test_a_failed_start_leaves_nothing_running_and_says_why(
    tmp_path: Path, new_cluster: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from launch.emulation import configuration
    from tests.launch.conftest import PLAN

    monkeypatch.setattr(configuration, "slurm_conf", lambda plan, state: "Nonsense=yes\n")
    cluster = Cluster(tmp_path / "lab")
    with pytest.raises(EmulationError, match="slurmctld did not start on head"):
        cluster.up(PLAN)
    assert processes_of(cluster) == []


@pytest.mark.slow
def test_a_dead_node_shows_and_its_job_is_requeued_elsewhere(new_cluster: Callable[[int], Cluster]) -> None:
    cluster = new_cluster(2)
    script = "echo $SLURM_RESTART_COUNT $(hostname) >> $0.out; sleep 600"
    job = output(
        cluster, "head", "sbatch", "--parsable", "-N1", "-w", "node01", "--requeue", "-o", "/dev/null", "--wrap", script
    ).strip()
    until(lambda: output(cluster, "head", "squeue", "-h", "-j", job, "-o", "%T %N").split() == ["RUNNING", "node01"])
    cluster.power_off("node01")
    assert not cluster.status()[0].running
    until(lambda: cluster.status()[0].slurm_state.startswith("down"), timeout_s=120)
    until(lambda: output(cluster, "head", "squeue", "-h", "-j", job, "-o", "%T").strip() == "PENDING")
    cluster.power_on("node01")
    until(
        lambda: output(cluster, "head", "squeue", "-h", "-j", job, "-o", "%T %N").split() == ["RUNNING", "node01"], timeout_s=120
    )
    assert "Restarts=1" in output(cluster, "head", "scontrol", "show", "job", job)


def processes_of(cluster: Cluster) -> list[str]:
    """Command lines of every process on the host that names the cluster's state folder, or has its environment."""
    found = []
    own = str(cluster.state.path).encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            marked = own in words or b"SLURM_CONF=" + own in (entry / "environ").read_bytes()
        except OSError:
            continue
        if marked and b"launch.cli" not in words:
            found.append(words.replace(b"\0", b" ").decode())
    return found
