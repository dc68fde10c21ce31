"""Simulated hosts on one machine: each has its own network, hostname, /etc/hosts, processes and /dev/shm.

    hosts.enter()                      # first of all: from here on this program is in a world of its own
    with hosts.Lab(3) as lab:          # h1, h2, h3 on one switch, 10.77.0.1 to .3
        job = lab["h1"].start(["distrun", ...])
        lab["h1"].cut()

`enter` puts the program into network, process, mount and IPC namespaces of its own. All that it makes there, switch,
hosts, files below /run, is seen by nobody else, cannot clash with another run, and is ended and removed by the kernel
when the program ends, however it ends. So there is nothing to clean up after a run, nor before one.

Needs Linux, root or user namespaces, and `ip`, `unshare`, `nsenter` (iproute2, util-linux). What is missing is told by
`Unavailable`. No network of the machine is touched, and no host can reach it.
"""

import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1

SKIPPED = 77  # ctest's SKIP_RETURN_CODE of these tests
NOBODY = "02:00:00:00:00:fe"  # the address of no device
FOLDER = pathlib.Path("/run/lab")

_libc = ctypes.CDLL(None, use_errno=True)
_entered = False


class Unavailable(Exception):
    """This machine cannot do it, and why."""


# ---- the world ------------------------------------------------------------------------------------------------


def enter():
    """Returns in the world. The process that called stays outside, waits, and ends with the same status.

    outside (waits; its death kills init) ── init (pid 1: reaps) ── the program (this function returns here)
    """
    global _entered
    if _entered:
        return
    for folder in ("/usr/sbin", "/sbin"):
        if folder not in os.environ["PATH"].split(":"):
            os.environ["PATH"] += ":" + folder
    for tool, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")):
        if shutil.which(tool) is None:
            raise Unavailable(f"no {tool} (package {package})")
    sys.stdout.flush()
    sys.stderr.flush()
    _unshare()
    init = _fork()
    if init == 0:
        _populate()
        program = _fork()
        if program == 0:
            _entered = True
            return
        os._exit(_reap_until(program))
    for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signo, lambda *_: os.kill(init, signal.SIGKILL))  # and so everything in it
    os._exit(_reap_until(init))


def _unshare():
    flags = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    uid, gid = os.geteuid(), os.getegid()
    if uid != 0:
        flags |= CLONE_NEWUSER
    if _libc.unshare(flags) != 0:
        hint = "" if uid == 0 else " (not root, and no user namespaces)"
        raise Unavailable(f"no namespaces: {os.strerror(ctypes.get_errno())}{hint}")
    if uid != 0:
        pathlib.Path("/proc/self/setgroups").write_text("deny")
        pathlib.Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        pathlib.Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def _fork():
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The first child of a pid namespace sees 0 as its parent, alive or not: it asks nobody.
        if os.getpid() != 1 and os.getppid() != parent:
            os._exit(1)
    return child


def _populate():
    def run(*command):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"skipped: {' '.join(command)}: {done.stderr.strip()}", flush=True)
            os._exit(SKIPPED)

    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "proc", "proc", "/proc")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run")
    run("ip", "link", "set", "lo", "up")
    FOLDER.mkdir()


def _reap_until(wanted):
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except InterruptedError:
            continue
        if pid == wanted:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


# ---- hosts ----------------------------------------------------------------------------------------------------


def _run(*command, input=None):
    command = [str(word) for word in command]
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}\n{input or ''}")
    return done.stdout


def wait_until(condition, seconds, what):
    """The condition's first true value. `what` may be a function that says it when time is up."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.01)


def alive(pid):
    """Whether it runs: a process that is dead but not yet waited for does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid):
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid):
    found = [pid]
    for parent in found:
        found += children(parent)
    return found[1:]


class Lab:
    """Hosts h1 to hN on one switch.

    names      what the hosts' /etc/hosts says: "all" of them, "none", or "loopback": all, and Debian's
               127.0.1.1 for the host's own. What is not there is asked of a name server that never answers.
    family     4, 6, or 46: which addresses they have (10.77.0.I, fd77::I)
    dead_nic   a second card on every host that leads nowhere: one that sorts first, has the same address
               everywhere, as bridges of containers have, and the default route
    cable      path of the `cable` program: every host's cable can be impaired
    """

    def __init__(self, count, *, names="all", family=4, dead_nic=False, cable=None):
        if not _entered:
            raise RuntimeError("hosts.enter() first")
        self.names, self.family, self.dead_nic, self.cable = names, family, dead_nic, cable
        self.processes = []
        for left in FOLDER.iterdir():  # of the lab before
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        self._hosts = {f"h{i}": Host(self, i) for i in range(1, count + 1)}
        try:
            _run("ip", "-batch", "-", input="link add br0 type bridge\nlink set br0 up\n")
            for host in self:
                host.power_on()
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name):
        return self._hosts[name]

    def __iter__(self):
        return iter(self._hosts.values())

    def __len__(self):
        return len(self._hosts)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for host in self:
            host.power_off()
        for process in self.processes:
            process.wait(30)
        subprocess.run(["ip", "link", "del", "br0"], capture_output=True, timeout=60)


