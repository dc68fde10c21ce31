"""That simulated hosts are what they claim to be; the other tests here rely on it."""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import hosts
import jobs

ECHO = """
import socket, sys
server = socket.create_server(("::", 9000), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    peer = server.accept()[0]
    while data := peer.recv(4096):
        peer.sendall(data)
"""

# One line after each answer: what was sent, and how long it took.
PING = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], 9000), 5)
peer.settimeout(20)
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
number = 0
while True:
    began = time.monotonic()
    try:
        peer.sendall(b"%d\\n" % number)
        if not peer.recv(100):
            raise ConnectionResetError("closed")
    except OSError as error:
        print("lost", type(error).__name__, flush=True)
        break
    print(number, time.monotonic() - began, flush=True)
    number += 1
    time.sleep(0.01)
"""


def python(code, *arguments):
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


class Hosts(jobs.ClusterTest):
    def echo(self, host):
        process = host.start(python(ECHO))
        hosts.wait_until(lambda: process.out(), 30, "the echo server listens")
        return process

    def ping(self, host, other):
        """A client on `host` that asks `other` again and again over one connection."""
        process = host.start(python(PING, other.address))
        self.next_answer(process)
        return process

    def next_answer(self, client, seconds=30):
        before = len(client.out().splitlines())
        hosts.wait_until(lambda: len(client.out().splitlines()) > before + 1, seconds, client.text)

    def assert_silence(self, client, seconds=0.5):
        """It hears nothing any more, but for what was on its way."""

        def nothing_new():
            before = client.out()
            time.sleep(seconds)
            return client.out() == before

        hosts.wait_until(nothing_new, 20, client.text)
        self.assertIsNone(client.poll())

    def test_each_has_its_own_name_addresses_and_processes(self):
        lab = self.lab(2)
        for host in lab:
            self.assertEqual(host.run(["hostname"]).strip(), host.name)
            self.assertEqual(host.run(["cat", "/etc/hostname"]).strip(), host.name)
            self.assertIn(f"{host.ipv4}/24", host.run(["ip", "-4", "addr", "show", "eth0"]))
            self.assertEqual(host.run(["getent", "ahostsv4", "h2"]).split()[0], lab["h2"].ipv4)
            self.assertEqual(host.run(["cat", "/proc/1/comm"]).strip(), "bash")

    def test_hosts_reach_each_other_and_nothing_else(self):
        lab = self.lab(2)
        self.echo(lab["h2"])
        self.assertTrue(lab["h1"].connects_to(lab["h2"], 9000))
        routes = lab["h1"].run(["ip", "route"])
        self.assertNotIn("default", routes)

    def test_a_port_that_nobody_listens_on_refuses(self):
        lab = self.lab(2)
        began = time.monotonic()
        self.assertFalse(lab["h1"].connects_to(lab["h2"], 9000, 30))
        self.assertLess(time.monotonic() - began, 20)

    def test_a_cut_is_silence_and_what_was_connected_goes_on_when_it_heals(self):
        lab = self.lab(2)
        self.echo(lab["h2"])
        client = self.ping(lab["h1"], lab["h2"])
        lab["h2"].cut()
        self.assert_silence(client)
        self.assertFalse(lab["h1"].connects_to(lab["h2"], 9000, 0.3))
        lab["h2"].heal()
        self.next_answer(client)

    def test_a_one_way_cut_loses_one_way_only(self):
        lab = self.lab(2)
        self.echo(lab["h2"])
        client = self.ping(lab["h1"], lab["h2"])
        code = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 9)); print(s.recv(9))"
        listener = lab["h2"].start(python(code))
        hosts.wait_until(lambda: "0009" in lab["h2"].run(["cat", "/proc/net/udp"]), 10, "it listens")
        lab["h2"].drop_to(lab["h1"])
        self.assert_silence(client)
        send = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hello', ('10.77.0.2', 9))"
        lab["h1"].run(python(send))
        self.assertEqual(listener.wait(30), 0)
        lab["h2"].undrop_to(lab["h1"])
        self.next_answer(client)

    def test_killed_means_closed_and_refused(self):
        lab = self.lab(2)
        self.echo(lab["h2"])
        client = self.ping(lab["h1"], lab["h2"])
        lab["h2"].kill()
        self.assertEqual(client.wait(15), 0)  # it waits 20 s for an answer
        began = time.monotonic()
        self.assertFalse(lab["h1"].connects_to(lab["h2"], 9000, 30))
        self.assertLess(time.monotonic() - began, 20)

    def test_crashed_means_silence(self):
        lab = self.lab(2)
        self.echo(lab["h2"])
        client = self.ping(lab["h1"], lab["h2"])
        lab["h2"].crash()
        self.assert_silence(client)

    def test_a_host_comes_back_with_its_name_and_address(self):
        lab = self.lab(2)
        for end in (lab["h2"].crash, lab["h2"].kill, lambda: None):
            end()
            lab["h2"].restart()
            self.assertEqual(lab["h2"].run(["hostname"]).strip(), "h2")
            self.echo(lab["h2"])
            self.assertTrue(lab["h1"].connects_to(lab["h2"], 9000))

    def test_frozen_means_silence_on_a_connection_that_stays(self):
        lab = self.lab(2)
        self.echo(lab["h2"])
        client = self.ping(lab["h1"], lab["h2"])
        lab["h2"].freeze()
        self.assert_silence(client)
        lab["h2"].thaw()
        self.next_answer(client)

    def test_a_cable_delays(self):
        lab = self.lab(2, cable=jobs.TOOLS / "cable")
        self.echo(lab["h2"])
        lab["h2"].impair(delay_ms=50)
        client = self.ping(lab["h1"], lab["h2"])
        times = [float(line.split()[1]) for line in client.out().splitlines()]
        self.assertGreaterEqual(min(times), 0.1)
        client.signal(signal.SIGKILL)  # the server has one client at a time
        lab["h2"].impair()
        client = self.ping(lab["h1"], lab["h2"])
        hosts.wait_until(
            lambda: min(float(line.split()[1]) for line in client.out().splitlines()) < 0.1, 20, client.text)  # fmt: skip

    def test_a_cable_loses(self):
        lab = self.lab(2, cable=jobs.TOOLS / "cable")
        count = """if True:
            import socket
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", 9)); s.settimeout(30)
            print("ready", flush=True)
            count = 0
            while True:
                what, sender = s.recvfrom(9)
                if what == b"end": break
                if what == b"x": count += 1
                else: s.sendto(what, sender)
            print(count)"""
        listener = lab["h2"].start(python(count))
        hosts.wait_until(lambda: listener.out(), 30, listener.text)
        lab["h2"].impair(loss=0.3)
        # Fifty at a time, and on with the next when what was sent behind them came back: no queue on the way runs over,
        # whoever is held up.
        lab["h1"].run(python("""if True:
            import socket, time
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            there = ("10.77.0.2", 9)
            for number in range(20):
                for _ in range(50): s.sendto(b"x", there)
                answer = b""
                while answer != b"%d" % number:
                    s.settimeout(None); s.sendto(b"%d" % number, there)
                    s.settimeout(0.02)
                    try: answer = s.recv(9)
                    except TimeoutError: pass
                s.settimeout(None)
            for _ in range(100): s.sendto(b"end", there); time.sleep(0.01)"""))  # fmt: skip
        self.assertEqual(listener.wait(30), 0)
        self.assertTrue(550 <= int(listener.out().split()[1]) <= 850, listener.out())

    def test_addresses_can_be_of_ipv6_alone(self):
        lab = self.lab(2, family=6)
        self.echo(lab["h2"])
        self.assertTrue(lab["h1"].connects_to(lab["h2"], 9000))
        self.assertNotIn("inet ", lab["h1"].run(["ip", "addr", "show", "eth0"]))

    def test_names_may_be_known_to_nobody(self):
        lab = self.lab(2, names="none")
        lookup = lab["h1"].start(["timeout", "1", "getent", "hosts", "h1"])
        self.assertNotEqual(lookup.wait(30), 0)
        self.assertEqual(lookup.out(), "")

    def test_debians_name_of_a_host_is_loopback(self):
        lab = self.lab(2, names="loopback")
        self.assertEqual(lab["h1"].run(["getent", "ahostsv4", "h1"]).split()[0], "127.0.1.1")
        self.assertEqual(lab["h2"].run(["getent", "ahostsv4", "h1"]).split()[0], lab["h1"].ipv4)

    def test_a_second_card_may_lead_nowhere(self):
        lab = self.lab(2, dead_nic=True)
        self.echo(lab["h2"])
        self.assertTrue(lab["h1"].connects_to(lab["h2"], 9000))
        self.assertIn("default via 172.17", lab["h1"].run(["ip", "route"]))

    def test_exit_statuses_come_out(self):
        lab = self.lab(1)
        self.assertEqual(lab["h1"].start(["sh", "-c", "exit 7"]).wait(30), 7)
        self.assertEqual(lab["h1"].start(["sh", "-c", "kill -9 $$"]).wait(30), 137)

    def test_a_stopped_program_goes_on_when_continued(self):
        lab = self.lab(1)
        go = hosts.FOLDER / "go"
        program = lab["h1"].start(["sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done; exit 7"])
        program.signal(signal.SIGSTOP)
        go.touch()
        time.sleep(0.4)
        self.assertIsNone(program.poll())
        program.signal(signal.SIGCONT)
        self.assertEqual(program.wait(30), 7)


class World(unittest.TestCase):
    """From outside: `enter` in a program of its own."""

    CODE = "import sys, time; sys.path.insert(0, sys.argv[1]); import hosts; hosts.enter(); " \
           "lab = hosts.Lab(2); job = lab['h1'].start(['sleep', sys.argv[2]]); print('up', flush=True); time.sleep(60)"  # fmt: skip

    def start(self, mark):
        here = str(pathlib.Path(__file__).parent)
        program = subprocess.Popen(
            [sys.executable, "-c", self.CODE, here, mark], stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]}
        )  # fmt: skip
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "up\n")
        return program

    def sleepers(self, mark):
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if entry.read_bytes() == b"sleep\0" + mark.encode() + b"\0":
                    found.append(entry)
            except OSError:
                pass
        return found

    def test_nothing_is_left_however_it_ends(self):
        for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            mark = f"54.{os.getpid()}{signo}"
            program = self.start(mark)
            hosts.wait_until(lambda: self.sleepers(mark), 30, "its job sleeps")
            program.send_signal(signo)
            program.wait(30)
            hosts.wait_until(lambda: not self.sleepers(mark), 30, f"all is gone after signal {signo}")

    def test_two_at_once_do_not_meet(self):
        first, second = self.start("55.1"), self.start("55.2")
        self.assertIsNone(first.poll())
        self.assertIsNone(second.poll())

    def test_the_status_of_the_program_comes_out(self):
        for ending, status in (("sys.exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)):
            code = f"import sys; sys.path.insert(0, sys.argv[1]); import hosts; hosts.enter(); {ending}"
            done = subprocess.run([sys.executable, "-c", code, pathlib.Path(__file__).parent], timeout=60)
            self.assertEqual(done.returncode, status)


if __name__ == "__main__":
    jobs.main()
