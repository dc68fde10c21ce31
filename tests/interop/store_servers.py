"""The servers that the store suites talk to: PyTorch's own two, one that a command starts, or a running one.

A server is made fresh for every behaviour, so that counting keys means something; only a server named by its
address is shared by all of them.
"""

import datetime
import re
import shlex
import subprocess
import threading
import time

LISTENING = re.compile(r"listening on (\S+):(\d+)")


class OwnServer:
    """PyTorch's server, in this process."""

    def __init__(self, dist, backend):
        options = {"use_libuv": backend == "libuv"} if hasattr(dist.TCPStore, "libuvBackend") else {}
        self.host = "127.0.0.1"
        self.store = dist.TCPStore(
            self.host, 0, None, True, datetime.timedelta(seconds=30), wait_for_workers=False, **options
        )
        self.port = self.store.port

    def close(self):
        self.store = None


class CommandServer:
    """A server that a command starts; it says "listening on ADDR:PORT" on stdout or stderr."""

    def __init__(self, command, patience_s=20):
        self.process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = []
        self.closed = False
        self._where = None
        self._said = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()
        if not self._said.wait(patience_s) or self._where is None:
            self.process.kill()
            raise RuntimeError(f"{command}: did not say where it listens; it said: {''.join(self.output)!r}")
        self.host, self.port = self._where

    def _listen(self):
        for line in self.process.stdout:
            self.output.append(line)
            found = LISTENING.search(line)
            if found and self._where is None:
                self._where = found.group(1).strip("[]"), int(found.group(2))
                self._said.set()
        self._said.set()

    def close(self):
        """Ends the server; an exit status that tells of a crash (a sanitizer's, a signal) is an error."""
        if self.closed:
            return
        self.closed = True
        crashed = self.process.poll()
        if crashed is None:
            self.process.terminate()
            try:
                status = self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise RuntimeError("the server was still there 10 s after SIGTERM") from None
            if status not in (0, -15, 143):
                crashed = status
        if crashed is not None:
            time.sleep(0.1)
            raise RuntimeError(f"the server ended with status {crashed}: {''.join(self.output)[-3000:]}")


class GivenServer:
    """A server that runs already, shared by all behaviours."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.host, self.port = host.strip("[]"), int(port)

    def close(self):
        pass
