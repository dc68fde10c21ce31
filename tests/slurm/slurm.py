"""A real SLURM over simulated hosts: slurmctld and the user's shell on the last host, a slurmd on each other one, one munged.

    cluster = slurm.Cluster(lab)               # lab: tests/cluster/hosts.py, one host more than nodes
    job = cluster.start(["srun", "-N2", ...])  # on the login host
    cluster.down("h2")                         # as an operator would

Everything lives below the lab's folder and in its namespaces, so the kernel ends and removes it when the test ends. Needs root
and Debian's slurmctld, slurmd, slurm-client and munge; what is missing is told by hosts.Unavailable.
"""

import os
import pathlib
import re
import shutil
import stat
import subprocess
import time

import hosts
from hosts import wait_until

KILL_WAIT = 10

CONF = """\
ClusterName=lab
SlurmctldHost={login}({login_address})
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmctldTimeout=30
SlurmdTimeout=10
MessageTimeout=10
TCPTimeout=2
KillWait={kill_wait}
CompleteWait=0
MinJobAge=300
MailProg=/bin/true
JobRequeue=1
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/completed
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=graceful Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=60
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""


class Cluster:
    def __init__(self, lab, *, prefix="h"):
        """`prefix`: nodes are called that and a number; other than "h", no name resolves."""
        self.check()
        everyone = list(lab)
        self.lab, self.login, self.hosts = lab, everyone[-1], everyone[:-1]
        self.nodes = {f"{prefix}{host.number}": host for host in self.hosts}
        self.folder = hosts.FOLDER / "slurm"
        for name in ("munge", "state", *(f"spool.{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True)
        self.conf = self.folder / "slurm.conf"
        self.env = {"SLURM_CONF": str(self.conf)}
        if lab.names == "none":  # munged and slurmctld want to know themselves, at least
            for host in everyone:
                with (hosts.FOLDER / host.name / "hosts").open("a") as file:
                    file.write(f"{host.address} {host.name}\n")
        self._munge()
        nodes = CONF.index("PartitionName=")  # which have to know the nodes
        head, partitions = CONF[:nodes], CONF[nodes:]
        lines = head.format(login=self.login.name, login_address=self.login.address, folder=self.folder, kill_wait=KILL_WAIT)
        for node, host in self.nodes.items():
            lines += f"NodeName={node} NodeHostname={host.name} NodeAddr={host.address} Port=16818 CPUs=8 RealMemory=1000\n"
        self.conf.write_text(lines + partitions)
        self._controller = self.login.start(["slurmctld", "-D", "-c", "-f", self.conf], name="slurmctld", env=self.env)
        self.daemons = {node: self._slurmd(node) for node in self.nodes}
        wait_until(lambda: self.states().count("idle") == len(self.nodes), 60, self._state)

    @staticmethod
    def check():
        if os.geteuid() != 0 or pathlib.Path("/proc/self/uid_map").read_text().split()[2] == "1":
            raise hosts.Unavailable("SLURM's daemons need root, and not in a user namespace")
        for tool, package in (("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client"), ("munged", "munge")):
            if shutil.which(tool) is None:
                raise hosts.Unavailable(f"no {tool} (package {package})")

    def _munge(self):
        folder = self.folder / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(stat.S_IRUSR | stat.S_IWUSR)
        folder.chmod(0o755)  # its clients have to reach the socket
        self.login.start(
            ["munged", "--foreground", f"--key-file={key}", f"--socket={folder}/socket", f"--pid-file={folder}/pid",
             f"--log-file={folder}/log", f"--seed-file={folder}/seed", "--num-threads=2", "--force"], name="munged")  # fmt: skip
        wait_until((folder / "socket").exists, 30, "munged answers")

    def _slurmd(self, node):
        again = sum(process.name.startswith(f"slurmd.{node}") for process in self.lab.processes)
        return self.nodes[node].start(["slurmd", "-D", "-N", node, "-f", self.conf], name=f"slurmd.{node}.{again}", env=self.env)

    def _state(self):
        logs = "".join(f"---- {path.name}\n{path.read_text()[-1500:]}" for path in self.folder.glob("*.log"))
        return f"all nodes are idle; are: {self.states()}\n{logs}"

    # -- what a user types --

    def start(self, argv, *, name=None, env=None):
        """On the login host."""
        return self.login.start(argv, name=name, env={**self.env, **(env or {})})

    def ask(self, *argv, seconds=40):
        process = self.start(argv)
        process.wait(seconds)
        return process.out().strip()

    def states(self):
        """Of the nodes, in order."""
        return self.ask("sinfo", "--noheader", "--Node", "--partition=debug", "--format=%T").split()

    def job(self, number):
        """What scontrol says of it: {field: value}."""
        return dict(re.findall(r"(\w+)=(\S*)", self.ask("scontrol", "--oneliner", "show", "job", number)))

    def wait_job(self, number, state, seconds=60):
        return wait_until(
            lambda: (lambda job: job if job.get("JobState") == state else None)(self.job(number)),
            seconds, lambda: f"job {number} is {state}: {self.job(number)}")  # fmt: skip

    def completed(self, number):
        """What the file of completed jobs says of it: {field: value}."""
        lines = (self.folder / "completed").read_text().splitlines()
        return dict(re.findall(r"(\w+)=(\S*)", [line for line in lines if line.startswith(f"JobId={number} ")][-1]))

    def begin_now(self, number):
        """A requeued job waits for two minutes (cred_expire) otherwise."""
        wait_until(lambda: self.job(number).get("JobState") == "PENDING", 30, lambda: f"job {number} waits: {self.job(number)}")
        time.sleep(2)  # in the second of its end its node would refuse it: "already killed"
        self.ask("scontrol", "update", f"JobId={number}", "StartTime=now")

    def running(self):
        """Number of the job that runs, the newest."""
        return wait_until(
            lambda: self.ask("squeue", "--noheader", "--state=R", "--format=%A").split()[-1:] or None, 30, "a job runs")[0]  # fmt: skip

    # -- what happens to a cluster --

    def down(self, node):
        """As when its slurmd has been silent for long enough, at once."""
        self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def drain(self, node):
        self.ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")

    def restart_controller(self):
        self._controller.signal(9)
        self._controller.wait(30)
        time.sleep(0.2)
        self._controller = self.login.start(["slurmctld", "-D", "-f", self.conf], name=f"slurmctld.{time.monotonic_ns()}", env=self.env)

    def left_behind(self):
        """Processes on the nodes that are not SLURM's own, as "name (host)"."""
        found = []
        for host in self.hosts:
            for pid in host._members():
                try:
                    name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if hosts.alive(pid) and name not in ("bash", "sleep", "slurmd", "slurmctld", "munged"):
                    found.append(f"{name} {pid} ({host.name})")
        return found
