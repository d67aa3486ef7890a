"""What a record keeps of the environment: what can change a result, and nothing that tells one start from another."""

from __future__ import annotations

from results.facts import relevant_environment

KEPT = {
    "OMP_NUM_THREADS": "1", "OMPI_MCA_pml": "ob1", "NCCL_IB_HCA": "=mlx5_0:1", "HOROVOD_CYCLE_TIME": "0.1",
    "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "node[1-2]", "TRAINSCALE_SCRATCH": "/scratch",
}  # fmt: skip
OF_ONE_START = {
    "OMPI_ARGV": "-m training runs/one", "OMPI_FILE_LOCATION": "/tmp/ompi.24383/1/0", "OMPI_COMM_WORLD_RANK": "0",
    "SLURM_JOB_ID": "17", "SLURM_JOBID": "17", "SLURM_JOB_START_TIME": "1764657515",
}  # fmt: skip


def test_repeats_keep_the_same_environment() -> None:
    """The names are those of real ranks under Open MPI 5 and Slurm."""
    secrets = {"AWS_SECRET_ACCESS_KEY": "x", "PATH": "/bin"}
    assert relevant_environment(KEPT | OF_ONE_START | secrets) == KEPT
