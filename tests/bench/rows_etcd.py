"""Row etcd: what it costs to keep decisions in etcd, and how soon the next of several distrunds acts. On simulated hosts
(tests/cluster), with a three-member etcd on one of them (tests/etcd).

As a program, `rows_etcd.py ROUNDS` measures and prints JSON: it has to leave the machine's own network for that.
"""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "cluster"), str(HERE.parent / "etcd")]
sys.dont_write_bytecode = True

import etcd  # noqa: E402
import hosts  # noqa: E402
import jobs  # noqa: E402

from bench.measure import Figure, median, say  # noqa: E402

TAKEOVER_LIMIT_MS = 3000
SHARE = 0.5  # of the rate of a bare client
ADDED_LIMIT_MS = 50
CLIENTS = (1, 16)
DECISIONS = 600  # of each client, less if there are many


def etcd_row(bench):
    rounds = bench.rounds(8, 3)
    say(f"etcd: {rounds} takeovers, {4 * rounds} restarts, {DECISIONS} decisions")
    environment = dict(os.environ, DISTRUN_BIN=str(bench.build / "bin"), DISTRUN_CLUSTER_BIN=str(bench.build / "cluster"))
    command = [sys.executable, str(HERE / "rows_etcd.py"), str(rounds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240 + 60 * rounds)
    if done.returncode == hosts.SKIPPED:
        return [Figure("etcd", None, "ms", note=done.stdout.strip().splitlines()[-1])]
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-3000:]}")
    measured = json.loads(done.stdout)
    version = measured["version"]
    for what, values in measured.items():
        bench.keep(f"etcd: {what}", values)
    took = measured["takeover"]
    figures = [
        Figure("etcd: the leading distrund is killed, first join", median(took), "ms", bar=f"< {TAKEOVER_LIMIT_MS} ms",
               holds=median(took) < TAKEOVER_LIMIT_MS, note=f"of {len(took)}; slowest {max(took):.0f} ms; {version}")
    ]  # fmt: skip
    for clients in CLIENTS:
        ours, bare = measured[f"decisions {clients}"], measured[f"bare {clients}"]
        figures.append(
            Figure(f"etcd: decisions, {clients} at once", ours, "1/s", "a bare client", bare, ours / bare,
                   bar=f">= {SHARE}x", holds=ours >= SHARE * bare, note=version))  # fmt: skip
    with_etcd, without = median(measured["restart etcd"]), median(measured["restart memory"])
    added = with_etcd - without
    figures.append(
        Figure("etcd: a restart, more than in memory", added, "ms", "in memory", without, bar=f"< {ADDED_LIMIT_MS} ms",
               holds=added < ADDED_LIMIT_MS, note=f"{with_etcd:.0f} against {without:.0f} ms, of {len(measured['restart etcd'])}"))  # fmt: skip
    return figures


# ---- the measuring program ------------------------------------------------------------------------------------


class Site:
    """distrund on h1 and h2, agents on h3 and h4, etcd on h5."""

    def __init__(self):
        self.lab = hosts.Lab(5)
        self.etcd = etcd.Cluster(self.lab["h5"])

    def daemon(self, name, *options):
        host = self.lab[name]
        return host.start([jobs.BIN / "distrund", "--host", host.address, "--port", jobs.PORT, *options])

    def replica(self, name):
        daemon = self.daemon(name, "--state", self.etcd.url())
        hosts.wait_until(lambda: " leads" in daemon.err(), 20, daemon.err)
        return daemon

    def job(self, name, at, *options):
        reports = jobs.Reports(name, self.lab)
        for host in ("h3", "h4"):
            self.lab[host].start(
                [jobs.BIN / "distrun", "--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{at}:{jobs.PORT}", "--rdzv-id",
                 name, *options, jobs.TOOLS / "reporting_worker", reports.folder])  # fmt: skip
        return reports

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lab.close()


def takeovers(rounds):
    """A job runs; a new one comes to the distrund that stands by when the one that leads is killed."""
    times = []
    with Site() as site:
        daemons = {"h1": site.replica("h1"), "h2": site.replica("h2")}
        leads, stands_by = "h1", "h2"
        old = site.job("old", stands_by)
        first = old.wait_round("h3 h4")
        for i in range(rounds):
            began = time.monotonic_ns()
            daemons[leads].signal(jobs.signal.SIGKILL)
            new = site.job(f"new{i}", stands_by)
            times.append((max(line.time_ns for line in new.wait_round("h3 h4")) - began) / 1e6)
            new.finish()
            daemons[leads] = site.replica(leads)
            leads, stands_by = stands_by, leads
            time.sleep(2)  # the old job's agents have attached again
        if old.lines() != sorted(first, key=old.lines().index):
            raise AssertionError(f"workers of the old job were started again:\n{old}")
    return times


def restarts(count, with_etcd):
    times = []
    with Site() as site:
        site.replica("h1") if with_etcd else site.daemon("h1")
        job = site.job("job", "h1", "--max-restarts", count)
        last = job.wait_round("h3 h4")
        for i in range(count):
            job.die(i % 2)
            died = hosts.wait_until(lambda: job.lines("died")[i:], 5, "a worker dies")[0]
            last = job.wait_round("h3 h4", after=last)
            times.append((max(line.time_ns for line in last) - died.time_ns) / 1e6)
    return times


