"""The configuration files that the nodes of an emulated cluster see, as text."""

from __future__ import annotations

from launch.emulation.plan import FABRIC, HEAD, ClusterPlan, StateFolder

SLURM_CONF = """\
ClusterName=emulated
SlurmctldHost={head}({head_address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# Requeued jobs wait for old credentials to expire: 120 s by default.
AuthInfo=cred_expire=5
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile={log}/slurmctld.log
SlurmdLogFile={log}/slurmd-%n.log
StateSaveLocation={slurm_state}
SlurmdSpoolDir=/run/slurm/spool
# PMIx puts its folders here; a place that two nodes share would make them collide.
TmpFS=/run/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
# All nodes are one machine: believe the counts below instead of what slurmd finds.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=5,sched_interval=2,batch_sched_delay=0
MinJobAge=3600
AccountingStorageType=accounting_storage/none
# Ends a job that uses more memory than it asked for with --mem; without --mem it gets all of a node's.
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
# `sacct -c` reads this file; plain sacct would need slurmdbd.
JobCompType=jobcomp/filetxt
JobCompLoc={log}/jobcomp.txt
SlurmdTimeout=10
# As by default: between SIGTERM and SIGKILL ranks agree on a step and write a checkpoint.
KillWait=30
# Without it, ranks whose neighbour died hang in MPI.
KillOnBadExit=1
NodeName={node_list} NodeAddr=10.10.0.[1-{nodes}] CPUs={cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} \
ThreadsPerCore=1 RealMemory={memory_mb} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 State=UP
"""

SSHD_CONF = """\
HostKey {host_key}
AuthorizedKeysFile {user_key}.pub
PidFile /run/sshd/sshd.pid
# The state folder may lie below a folder that others can write to, as /tmp is.
StrictModes no
UsePAM {pam}
PasswordAuthentication no
PermitRootLogin prohibit-password
PermitUserEnvironment no
AcceptEnv *
SetEnv SLURM_CONF={slurm_conf}
MaxStartups 100
"""

SSH_CONF = """\
Host *
    IdentityFile {user_key}
    IdentitiesOnly yes
    UserKnownHostsFile {known_hosts}
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 10
    LogLevel ERROR
"""


def hosts(plan: ClusterPlan) -> str:
    """/etc/hosts: `node01` is the management address, `node01-ib0` the one on the first rail."""
    lines = ["127.0.0.1 localhost", f"{plan.management_address(HEAD)} {HEAD}"]
    for name in plan.node_names:
        lines.append(f"{plan.management_address(name)} {name}")
        lines += [f"{plan.rail_address(name, rail)} {name}-{rail}" for rail in plan.rail_names]
    return "\n".join(lines) + "\n"


def known_hosts(plan: ClusterPlan, host_public_key: str) -> str:
    """All nodes have the same host key; each is known by its names and addresses."""
    kind, key = host_public_key.split()[:2]
    lines = []
    for name in [HEAD, *plan.node_names]:
        names = [name, *plan.interfaces(name).values()]
        names += [f"{name}-{rail}" for rail in plan.rail_names if name != HEAD]
        lines.append(f"{','.join(names)} {kind} {key}")
    return "\n".join(lines) + "\n"


def slurm_conf(plan: ClusterPlan, state: StateFolder) -> str:
    """slurm.conf of slurmctld, slurmd and the commands."""
    return SLURM_CONF.format(
        head=HEAD,
        head_address=plan.management_address(HEAD),
        log=state.log,
        slurm_state=state.slurm_state,
        node_list=plan.node_list,
        nodes=plan.nodes,
        cpus=plan.cpus_per_node,
        memory_mb=plan.memory_mb,
    )


def sshd_conf(state: StateFolder, *, root_is_locked: bool) -> str:
    """sshd_config of every node. sshd lets a locked account in only by way of PAM, which in turn fails in some containers."""
    return SSHD_CONF.format(
        host_key=state.ssh_host_key, user_key=state.ssh_key, slurm_conf=state.slurm_conf, pam="yes" if root_is_locked else "no"
    )


def is_locked(user: str, shadow: str) -> bool:
    """True when the password field of a user in the text of /etc/shadow begins with `!`."""
    return any(line.startswith(f"{user}:!") for line in shadow.splitlines())


def files(plan: ClusterPlan, state: StateFolder, host_public_key: str, *, root_is_locked: bool) -> dict[str, str]:
    """Name in `state.etc` and text of every configuration file."""
    known = state.etc / "known_hosts"
    return {
        "hosts": hosts(plan),
        "known_hosts": known_hosts(plan, host_public_key),
        "ssh_config": SSH_CONF.format(user_key=state.ssh_key, known_hosts=known),
        "sshd_config": sshd_conf(state, root_is_locked=root_is_locked),
        "slurm.conf": slurm_conf(plan, state),
        # slurmd refuses to start with the cgroup plugin that it would choose itself once /sys is mounted anew.
        "cgroup.conf": "CgroupPlugin=cgroup/v1\n",
        # With the default fence, `srun --mpi=pmix` of Slurm 22.05 crashes now and then in MPI_Init.
        # Debian's PMIx 4 would tell ranks to use modules that the PMIx of Open MPI 5 does not have; these both have.
        "mpi.conf": "PMIxCollFence=ring\nPMIxEnv=PMIX_MCA_gds=hash;PMIX_MCA_psec=native\n",
    }


def machines(plan: ClusterPlan) -> list[str]:
    """Every set of namespaces of the cluster: the switches, the head, the nodes."""
    return [FABRIC, HEAD, *plan.node_names]
