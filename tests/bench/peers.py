"""The launchers and stores that distrun is measured against: which are here, in which version, and how
each is called. A peer that is missing is named with the reason and left out."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

from bench.measure import MARK, say, wait_until

APT_PACKAGES = ["openmpi-bin", "libopenmpi-dev", "python3-torch", "slurmctld", "slurmd", "slurm-client", "munge"]
DEFAULT_VENV = pathlib.Path("~/.cache/distrun/torch-venv").expanduser()


def first_line(argv, seconds=60):
    """The first line a command prints, or None if it is missing or fails."""
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip().split("\n")[0] if done.returncode == 0 else None


class Peers:
    """What is installed. `launchers` maps a name to a function from N to an argv without program."""

    def __init__(self, torch_venv, with_slurm, folder):
        self.versions = {}
        self.missing = {}
        self.launchers = {}
        self.torch_python = None  # The newest PyTorch's.
        self.debian_torch = False
        self.with_slurm = with_slurm
        self.folder = folder  # For what a peer leaves behind.
        self._find_mpirun()
        self._find_torch(pathlib.Path(torch_venv).expanduser() if torch_venv else DEFAULT_VENV)
        self._find_debian_torch()

    def _find_mpirun(self):
        version = first_line(["mpirun", "--version"])
        if version is None:
            self.missing["mpirun"] = "not installed (apt-get install openmpi-bin, or --install-peers)"
            return
        self.versions["mpirun"] = version
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        self.launchers["mpirun"] = lambda n: ["mpirun", "--oversubscribe", *root, "-n", n]

    def _find_torch(self, venv):
        python = venv / "bin" / "python"
        version = first_line([str(python), "-c", "import torch; print(torch.__version__)"])
        if version is None:
            self.missing["torchrun"] = f"no PyTorch in {venv} (scripts/interop-torch makes it)"
            return
        self.versions["torchrun (newest PyTorch)"] = version
        self.torch_python = python
        # torchrun never removes its temporary folder. `env` adds a millisecond to its seconds.
        torchrun = ["env", f"TMPDIR={self.folder}", python, "-m", "torch.distributed.run", "--standalone"]
        self.launchers["torchrun"] = lambda n: [*torchrun, "--nproc-per-node", n, "--no-python"]

    def _find_debian_torch(self):
        version = first_line(["/usr/bin/python3", "-c", "import torch; print(torch.__version__)"])
        if version is None:
            self.missing["Debian's PyTorch"] = "not installed (apt-get install python3-torch)"
            return
        self.versions["Debian's PyTorch"] = version
        self.debian_torch = True

    @contextlib.contextmanager
    def slurm(self):
        """Adds srun while inside: of the SLURM that is running, or, if asked, of one of our own."""
        if shutil.which("srun") is None:
            self.missing["srun"] = "not installed (--install-peers, then --with-slurm)"
            yield
            return
        if subprocess.run(["timeout", "5", "sinfo", "-h"], capture_output=True).returncode == 0:
            self._add_srun()
            yield
        elif not self.with_slurm:
            self.missing["srun"] = "no SLURM is running here (--with-slurm starts one for the time)"
            yield
        else:
            with tempfile.TemporaryDirectory(prefix="distrun-bench-slurm-") as folder:
                with OwnSlurm(pathlib.Path(folder)) as problem:
                    if problem:
                        self.missing["srun"] = problem
                    else:
                        self._add_srun()
                    yield
            self.launchers.pop("srun", None)

    def _add_srun(self):
        self.versions["srun"] = first_line(["srun", "--version"])
        # One node, as many tasks as asked for, whatever its CPUs.
        self.launchers["srun"] = lambda n: ["srun", "-Q", "-N1", "--overcommit", "-n", n]


class OwnSlurm:
    """slurmctld, slurmd and munged for one node on loopback, all state in `folder`, all gone at the end.
    Entering returns None, or the reason why it could not start."""

    def __init__(self, folder):
        self.folder = folder
        self.pids = []

    def __enter__(self):
        try:
            self._start()
        except (OSError, subprocess.SubprocessError, TimeoutError) as problem:
            self._stop()
            return f"could not start SLURM: {problem}"
        return None

    def __exit__(self, *_):
        self._stop()

    def _configuration(self):
        name = socket.gethostname().split(".")[0]
        ports = []
        holders = [socket.socket() for _ in range(2)]
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
            ports.append(holder.getsockname()[1])
        for holder in holders:
            holder.close()
        return f"""ClusterName=bench
SlurmctldHost={name}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/run/slurmctld.pid
SlurmdPidFile={self.folder}/run/slurmd.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd.log
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
NodeName=bench NodeHostname={name} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=64 RealMemory=500 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

    def _daemon(self, name, *arguments):
        path = shutil.which(name) or f"/usr/sbin/{name}"
        # Without our mark: the sweep after a row is for what the row left behind.
        environment = {key: value for key, value in os.environ.items() if key != MARK}
        subprocess.run([path, *arguments], check=True, timeout=20, capture_output=True, env=environment)
        file = self.folder / "run" / f"{name}.pid"
        wait_until(lambda: file.exists() and file.read_text().strip(), 5, f"{name} writes its pid")
        self.pids.append(int(file.read_text()))

    def _start(self):
        say("starting a SLURM of one node")
        self.folder.chmod(0o755)
        for name in ["munge", "state", "spool", "run"]:
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        configuration = self.folder / "slurm.conf"
        configuration.write_text(self._configuration())
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\nConstrainCores=no\n")
        os.environ["SLURM_CONF"] = str(configuration)
        munge = self.folder / "munge"
        self._daemon(
            "munged",
            f"--key-file={key}",
            f"--socket={munge}/socket",
            f"--pid-file={self.folder}/run/munged.pid",
            f"--log-file={munge}/log",
            f"--seed-file={munge}/seed",
        )
        self._daemon("slurmctld", "-c", "-f", str(configuration))
        self._daemon("slurmd", "-N", "bench", "-f", str(configuration))

        def idle():
            asked = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, timeout=10)
            return asked.stdout.strip() == "idle"

        wait_until(idle, 20, "the SLURM node is idle")

    def _stop(self):
        for pid in reversed(self.pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 15)
        deadline = time.monotonic() + 10
        while self.pids and time.monotonic() < deadline:
            self.pids = [pid for pid in self.pids if pathlib.Path(f"/proc/{pid}").exists()]
            time.sleep(0.05)
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        os.environ.pop("SLURM_CONF", None)
