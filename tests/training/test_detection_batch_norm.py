"""Batch norm over groups of ranks against torch's over the whole batch in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from results.yaml_file import ConfigurationError
from tests.training.ranks.batch_norm import images, network, passes
from tests.training.support import make_spec, run_ranks
from training.communicator import connect
from training.process import RankPlace


def by_ranks(folder: Path, ranks: int, group_size: int, backend: str) -> list[dict[str, torch.Tensor]]:
    done = run_ranks(ranks, "tests.training.ranks.batch_norm", str(folder), backend, str(group_size))
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(ranks)]


def check_group(members: list[int], found: list[dict[str, torch.Tensor]]) -> None:
    """The ranks of one group computed what one process does with all their images."""
    whole = passes(network(), images(members))
    for name, expected in whole.items():
        own = [found[rank][name] for rank in members]
        if name in ("outputs", "inputs"):
            torch.testing.assert_close(torch.cat(own), expected, rtol=1e-4, atol=1e-5)
        elif name.startswith("buffer:"):
            for value in own:
                torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
        else:  # a sum over images, so the ranks' gradients add up
            torch.testing.assert_close(torch.stack(own).sum(dim=0), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("ranks", "backend"), [(2, "horovod"), (4, "horovod"), (4, "torch")])
def test_groups_of_two_normalise_as_one_process(tmp_path: Path, ranks: int, backend: str) -> None:
    found = by_ranks(tmp_path, ranks, 2, backend)
    for first in range(0, ranks, 2):
        check_group([first, first + 1], found)
    if ranks == 4:  # the groups do not see one another
        assert not torch.allclose(found[0]["buffer:1.running_mean"], found[2]["buffer:1.running_mean"])
    for name in ("1.running_mean", "1.running_var", "4.running_mean", "4.running_var"):
        mean = torch.stack([rank[f"buffer:{name}"] for rank in found]).mean(dim=0)
        for rank in found:
            torch.testing.assert_close(rank[f"averaged:{name}"], mean)


def test_ranks_must_divide_into_groups() -> None:
    spec = make_spec(Path("unused"), ranks=3, communication__batch_norm_ranks=2)
    with pytest.raises(ConfigurationError, match="3 ranks do not divide into groups"):
        connect("single", RankPlace(rank=0, size=3, local_rank=0), spec.settings.communication)
