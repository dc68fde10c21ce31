"""Jobs over simulated hosts: starting distrun on them, reading what its workers tell, and the frame of these tests.

Binaries come from the folder in DISTRUN_BIN (default: build/dev/bin), `cable` and `reporting_worker` from DISTRUN_CLUSTER_BIN
(default: cluster/ beside it). Every wait has a limit, and a test that fails shows what every process said.
"""

import collections
import os
import pathlib
import re
import shlex
import signal
import sys
import time
import unittest

import hosts
from hosts import wait_until

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("DISTRUN_BIN", ROOT / "build" / "dev" / "bin"))
TOOLS = pathlib.Path(os.environ.get("DISTRUN_CLUSTER_BIN", BIN.parent / "cluster"))
PORT = 29400

# What an outer launcher or a user set is no part of a test.
for _name in [name for name in os.environ if name.startswith(("PET_", "TORCHELASTIC_"))]:
    del os.environ[_name]
for _name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"):
    os.environ.pop(_name, None)

Line = collections.namedtuple(
    "Line", "what time_ns host pid rank world_size group_rank group_world_size restart_count master_addr master_port"
)  # fmt: skip


class Reports:
    """What the workers of one job told (reporting_worker.c)."""

    def __init__(self, name, lab):
        self._lab = lab
        self.folder = hosts.FOLDER / f"reports.{name}"
        self.folder.mkdir()
        self._path = self.folder / "lines"
        self._path.touch()

    def lines(self, what="began"):
        found = []
        for text in self._path.read_text().splitlines():
            first, when, host, pid, *numbers, address, port = text.split()
            found.append(Line(first, int(when), host, int(pid), *map(int, numbers), address, int(port)))
        return [line for line in found if line.what == what]

    def rounds(self):
        """{(master_addr, master_port): [Line]} of the rounds whose workers began, in order of their first."""
        rounds = collections.OrderedDict()
        for line in self.lines():
            rounds.setdefault((line.master_addr, line.master_port), []).append(line)
        return rounds

    def complete(self):
        """The rounds of which every rank began: a list of lists in order of rank."""
        whole = []
        for lines in self.rounds().values():
            if len(lines) == lines[0].world_size:
                whole.append(sorted(lines, key=lambda line: line.rank))
        return whole

    def wait_round(self, hosts_are=None, *, after=None, seconds=40):
        """The latest complete round, once it is on exactly these hosts ("h1 h2") if they are named, and not `after`."""

        def found():
            rounds = self.complete()
            if all(process.poll() is not None for process in self._lab.processes):
                raise AssertionError(f"all agents have ended; waited for a round of {hosts_are or 'anybody'}; were:\n{self}")
            if not rounds or (after and rounds[-1][0][-2:] == after[0][-2:]):
                return None
            on = sorted(line.host for line in rounds[-1])
            return rounds[-1] if hosts_are is None or on == sorted(hosts_are.split()) else None

        return wait_until(found, seconds, lambda: f"a round of {hosts_are or 'anybody'}; there were:\n{self}")

    def finish(self):
        """All workers end well."""
        (self.folder / "finish").touch()

    def die(self, rank):
        """The worker of that rank fails: not within its first second, which would be a failure to start."""
        began = max(line.time_ns for line in self.lines() if line.rank == rank)
        time.sleep(max(0, 1.2 - (time.monotonic_ns() - began) / 1e9))
        (self.folder / f"die.{rank}").touch()

    def __str__(self):
        return "\n".join(
            f"  {address}:{port} world {lines[0].world_size}: "
            + ", ".join(f"{line.host}={line.rank}/{line.restart_count}" for line in lines)
            for (address, port), lines in self.rounds().items()
        )


class Pace:
    """How slowly workers of `digits` step: so that they are not done before something is done to them, and then are soon."""

    def __init__(self, milliseconds):
        self._path = hosts.FOLDER / "pace"
        self.set(milliseconds)

    def set(self, milliseconds):
        """For workers that begin from now on."""
        self._path.write_text(str(milliseconds))

    def worker(self, command):
        words = " ".join(shlex.quote(str(word)) for word in command)
        return ["sh", "-c", f"exec {words} --step-sleep-ms $(cat {self._path})"]


