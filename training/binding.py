"""Whether ranks run where they were bound, once torch, MPI and the input pipeline have had their say."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from results.record import RankBinding
from results.topology import show_cpu_list
from training.process import RankPlace


def rank_binding(place: RankPlace, device: torch.device) -> RankBinding:
    """Where this rank was to run, where the kernel lets it run now, and which GPU it drives."""
    asked = place.binding
    return RankBinding(
        rank=place.rank,
        host=platform.node(),
        asked_cpus=show_cpu_list(asked.cpus) if asked else "",
        found_cpus=show_cpu_list(os.sched_getaffinity(0)),
        near_gpu=asked.gpu if asked else None,
        gpu=_gpu_address(device),
        hca=asked.hca if asked else None,
    )


def _gpu_address(device: torch.device) -> str | None:
    if device.type != "cuda":
        return None
    facts: Any = torch.cuda.get_device_properties(device)
    if not hasattr(facts, "pci_bus_id"):  # torch 2.7 does not tell
        return None
    return f"{facts.pci_domain_id:04x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}.0"


def binding_notes(bindings: list[RankBinding]) -> list[str]:
    """Lines for the record where ranks run elsewhere than they were bound, or far from their GPUs."""
    notes = []
    moved = [one for one in bindings if one.asked_cpus and one.asked_cpus != one.found_cpus]
    if moved:
        first = moved[0]
        notes.append(
            f"{len(moved)} of {len(bindings)} ranks did not stay where they were bound: rank {first.rank} on {first.host} "
            f"runs on cores {first.found_cpus} instead of {first.asked_cpus}"
        )
    far = [one for one in bindings if one.gpu and one.near_gpu and one.gpu != one.near_gpu]
    if far:
        first = far[0]
        notes.append(
            f"{len(far)} of {len(bindings)} ranks are bound near another GPU than theirs: rank {first.rank} on {first.host} "
            f"drives GPU {first.gpu}, but its cores are near {first.near_gpu}; show all ranks of a node the same GPUs"
        )
    return notes
