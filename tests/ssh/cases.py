"""The frame of these tests: an sshd on each host of a lab, distrun started on one of them, and a promise: nothing is left."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))

import hosts
import jobs
import ssh_hosts
from hosts import wait_until

DISTRUN = jobs.BIN / "distrun"


class SshTest(jobs.ClusterTest):
    def ssh(self, count, **options):
        lab = self.lab(count, **options)
        try:
            self.sshd = ssh_hosts.Ssh(lab)
        except hosts.Unavailable as why:
            self.skipTest(str(why))
        return lab

    def start(self, on, where, *options, worker, ssh=None, name="starter", env=None, folder=None):
        """`distrun --hosts where …`, started on that host."""
        argv = [DISTRUN, "--hosts", where, "--ssh-command", ssh or self.sshd.command, "--shutdown-timeout", 20, *options, *worker]
        if folder is not None:
            argv = ["sh", "-c", 'cd "$0" && exec "$@"', folder, *argv]
        return self._lab[on].start(argv, name=name, env=env)

    def left(self):
        """What runs on the hosts but their own init, sshd and what the test itself started."""
        found = []
        for host in self._lab:
            if host._init is None:  # killed by the test
                continue
            for pid in host._members():
                try:
                    words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                except (FileNotFoundError, ProcessLookupError):
                    continue
                line = " ".join(words)
                own = "sshd" in line or line.startswith(("sleep 86400", "bash -c")) or not line.strip()
                if not own and hosts.alive(pid):
                    found.append(f"{host.name}: {line[:200]}")
        return found

    def assert_nothing_is_left(self, seconds=40):
        wait_until(lambda: not self.left(), seconds, lambda: f"nothing is left: {self.left()}")


main = jobs.main
