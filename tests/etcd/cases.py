"""The frame of the tests on a real etcd: its cluster, distrunds and agents on it, and what must hold of all that was ever written."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))

import hosts
import jobs
from hosts import wait_until

import etcd

PREFIX = "/distrun"


class EtcdTest(jobs.ClusterTest):
    def machines(self, count, **options):
        """h1 to hN, and one more host with a three-member etcd."""
        self.cluster = self.lab(count + 1)
        self.store_host = self.cluster[f"h{count + 1}"]
        try:
            if options.pop("tls", False):
                options["tls"] = etcd.Certificates(self.store_host.address)
            self.etcd = etcd.Cluster(self.store_host, **options)
        except hosts.Unavailable as why:
            self.skipTest(str(why))
        self.job = self.reports()

    # -- several distrunds on it --

    def replica(self, name, *options, state=None, env=None, leads=None):
        """distrund on that host; `leads`: wait until it does, or stands by."""
        host = self.cluster[name]
        process = host.start([jobs.BIN / "distrund", "--host", host.address, "--port", jobs.PORT,
                              "--state", state or self.etcd.url(PREFIX), *options], name=f"distrund.{name}", env=env)  # fmt: skip
        if leads is not None:
            self.wait_for_text(process, "this distrund leads" if leads else "leads; this distrund stands by")
        return process

    def replicas(self, names, *options):
        """The first leads, the others stand by."""
        self.daemons = {}
        for name in names.split():
            self.daemons[name] = self.replica(name, *options, leads=not self.daemons)

    def join(self, name, *options, nnodes, at=None):
        endpoint = f"{at or name}:{jobs.PORT}"
        return self.distrun(self.cluster[name], *options, nnodes=nnodes, worker=self.reporting(self.job), endpoint=endpoint)

    # -- agents alone --

    backend = "etcd"

    def elect(self, name, *options, nnodes, endpoint=None, env=None):
        argv = [jobs.BIN / "distrun", "--nnodes", nnodes, "--rdzv-backend", self.backend, "--rdzv-id", "job",
                "--rdzv-endpoint", endpoint or self.etcd.endpoints(), "--shutdown-timeout", 5, *options,
                *self.reporting(self.job)]  # fmt: skip
        return self.cluster[name].start(argv, env=env)

    # -- what must hold --

    def assert_workers_go_on(self, lines):
        """None was started or stopped since: those of this round still run."""
        self.assertEqual(self.job.lines(), sorted(lines, key=self.job.lines().index), f"there were\n{self.job}")
        for line in lines:
            self.assertIn(line.pid, self.cluster[line.host].pids(), f"{line} is gone")

    def leader(self, prefix=PREFIX):
        """Its address; None: nobody leads."""
        value = self.etcd.keys(prefix + "/leader").get(prefix + "/leader")
        return value and value.split(":")[0]

    def assert_one_wrote_at_a_time(self, prefix=PREFIX):
        """Of all that was ever written: only who held the leader's key wrote, and never who had lost it."""
        lease = None  # the leader's
        led = []
        changes = self.etcd.history(prefix)
        for change in changes:
            if change.key == prefix + "/leader":
                lease = change.lease if change.value is not None else None
                if lease:
                    led.append(lease)
            elif change.value is not None:
                self.assertIsNotNone(lease, f"{change} was written while nobody led")
                if change.key == prefix + "/sequence":
                    self.assertEqual(change.value.split(":")[0], str(lease), "who does not lead has written")
        self.assertEqual(len(led), len(set(led)), "a lease led twice")
        return len(led)


main = jobs.main