def rate(site, clients, work):
    """How many a second, with so many threads each doing `work(client, how many)`; gives how many it did."""
    each = max(100, DECISIONS // clients)
    done, failed = [], []

    def run(client):
        try:
            with etcd._in_network_of(site.lab["h3"]):
                done.append(work(client, each))
        except BaseException as why:  # noqa: BLE001
            failed.append(why)

    threads = [threading.Thread(target=run, args=(client,)) for client in range(clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return sum(done) / (time.monotonic() - began)


def frame(message):
    text = json.dumps(message).encode()
    return struct.pack(">I", len(text)) + text


class Agent:
    """Says what an agent says, and takes what it hears for granted."""

    def __init__(self, site):
        self._socket = socket.create_connection((site.lab["h1"].address, jobs.PORT), 5)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def say(self, message, greeting=b""):
        self._socket.sendall(greeting + frame(message))

    def hear(self, wanted):
        while True:
            size = struct.unpack(">I", self._file.read(4))[0]
            message = json.loads(self._file.read(size))
            if message["type"] == wanted:
                return message
            if message["type"] in ("refused", "over"):
                raise RuntimeError(f"wanted {wanted}, heard {message}")

    def greet(self, job):
        terms = {"min_nodes": 1, "max_nodes": 1, "command": "true", "fixed_ranks": False, "max_restarts": 0,
                 "join_timeout_us": 600000000, "last_call_us": 30000000, "rejoin_wait_us": 100000, "beat_us": 1000000,
                 "beats_missed": 3}  # fmt: skip
        join = {"type": "join", "version": 1, "job": job, "token": "", "node": job, "host": "h3", "address": "10.77.0.3",
                "store_port": 40001, "takeover_port": 0, "nproc": 1, "role": "default", "hosts": False, "terms": terms}  # fmt: skip
        self.say(join, b"DRUN1\n")
        self._file.read(6)

    def close(self):
        self._file.close()
        self._socket.close()


def decide(site, name):
    """Each one-node job is two decisions: its round, and its end."""

    def work(client, count):
        for i in range(count // 2):
            agent = Agent(site)
            agent.greet(f"{name}-{client}-{i}")
            round_of = agent.hear("welcome")["round"]
            agent.say({"type": "ended", "store_port": 0, "outcome": {
                "round": round_of, "result": "succeeded", "failed_at_start": False, "remains": False, "report": ""}})  # fmt: skip
            agent.hear("over")
            agent.close()
        return count // 2 * 2

    return work


def bare(site, record):
    """The same transaction, by a client that does nothing else."""
    coded = {name: etcd._bytes(f"/bare/{name}") for name in ("leader", "sequence")}

    def work(client, count):
        connection = socket.create_connection((site.lab["h5"].address, site.etcd.ports[0]), 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        file = connection.makefile("rb")
        for i in range(count):
            body = json.dumps({
                "compare": [{"key": coded["leader"], "target": "CREATE", "result": "EQUAL", "create_revision": "0"},
                            {"key": coded["sequence"], "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
                "success": [{"request_put": {"key": etcd._bytes(f"/bare-sequence/{client}"), "value": etcd._bytes(f"7587862094:{i}")}},
                            {"request_put": {"key": etcd._bytes(f"/bare-jobs/load-{client}-{i}"), "value": record}}],
                "failure": [{"request_range": {"key": coded["leader"]}}]}).encode()  # fmt: skip
            connection.sendall(b"POST /v3/kv/txn HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            length = 0
            for line in iter(file.readline, b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            if b'"succeeded":true' not in file.read(length):
                raise RuntimeError("a bare transaction failed")
        return count

    return work


def rates():
    measured = {}
    with Site() as site:
        site.replica("h1")
        rate(site, 1, decide(site, "first"))
        record = etcd._bytes(next(iter(site.etcd.keys("/distrun/jobs/").values())))
        for clients in CLIENTS:
            measured[f"decisions {clients}"] = rate(site, clients, decide(site, f"of{clients}"))
            measured[f"bare {clients}"] = rate(site, clients, bare(site, record))
    return measured


def main():
    rounds = int(sys.argv[1])
    try:
        hosts.enter()
        version = subprocess.run(["etcd", "--version"], capture_output=True, text=True).stdout.split()[2] if etcd.shutil.which("etcd") else None
        if version is None:
            raise hosts.Unavailable("no etcd (package etcd-server)")
    except hosts.Unavailable as why:
        print(f"left out: {why}")
        sys.exit(hosts.SKIPPED)
    measured = {"version": f"etcd {version}", "takeover": takeovers(rounds)}
    measured["restart memory"] = restarts(2 * rounds, False)
    measured["restart etcd"] = restarts(2 * rounds, True)
    print(json.dumps(measured | rates()))


if __name__ == "__main__":
    main()
