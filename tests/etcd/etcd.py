"""A real etcd on one simulated host: three members, each its own process and ports; and what was in it, change by change.

    etcd = Cluster(lab["h4"])            # 10.77.0.4, ports 2379, 2381, 2383
    etcd.url("/distrun")                 # etcd://10.77.0.4:2379,10.77.0.4:2381,10.77.0.4:2383/distrun
    etcd.kill(1); etcd.start(1)          # a member
    etcd.keys("/distrun")                # {key: value}, as they are now
    etcd.history("/distrun")             # every change since the beginning

Its files are below the lab's folder, in memory. Needs Debian's etcd-server; its absence is told by hosts.Unavailable.
"""

import base64
import collections
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time

import hosts
from hosts import wait_until

# `value` None: deleted. `lease` 0: none.
Change = collections.namedtuple("Change", "revision key value lease")


def _bytes(text):
    return base64.b64encode(text.encode()).decode()


def _text(bytes64):
    return base64.b64decode(bytes64).decode()


class Cluster:
    """`tls`: a Certificates; members then speak TLS to clients, and with `mutual` want a client's certificate, too.
    `pace`: milliseconds of a heartbeat and of an election's timeout; the default ones are 100 and 1000."""

    def __init__(self, host, *, members=3, tls=None, mutual=False, pace=(50, 300)):
        if shutil.which("etcd") is None:
            raise hosts.Unavailable("no etcd (package etcd-server)")
        self.host, self.tls, self.mutual, self.pace = host, tls, mutual, pace
        self.ports = [2379 + 2 * i for i in range(members)]
        self.token = None
        self._processes = [None] * members
        for i in range(members):
            self.start(i)
        wait_until(self.healthy, 60, lambda: f"etcd is healthy: {self._logs()}")

    def start(self, i):
        """Also again: with the files that it had."""
        name, scheme = f"etcd{i}", "https" if self.tls else "http"
        folder = hosts.FOLDER / name
        peers = [f"http://{self.host.address}:{port + 1}" for port in self.ports]
        argv = ["etcd", f"--name={name}", f"--data-dir={folder}",
                f"--listen-client-urls={scheme}://{self.host.address}:{self.ports[i]}",
                f"--advertise-client-urls={scheme}://{self.host.address}:{self.ports[i]}",
                f"--listen-peer-urls={peers[i]}", f"--initial-advertise-peer-urls={peers[i]}",
                "--initial-cluster=" + ",".join(f"etcd{k}={peer}" for k, peer in enumerate(peers)),
                f"--heartbeat-interval={self.pace[0]}", f"--election-timeout={self.pace[1]}",
                "--logger=zap", "--log-outputs=stderr", "--log-level=error"]  # fmt: skip
        if self.tls:
            argv += [f"--cert-file={self.tls.path('server.crt')}", f"--key-file={self.tls.path('server.key')}"]
        if self.mutual:
            argv += ["--client-cert-auth", f"--trusted-ca-file={self.tls.path('ca.crt')}"]
        self._processes[i] = self.host.start(argv, name=f"{name}.{time.monotonic_ns()}")

    def kill(self, *members):
        for i in members:
            self._processes[i].signal(signal.SIGKILL)
        for i in members:
            self._processes[i].wait(30)

    def leader(self):
        """The member that leads the others."""

        def found():
            for i, port in enumerate(self.ports):
                answer = self._ask("/v3/maintenance/status", {}, port)
                if answer and answer["leader"] == answer["header"]["member_id"]:
                    return [i]
            return None

        return wait_until(found, 20, lambda: f"a member leads: {self._logs()}")[0]

    def endpoints(self):
        return ",".join(f"{self.host.address}:{port}" for port in self.ports)

    def url(self, prefix="/distrun", user=""):
        return f"{'etcds' if self.tls else 'etcd'}://{user}{self.endpoints()}{prefix}"

    def healthy(self):
        return self._any("/v3/kv/range", {"key": _bytes("health")}) is not None

    # -- what is in it --

    def keys(self, prefix):
        answer = self._soon("/v3/kv/range", {"key": _bytes(prefix), "range_end": _bytes(prefix[:-1] + chr(ord(prefix[-1]) + 1))})
        return {_text(entry["key"]): _text(entry.get("value", "")) for entry in answer.get("kvs", [])}

    def put(self, key, value):
        self._soon("/v3/kv/put", {"key": _bytes(key), "value": _bytes(value)})

    def history(self, prefix):
        """Every Change below it, from the first on."""
        now = int(self._soon("/v3/kv/range", {"key": _bytes(prefix)})["header"]["revision"])
        # A watch has no end of its own: one last change says that all came.
        self._soon("/v3/kv/put", {"key": _bytes(prefix + "/end-of-history"), "value": _bytes(str(now))})
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        request = {"create_request": {"key": _bytes(prefix), "range_end": _bytes(end), "start_revision": "1"}}
        changes = []
        connection = self._connect(self._answering())
        connection.request("POST", "/v3/watch", json.dumps(request), self._headers())
        stream = connection.getresponse()
        while True:
            for event in json.loads(stream.readline())["result"].get("events", []):
                entry = event["kv"]
                key, gone = _text(entry["key"]), event.get("type") == "DELETE"
                if key.endswith("/end-of-history"):
                    if _text(entry.get("value", "")) != str(now):
                        continue
                    connection.close()
                    self._soon("/v3/kv/deleterange", {"key": event["kv"]["key"]})
                    return changes
                value = None if gone else _text(entry.get("value", ""))
                changes.append(Change(int(entry["mod_revision"]), key, value, int(entry.get("lease", 0))))

    # -- users --

    def demand_password(self, user, password, prefix):
        """From now on only `user` reads and writes below `prefix`; we stay root."""
        for path, body in (
            ("user/add", {"name": "root", "password": "root"}), ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": user, "password": password}), ("role/add", {"name": "job"}),
            ("role/grant", {"name": "job", "perm": {"permType": "READWRITE", "key": _bytes(prefix), "range_end": _bytes(prefix[:-1] + chr(ord(prefix[-1]) + 1))}}),
            ("user/grant", {"user": user, "role": "job"}), ("auth/enable", {})):  # fmt: skip
            path = f"/v3/{path}" if path.startswith("auth/") else f"/v3/auth/{path}"
            if self._any(path, body) is None:
                raise AssertionError(f"{path} {body}: {self._logs()}")
        self.token = self._any("/v3/auth/authenticate", {"name": "root", "password": "root"})["token"]

    # -- asking --

    def _headers(self):
        return {"Authorization": self.token} if self.token else {}

    def _connect(self, port):
        with _in_network_of(self.host):
            raw = socket.create_connection((self.host.address, port), 10)
        raw.settimeout(20)
        if self.tls:
            raw = self.tls.client_context().wrap_socket(raw, server_hostname=self.host.address)
        connection = http.client.HTTPConnection(self.host.address, port)
        connection.sock = raw
        return connection

    def _ask(self, path, body, port):
        try:
            connection = self._connect(port)
            connection.request("POST", path, json.dumps(body), self._headers())
            response = connection.getresponse()
            text = response.read()
            connection.close()
            return json.loads(text) if response.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None

    def _any(self, path, body):
        for port in self.ports:
            answer = self._ask(path, body, port)
            if answer is not None:
                return answer
        return None

    def _soon(self, path, body):
        """As _any, but members that were held up may just now elect their leader."""
        return wait_until(lambda: self._any(path, body), 20, lambda: f"{path}: {self._logs()}")

    def _answering(self):
        def port():
            return next((port for port in self.ports if self._ask("/v3/kv/range", {"key": _bytes("health")}, port)), None)

        return wait_until(port, 20, lambda: f"a member answers: {self._logs()}")

    def _logs(self):
        return "\n".join(process.text()[-1000:] for process in self._processes if process)