class ClusterTest(unittest.TestCase):
    """One lab for each test, and the promises that hold in every one."""

    def lab(self, count, **options):
        try:
            lab = hosts.Lab(count, **options)
        except hosts.Unavailable as why:
            self.skipTest(str(why))
        self.addCleanup(lab.close)
        self._lab = lab
        return lab

    def reports(self, name="job"):
        reports = Reports(name, self._lab)
        self._reports.append(reports)
        return reports

    def setUp(self):
        self._lab = None
        self._reports = []

    def run(self, result=None):
        result = result or self.defaultTestResult()
        before = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > before and self._lab is not None:
            for process in self._lab.processes:
                print(f"---- {process}\n{process.text()[-6000:]}", file=sys.stderr)
            for reports in self._reports:
                print(f"---- rounds in {reports.folder}\n{reports}", file=sys.stderr)

    # -- starting --

    def distrun(self, host, *options, worker, nnodes, endpoint=f"h1:{PORT}", job="job", name=None, env=None):
        argv = [BIN / "distrun", "--nnodes", nnodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint,
                "--rdzv-id", job, "--shutdown-timeout", 5, *options, *worker]  # fmt: skip
        return host.start(argv, name=name, env=env)

    def everywhere(self, lab, *options, **how):
        """The same command on every host, at once; {host name: Process}."""
        how.setdefault("nnodes", len(lab))
        return {host.name: self.distrun(host, *options, **how) for host in lab}

    def daemon(self, host, *options, address="0.0.0.0"):
        process = host.start([BIN / "distrund", "--host", address, "--port", PORT, *options])
        wait_until(lambda: "listening on" in process.err() or process.poll() is not None, 30, "distrund listens")
        self.assertIsNone(process.poll(), process.err())
        return process

    def wait_for_text(self, process, pattern, seconds=40):
        """Until it has said that on stderr (a regular expression); gives the match."""
        return wait_until(
            lambda: re.search(pattern, process.err()), seconds, lambda: f"{process.name} says {pattern!r}: {process.err()}"
        )  # fmt: skip

    def reporting(self, reports, *how):
        return [TOOLS / "reporting_worker", reports.folder, *how]

    # -- asking --

    def assert_all_end_with(self, status, agents, seconds=40):
        ended = {name: process.wait(seconds) for name, process in agents.items()}
        self.assertEqual(ended, {name: status for name in agents})

    def assert_rounds_were_sound(self, reports):
        """In a round no two workers have one rank, and all agree on the size."""
        for master, lines in reports.rounds().items():
            ranks = [line.rank for line in lines]
            self.assertEqual(len(ranks), len(set(ranks)), f"one rank twice in round {master}:\n{reports}")
            self.assertEqual(len({line.world_size for line in lines}), 1, f"sizes differ in {master}:\n{reports}")
            self.assertLessEqual(len(lines), lines[0].world_size, f"more workers than its size in {master}")

    def assert_gone(self, line, seconds=40):
        """That worker does not run any more, on a host that does."""
        host = self._lab[line.host]
        wait_until(lambda: line.pid not in host.pids(), seconds, lambda: f"{line} is gone")

    def end_well(self, reports, agents, seconds=40):
        """The job goes to its end: every node with status 0."""
        reports.finish()
        self.assert_all_end_with(0, agents, seconds)
        self.assert_rounds_were_sound(reports)


def ranks(lines):
    """{host: node rank} of a round."""
    return {line.host: line.group_rank for line in lines}


def kill_agent(process):
    """kill -9 of both of distrun's own processes at one instant, as an OOM killer does; workers are left to the kernel."""
    guard = process.pid
    process.signal(signal.SIGKILL, [guard, *hosts.children(guard)])


def main():
    for program in (BIN / "distrun", BIN / "distrund", BIN / "digits", TOOLS / "cable", TOOLS / "reporting_worker"):
        if not program.exists():
            sys.exit(f"{program} is missing: build it, or set DISTRUN_BIN")
    try:
        hosts.enter()
    except hosts.Unavailable as why:
        print(f"skipped: {why}")
        sys.exit(hosts.SKIPPED)
    program = unittest.main(verbosity=2, exit=False, module="__main__")
    result = program.result
    for case, why in result.skipped:
        print(f"skipped: {case}: {why}")
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(hosts.SKIPPED if result.skipped and len(result.skipped) == result.testsRun else 0)
