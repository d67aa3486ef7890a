"""Fixtures of the tests that need the emulated cluster; they skip with the reason where it cannot be."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch.emulation import requirements
from launch.emulation.cluster import Cluster, ClusterPlan

PLAN = ClusterPlan(nodes=4, rails=2, rate="200mbit", cpus_per_node=4, memory_mb=2000)


@pytest.fixture(scope="session", autouse=True)
def own_host_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests wait for no run of their user's that happens to go on beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four nodes on two rails, shared by all tests of a session: leave every node running and idle, and the rates as they are."""
    if (why := requirements.missing()) is not None:
        pytest.skip(why)
    shared = Cluster(tmp_path_factory.mktemp("cluster"))
    shared.up(PLAN, stay=False)
    yield shared
    shared.down()


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[[int], Cluster]]:
    """Bring up a cluster of the given number of nodes for one test alone, which may break it."""
    if (why := requirements.missing()) is not None:
        pytest.skip(why)
    made = Cluster(tmp_path / "cluster")

    def up(nodes: int) -> Cluster:
        made.up(PLAN.model_copy(update={"nodes": nodes}), stay=False)
        return made

    yield up
    made.down()