class _in_network_of:
    """Sockets made within belong to that host's network."""

    def __init__(self, host):
        self._host = host

    def __enter__(self):
        self._own = os.open("/proc/self/ns/net", os.O_RDONLY)
        _setns(self._host._network)

    def __exit__(self, *_):
        _setns(self._own)
        os.close(self._own)


def _setns(descriptor):
    if hosts._libc.setns(descriptor, hosts.CLONE_NEWNET) != 0:
        raise OSError("setns")


class Certificates:
    """A CA, a server's certificate for `address`, and a client's, made by openssl below the lab's folder."""

    def __init__(self, address, name="tls"):
        if shutil.which("openssl") is None:
            raise hosts.Unavailable("no openssl (package openssl)")
        self._folder = hosts.FOLDER / name
        self._folder.mkdir()
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                      "-subj", f"/CN={name} CA", "-keyout", "ca.key", "-out", "ca.crt")  # fmt: skip
        # etcd's gateway comes to its own server, as a client with the server's certificate.
        for who, use in (("server", "serverAuth,clientAuth"), ("client", "clientAuth")):
            (self._folder / "extensions").write_text(f"subjectAltName=IP:{address}\nextendedKeyUsage={use}\n")
            self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                          "-subj", f"/CN={who}", "-keyout", f"{who}.key", "-out", f"{who}.csr")  # fmt: skip
            self._openssl("x509", "-req", "-in", f"{who}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                          "-days", "2", "-extfile", "extensions", "-out", f"{who}.crt")  # fmt: skip

    def path(self, name):
        return self._folder / name

    def client_context(self):
        context = ssl.create_default_context(cafile=self.path("ca.crt"))
        context.load_cert_chain(self.path("client.crt"), self.path("client.key"))
        return context

    def _openssl(self, *words):
        done = subprocess.run(["openssl", *words], cwd=self._folder, capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            raise AssertionError(f"openssl {' '.join(words)}: {done.stderr}")
