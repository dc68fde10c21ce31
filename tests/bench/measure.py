"""What all rows of scripts/bench use: running commands in turn, waiting with a limit, reading /proc,
and a Figure, which is one line of the table. Knows nothing of any row or peer."""

import dataclasses
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

# In the environment of everything started here, so that whatever outlives its command is found.
MARK = "DISTRUN_BENCH_RUN"
os.environ[MARK] = uuid.uuid4().hex


@dataclasses.dataclass
class Figure:
    """One line of the table. `holds` is None where there is no bar or nothing to compare with."""

    row: str
    ours: float | None
    unit: str
    against: str = ""
    theirs: float | None = None
    ratio: float | None = None
    bar: str = ""
    holds: bool | None = None
    note: str = ""


@dataclasses.dataclass
class Run:
    """One run of a command by time_run."""

    wall_ms: float
    cpu_ms: float
    max_rss_mib: float
    status: int
    left_behind: int

    @property
    def hung(self):
        return self.status == -1


def say(text):
    """Progress, for a reader who waits; the table is on standard output."""
    print(text, file=sys.stderr, flush=True)


def median(values):
    return statistics.median(values) if values else None


def at_most(ours, theirs, limit):
    """(ratio, holds) for "ours may cost at most `limit` times theirs"."""
    if ours is None or not theirs:
        return None, None
    return ours / theirs, ours <= limit * theirs


def at_least(ours, theirs, limit):
    """(ratio, holds) for "ours must be at least `limit` times theirs"."""
    if ours is None or not theirs:
        return None, None
    return ours / theirs, ours >= limit * theirs


def run_in_turn(time_run, commands, rounds, timeout_s, env=None):
    """Runs {name: argv} A B A B, `rounds` times; {name: [Run]}."""
    argv = [str(time_run), str(rounds), str(int(timeout_s * 1000))]
    for i, command in enumerate(commands.values()):
        argv += (["---"] if i else []) + [str(word) for word in command]
    limit = rounds * len(commands) * (timeout_s + 3) + 10
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, text=True, timeout=limit, check=True, env=env
    )
    runs = {name: [] for name in commands}
    names = list(commands)
    for line in done.stdout.splitlines():
        index, _, wall, user, system, rss, status, left = (int(word) for word in line.split())
        run = Run(wall / 1e3, (user + system) / 1e3, rss / 1024, status, left)
        runs[names[index]].append(run)
    return runs


def run_fast_and_slow(time_run, fast, rounds, slow, slow_rounds, timeout_s):
    """As run_in_turn, for commands that differ too much in time to be run equally often: the slow
    ones get `slow_rounds` runs, spread evenly among those of the fast ones."""
    chunks = min(rounds, slow_rounds) if slow else 1
    runs = {name: [] for name in [*fast, *slow]}
    for chunk in range(chunks):
        share = rounds * (chunk + 1) // chunks - rounds * chunk // chunks
        batches = [(fast, share)]
        if slow:
            batches.append((slow, slow_rounds * (chunk + 1) // chunks - slow_rounds * chunk // chunks))
        for commands, count in batches:
            for name, more in run_in_turn(time_run, commands, count, timeout_s).items():
                runs[name] += more
    return runs


def wait_until(condition, seconds, what):
    """Polls; returns the condition's first true value, or says what did not happen."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise TimeoutError(f"{what}: not within {seconds} s")


class Server:
    """A process that says "listening on ADDRESS:PORT" on standard error; ended by leaving `with`."""

    def __init__(self, argv, cpu=None, start_s=60):
        pin = None if cpu is None else (lambda: os.sched_setaffinity(0, {cpu}))
        # A file, not a pipe: one that warns of every client that left must never wait for us to read that.
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.said,
            preexec_fn=pin,
        )
        try:
            self.port = self._port(start_s)
        except Exception:
            self.close()
            raise

    def _port(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            heard = os.pread(self.said.fileno(), 65536, 0)
            found = re.search(rb"listening on \S*:(\d+)\s", heard)
            if found:
                return int(found[1])
            if ended:
                break
            time.sleep(0.02)
        name = os.path.basename(self.process.args[0])
        raise RuntimeError(f"{name} did not say where it listens: {heard[-300:].decode(errors='replace')}")

    def cpu_s(self):
        """CPU time of all its threads so far, by the scheduler's own clock."""
        total = 0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def close(self):
        self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.said.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def marked(mark=None):
    """Pids whose environment carries our mark (or the given "NAME=value"), but ourselves."""
    wanted = (mark or f"{MARK}={os.environ[MARK]}").encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue  # Gone, a zombie, or not ours to read.
    return found


def sweep(mark=None):
    """Kills what carries the mark, whatever it has become; returns how many there were."""
    first = marked(mark)
    deadline = time.monotonic() + 5
    left = first
    while left and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
        left = marked(mark)
    return len(first)


def busy_percent(seconds=0.5):
    """How much of the machine's CPU time others use while we sleep."""

    def sample():
        fields = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    total, idle = sample()
    time.sleep(seconds)
    total_after, idle_after = sample()
    return 100 * (1 - (idle_after - idle) / max(1, total_after - total))