class Host:
    def __init__(self, lab, number):
        self.lab, self.number, self.name = lab, number, f"h{number}"
        self.ipv4, self.ipv6 = f"10.77.0.{number}", f"fd77::{number}"
        self.address = self.ipv6 if lab.family == 6 else self.ipv4
        self.mac = f"02:00:00:00:00:{number:02x}"  # stays over restarts: no peer has a stale one
        self._port = f"port{number}"  # our end of its cable
        self._starter = self._cable = None
        self._init = None  # pid of its pid 1, in our namespace
        self._network = None  # descriptor: its network lives until we let go

    # -- power --

    def power_on(self):
        folder = FOLDER / self.name
        folder.mkdir(exist_ok=True)
        (folder / "hostname").write_text(self.name + "\n")
        (folder / "hosts").write_text(self._hosts_file())
        (folder / "resolv.conf").write_text("nameserver 10.77.0.250\n")  # nobody
        ready = folder / "ready"
        ready.unlink(missing_ok=True)
        # pid 1 has to reap what it adopts; bash does.
        script = """
            set -e; cd "$1"; hostname "$2"
            for file in hosts hostname resolv.conf; do mount --bind $file /etc/$file; done
            mount -t tmpfs -o size=1g,mode=1777 shm /dev/shm
            : > ready; cd /; trap : TERM INT HUP; while :; do sleep 86400 & wait $!; done"""
        with (folder / "init.log").open("w") as log:
            self._starter = subprocess.Popen(
                ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                 "bash", "-c", script, "host", str(folder), self.name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)  # fmt: skip
        wait_until(lambda: ready.exists() or self._starter.poll() is not None, 30, f"{self.name} is up")
        if not ready.exists():
            raise RuntimeError(f"{self.name}: {(folder / 'init.log').read_text()}")
        self._init = children(self._starter.pid)[0]
        self._network = os.open(f"/proc/{self._init}/ns/net", os.O_RDONLY)
        self._connect()

    def _hosts_file(self):
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
        if self.lab.names == "loopback":
            lines.append(f"127.0.1.1 {self.name}")
        if self.lab.names != "none":
            for host in self.lab:
                lines += [f"{address} {host.name}" for address in host.addresses()]
        return "\n".join(lines) + "\n"

    def addresses(self):
        return [self.ipv4] * (self.lab.family != 6) + [self.ipv6] * (self.lab.family != 4)

    def _connect(self):
        if self.lab.cable:
            self._cable = subprocess.Popen(
                [self.lab.cable, self._port, str(self._init), "eth0"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)  # fmt: skip
            said = self._cable.stdout.readline()
            if said != "ready\n":
                raise Unavailable(said.strip())
        else:
            _run("ip", "link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", self._init)
        _run("ip", "link", "set", self._port, "master", "br0", "up")
        lines = ["link set lo up", f"link set eth0 address {self.mac}"]
        if self.lab.family != 6:
            lines.append(f"addr add {self.ipv4}/24 dev eth0")
        if self.lab.family != 4:
            lines.append(f"addr add {self.ipv6}/64 dev eth0 nodad")
        lines.append("link set eth0 up")
        if self.lab.dead_nic:
            lines += ["link add a0 type bridge", "addr add 172.17.0.1/16 dev a0", "link set a0 up",
                      "route add default via 172.17.255.254 dev a0"]  # fmt: skip
        self._ip(*lines)
        # The kernel opens a port when it gets round to its card's carrier.
        wait_until(lambda: "state forwarding" in _run("ip", "-d", "link", "show", self._port), 30, f"{self._port} is open")

    def _ip(self, *lines):
        """Lines of `ip -batch` in the host's network."""
        network = f"--net=/proc/{os.getpid()}/fd/{self._network}"
        _run("nsenter", network, "ip", "-batch", "-", input="\n".join(lines) + "\n")

    def power_off(self):
        """All its processes die at once, and its network with them."""
        subprocess.run(["ip", "link", "del", self._port], capture_output=True, timeout=60)
        self._end_processes()
        if self._cable is not None:
            self._cable.stdin.close()
            self._cable.wait(30)
            self._cable.stdout.close()
            self._cable = None
        if self._network is not None:
            os.close(self._network)
            self._network = None

    def _end_processes(self):
        if self._init is not None and alive(self._init):
            os.kill(self._init, signal.SIGKILL)
        if self._starter is not None:
            self._starter.wait(30)  # ends when its child has
        self._starter = self._init = None

    # -- what may happen to a host --

    def cut(self):
        """Cable out: silence both ways."""
        _run("ip", "link", "set", self._port, "down")

    def heal(self):
        _run("ip", "link", "set", self._port, "up")

    def drop_to(self, other):
        """What it sends to `other` gets lost; the other way is as it was."""
        for address in other.addresses():
            self._ip(f"neigh replace {address} lladdr {NOBODY} dev eth0 nud permanent")

    def undrop_to(self, other):
        for address in other.addresses():
            self._ip(f"neigh del {address} dev eth0")

    def impair(self, *, delay_ms=0, jitter_ms=0, loss=0.0):
        """Each frame on its cable, either way, from now on; without arguments: none. Only with Lab(cable=...)."""
        self._cable.stdin.write(f"delay_us={delay_ms * 1000} jitter_us={jitter_ms * 1000} loss={loss}\n")
        if self._cable.stdout.readline() != "set\n":
            raise RuntimeError(f"{self.name}: the cable is gone")

    def crash(self):
        """Power loss: peers hear nothing, not even that its connections are closed."""
        self.cut()
        self.power_off()

    def kill(self):
        """All its processes are killed; its network goes on, closes their connections and refuses new ones."""
        self._end_processes()

    def restart(self):
        """On again after `crash` or `kill`, or a reboot: same name, same addresses, its cable in."""
        self.power_off()
        self.power_on()

    def freeze(self):
        """All its processes stop; its network goes on."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self):
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, signo):
        for pid in self._members():
            try:
                os.kill(pid, signo)
            except ProcessLookupError:
                pass
        if signo == signal.SIGCONT:
            for process in self.lab.processes:
                process.wake_waiter()

    def _members(self):
        """Pids, as we count, of all processes on it."""
        world = os.readlink(f"/proc/{self._init}/ns/pid")
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(entry / "ns/pid") == world:
                    yield int(entry.name)
            except (FileNotFoundError, ProcessLookupError):
                continue  # gone meanwhile
            except PermissionError:
                continue  # sshd's child before it knows who logs in: another user, who may be looked at with CAP_SYS_PTRACE only

    # -- processes --

    def start(self, argv, *, name=None, env=None):
        process = Process(self, argv, name or f"{self.name}.{len(self.lab.processes)}", env or {})
        self.lab.processes.append(process)
        return process

    def run(self, argv, *, seconds=40, env=None):
        """Runs it to its end; fails if it does."""
        process = self.start(argv, env=env)
        if process.wait(seconds) != 0:
            raise AssertionError(f"{process}\n{process.text()}")
        return process.text()

    def connects_to(self, host, port, seconds=1.0):
        """Whether a TCP connection from here to `host` comes about."""
        code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3]))"
        process = self.start([sys.executable, "-I", "-S", "-c", code, host.address, port, seconds])
        return process.wait(seconds + 30) == 0

    def pids(self):
        """Of all that runs on it, as it counts itself."""
        found = []
        for pid in self._members():
            try:
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if alive(pid):
                found.append(int(re.search(r"^NSpid:.*\t(\d+)$", status, re.MULTILINE)[1]))
        return found

    def init_command(self):
        """Prefix for a command that is to run in all of the host's namespaces."""
        return ["nsenter", "--target", str(self._init), "--net", "--uts", "--ipc", "--mount", "--pid", f"--wd={os.getcwd()}", "--"]  # fmt: skip


class Process:
    """One program on one host. Its output goes to files, whole: `out()` and `err()`."""

    def __init__(self, host, argv, name, env):
        self.host, self.name = host, name
        self.argv = [str(word) for word in argv]
        self._files = [FOLDER / f"{name}.{stream}" for stream in ("out", "err")]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            # nsenter forks: it stays outside, waits, and ends as the program did.
            self._waiter = subprocess.Popen(
                host.init_command() + self.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env={**os.environ, **env}, start_new_session=True)  # fmt: skip
        found = wait_until(lambda: children(self._waiter.pid) or self._waiter.poll() is not None, 30, f"{name} runs")
        self.pid = found[0] if isinstance(found, list) else None  # in our namespace

    def __str__(self):
        status = self.poll()
        state = "runs" if status is None else f"ended with {status}"
        return f"{self.name} on {self.host.name} ({' '.join(self.argv)}) {state}"

    def out(self):
        return self._files[0].read_text(errors="replace")

    def err(self):
        return self._files[1].read_text(errors="replace")

    def text(self):
        return self.out() + self.err()

    def poll(self):
        """Its exit status as a shell has it (128+n for signal n); None while it runs."""
        code = self._waiter.poll()
        return 128 - code if code is not None and code < 0 else code

    def wait(self, seconds):
        """Its exit status."""
        wait_until(lambda: self.poll() is not None, seconds, lambda: f"{self}\n{self.text()[-4000:]}")
        return self.poll()

    def tree(self):
        """It and all its descendants."""
        return [self.pid, *descendants(self.pid)] if self.pid and alive(self.pid) else []

    def signal(self, signo, pids=None):
        """To the program itself, or to these of its tree."""
        for pid in [self.pid] if pids is None else pids:
            try:
                os.kill(pid, signo)
            except ProcessLookupError:
                pass
        if signo == signal.SIGCONT:
            self.wake_waiter()

    def wake_waiter(self):
        """nsenter stops when its child does, and continuing the child does not wake it."""
        if self._waiter.poll() is None:
            self._waiter.send_signal(signal.SIGCONT)
