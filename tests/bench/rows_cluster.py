"""Row recovery: how soon a job over several hosts works again. On simulated hosts (tests/cluster), four of them with one
worker each; from the moment of the loss to when the last of the new workers is in its main.

As a program, `rows_cluster.py ROUNDS` measures and prints JSON: it has to leave the machine's own network for that.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "cluster")]
sys.dont_write_bytecode = True

import hosts  # noqa: E402
import jobs  # noqa: E402

from bench.measure import Figure, median, say  # noqa: E402

# What happens, and within how many ms the new workers have to run.
LIMITS_MS = {
    "a worker fails": 300,
    "a host's processes die": 500,
    "a host is cut off": 4000,
    "distrund is killed": 2000,
}
NAMES = {
    "a worker fails": "recovery: a worker fails",
    "a host's processes die": "recovery: a host's processes die",
    "a host is cut off": "recovery: a host is cut off",
    "distrund is killed": "distrund restarted, first join",
}
LONGEST_JOB = 8  # losses: a job that loses 20 nodes in ten minutes is ended


def recovery(bench):
    rounds = bench.rounds(8, 2)
    say(f"recovery: {rounds} of each of {', '.join(LIMITS_MS)}")
    tools = bench.build / "cluster"
    environment = dict(os.environ, DISTRUN_BIN=str(bench.build / "bin"), DISTRUN_CLUSTER_BIN=str(tools))
    command = [sys.executable, str(HERE / "rows_cluster.py"), str(rounds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120 + 60 * rounds)
    if done.returncode == hosts.SKIPPED:
        why = done.stdout.strip().splitlines()[-1]
        return [Figure(name, None, "ms", note=why) for name in NAMES.values()]
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-3000:]}")
    figures = []
    for what, times in json.loads(done.stdout).items():
        bench.keep(NAMES[what], times)
        note = f"of {len(times)}; slowest {max(times):.0f} ms"
        limit = LIMITS_MS[what]
        figures.append(Figure(NAMES[what], median(times), "ms", bar=f"< {limit} ms", holds=median(times) < limit, note=note))
    return figures


# ---- the measuring program ------------------------------------------------------------------------------------


class Job:
    """A job of reporting workers on h1 to h4 of a fresh lab."""

    def __init__(self, nnodes, *options, count=4):
        self.lab = hosts.Lab(count)
        self.reports = jobs.Reports("job", self.lab)
        self._nnodes, self._options = nnodes, options
        for host in list(self.lab)[:4]:
            self.join(host)
        self.round = self.reports.wait_round("h1 h2 h3 h4")

    def join(self, host, job="job", endpoint=f"h1:{jobs.PORT}", nnodes=None, reports=None):
        worker = [jobs.TOOLS / "reporting_worker", (reports or self.reports).folder]
        command = [jobs.BIN / "distrun", "--nnodes", nnodes or self._nnodes, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                   endpoint, "--rdzv-id", job, *self._options, *worker]  # fmt: skip
        return host.start(command)

    def recovered_ms(self, on, since_ns):
        """From then to when the last worker of the next round, on these hosts, began."""
        self.round = self.reports.wait_round(on, after=self.round)
        return (max(line.time_ns for line in self.round) - since_ns) / 1e6

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lab.close()


def a_worker_fails(rounds):
    times = []
    with Job(4, "--max-restarts", rounds) as job:
        for i in range(rounds):
            job.reports.die(i % 4)
            died = hosts.wait_until(lambda: job.reports.lines("died")[i:], 5, "a worker dies")[0]
            times.append(job.recovered_ms("h1 h2 h3 h4", died.time_ns))
    return times


def loss(rounds, lose, bring_back):
    times = []
    while len(times) < rounds:
        with Job("3:4") as job:
            for _ in range(min(LONGEST_JOB, rounds - len(times))):
                time.sleep(0.5)  # a job that works, not one that forms
                began = time.monotonic_ns()
                lose(job.lab["h4"])
                times.append(job.recovered_ms("h1 h2 h3", began))
                bring_back(job)
                job.round = job.reports.wait_round("h1 h2 h3 h4", after=job.round)
    return times


def restart_h4(job):
    job.lab["h4"].restart()
    job.join(job.lab["h4"])


def a_hosts_processes_die(rounds):
    return loss(rounds, lambda host: host.kill(), restart_h4)


def a_host_is_cut_off(rounds):
    return loss(rounds, lambda host: host.cut(), lambda job: job.lab["h4"].heal())


def distrund_is_killed(rounds):
    """Job "old" runs on h1 and h2; two new agents on h3 and h4 come at the moment of the kill."""
    times = []
    lab = hosts.Lab(5)
    state = hosts.FOLDER / "state"
    state.mkdir()

    def start_daemon():
        return lab["h5"].start([jobs.BIN / "distrund", "--host", "0.0.0.0", "--port", jobs.PORT, "--state", state])

    def join(names, job):
        reports = jobs.Reports(job, lab)
        for name in names:
            lab[name].start([jobs.BIN / "distrun", "--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"h5:{jobs.PORT}",
                             "--rdzv-id", job, jobs.TOOLS / "reporting_worker", reports.folder])  # fmt: skip
        return reports

    daemon = start_daemon()
    old = join(("h1", "h2"), "old")
    first = old.wait_round("h1 h2")
    for i in range(rounds):
        began = time.monotonic_ns()
        daemon.signal(jobs.signal.SIGKILL)
        daemon.wait(5)
        daemon = start_daemon()
        new = join(("h3", "h4"), f"new{i}")
        times.append((max(line.time_ns for line in new.wait_round("h3 h4")) - began) / 1e6)
        new.finish()
        time.sleep(2)  # the old job's agents have attached again
    if old.lines() != sorted(first, key=old.lines().index):
        raise AssertionError(f"workers of the old job were started again:\n{old}")
    old.finish()
    lab.close()
    return times


def main():
    rounds = int(sys.argv[1])
    try:
        hosts.enter()
    except hosts.Unavailable as why:
        print(f"left out: {why}")
        sys.exit(hosts.SKIPPED)
    measured = {
        "a worker fails": a_worker_fails(rounds),
        "a host's processes die": a_hosts_processes_die(rounds),
        "a host is cut off": a_host_is_cut_off(rounds),
        "distrund is killed": distrund_is_killed(rounds),
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
