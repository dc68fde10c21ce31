"""A real sshd on each simulated host, and a user's key, known hosts and configuration: all below the test's own /run.

    ssh = ssh_hosts.Ssh(lab)           # h1 to hN answer; ssh.command is what --ssh-command wants
    ssh.stop("h2")                     # its sshd is gone: connections are refused
"""

import os
import pathlib
import shutil
import subprocess

import hosts

SSHD = shutil.which("sshd", path="/usr/sbin:/sbin:" + os.environ["PATH"])


def _run(*command):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr}")


class Ssh:
    def __init__(self, lab):
        if SSHD is None or shutil.which("ssh") is None:
            raise hosts.Unavailable("no sshd or no ssh (packages openssh-server, openssh-client)")
        if pathlib.Path("/proc/self/uid_map").read_text().split()[1] != "0":
            raise hosts.Unavailable("sshd needs real root")
        self.lab = lab
        self.folder = hosts.FOLDER / "ssh"
        self.folder.mkdir(mode=0o700)
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # where sshd's unprivileged half lives
        for name in ("host_key", "user_key", "other_key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", self.folder / name)
        (self.folder / "authorized_keys").write_text((self.folder / "user_key.pub").read_text())
        self.server_config = self.folder / "sshd_config"
        self.server_config.write_text(
            f"Port 22\nHostKey {self.folder}/host_key\nAuthorizedKeysFile {self.folder}/authorized_keys\n"
            "PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nUseDNS no\n"
            "StrictModes no\nPidFile none\nPrintMotd no\nMaxStartups 100\n"
        )
        key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        (self.folder / "known_hosts").write_text("".join(f"{h.name},{h.address} {key}\n" for h in lab))
        self.command = self.client()
        self._servers = {}
        for host in lab:
            self.start(host.name)

    def client(self, name="config", *, key="user_key", known="known_hosts", more=""):
        """An ssh command with a configuration of its own."""
        config = self.folder / name
        config.write_text(
            f"Host *\n  User root\n  IdentityFile {self.folder}/{key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.folder}/{known}\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n{more}"
        )
        return f"ssh -F {config}"

    def start(self, name):
        host = self.lab[name]
        server = host.start([SSHD, "-D", "-e", "-f", self.server_config], name=f"sshd.{name}.{len(self.lab.processes)}")
        self._servers[name] = server
        hosts.wait_until(lambda: "listening on" in server.err() or server.poll() is not None, 30, f"sshd of {name} listens")
        if server.poll() is not None:
            raise hosts.Unavailable(f"sshd does not start: {server.err().strip()}")

    def stop(self, name):
        server = self._servers.pop(name)
        server.signal(15)
        server.wait(30)
