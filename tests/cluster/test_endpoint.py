"""Who else comes to the rendezvous' port: other jobs, other flags, and clients that are no agents."""

import sys
import time

import jobs
from jobs import PORT, ranks

# Connects once for each argument, sends it (hex), and holds the connections for ever.
CLIENT = """
import socket, sys, time
held = []
for what in sys.argv[2:]:
    peer = socket.create_connection((sys.argv[1], 29400), 5)
    try:
        peer.sendall(bytes.fromhex(what))
    except OSError:
        pass
    held.append(peer)
print("sent", flush=True)
time.sleep(1000)
"""
HOSTILE = {
    "silence": b"",
    "garbage": bytes(range(255, 0, -1)) * 100,
    "a request of 2 GiB": b"\x01" + b"\xff\xff\xff\x7f" + b"\0" * 20,
    "half a hello of the store": b"\x00\xce\xf7",
    "half of an HTTP request": b"GET /status HTT",
    "an endless HTTP header": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 8000,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "ssh": b"SSH-2.0-OpenSSH_9.2p1\r\n",
}


class EndpointTest(jobs.ClusterTest):
    def test_two_jobs_at_one_daemon_do_not_know_of_each_other(self):
        lab = self.lab(5)
        self.daemon(lab["h5"])
        jobs_ = {}
        for name, on in (("blue", ("h1", "h2")), ("green", ("h3", "h4"))):
            reports = self.reports(name)
            agents = {
                host: self.distrun(lab[host], "--max-restarts", 1, nnodes=2, job=name, endpoint=f"h5:{PORT}",
                                   worker=self.reporting(reports))
                for host in on
            }  # fmt: skip
            jobs_[name] = (reports, agents)
        blue, green = jobs_["blue"], jobs_["green"]
        first = blue[0].wait_round("h1 h2")
        other = green[0].wait_round("h3 h4")
        blue[0].die(1)
        blue[0].wait_round("h1 h2", after=first)
        self.end_well(*blue)
        self.assertEqual(green[0].complete(), [other])
        self.end_well(*green)

    def test_another_job_at_an_agents_coordinator_is_refused_in_words(self):
        lab, reports = self.lab(3), self.reports()
        agents = {name: self.distrun(lab[name], nnodes=2, worker=self.reporting(reports)) for name in ("h1", "h2")}
        first = reports.wait_round("h1 h2")
        guest = self.distrun(lab["h3"], nnodes=2, job="another", worker=self.reporting(reports))
        self.assertEqual(guest.wait(30), 77)
        self.assertIn("another", guest.err())
        self.assertEqual(reports.complete(), [first])
        self.end_well(reports, agents)

    def test_other_flags_are_refused_in_words_and_harm_nobody(self):
        lab, reports = self.lab(3), self.reports()
        agents = {name: self.distrun(lab[name], nnodes=2, worker=self.reporting(reports)) for name in ("h1", "h2")}
        first = reports.wait_round("h1 h2")
        for nnodes, options in (("3", ()), ("2", ("--max-restarts", 7))):
            guest = self.distrun(lab["h3"], *options, nnodes=nnodes, worker=self.reporting(reports))
            self.assertEqual(guest.wait(30), 77)
            self.assertIn("nnodes" if nnodes == "3" else "max-restarts", guest.err())
        self.assertEqual(reports.complete(), [first])
        self.end_well(reports, agents)

    def test_garbage_silence_and_half_open_connections_disturb_no_job(self):
        lab, reports = self.lab(4), self.reports()
        agents = {
            name: self.distrun(lab[name], "--rdzv-conf", "last_call_timeout=1", nnodes="2:3", worker=self.reporting(reports))
            for name in ("h1", "h2")
        }
        first = reports.wait_round("h1 h2")
        clients = [
            lab["h4"].start([sys.executable, "-I", "-S", "-c", CLIENT, lab["h1"].address, *[what.hex() for what in HOSTILE.values()] * 5])
            for _ in range(3)
        ]
        for client in clients:
            jobs.wait_until(client.out, 30, client.text)
        time.sleep(4)
        self.assertEqual(reports.complete(), [first])
        lab["h4"].crash()  # and so all of its connections are half open
        agents["h3"] = self.distrun(lab["h3"], "--rdzv-conf", "last_call_timeout=1", nnodes="2:3", worker=self.reporting(reports))
        second = reports.wait_round("h1 h2 h3", after=first)
        self.assertEqual(ranks(second)["h1"], 0)
        self.end_well(reports, agents)

    def test_an_endpoint_where_something_else_answers_is_told_in_words(self):
        lab = self.lab(2)
        code = "import socket; s = socket.create_server(('', 29400))\nwhile True: c = s.accept()[0]; c.sendall(b'SSH-2.0-x\\r\\n'); c.close()"
        lab["h1"].start([sys.executable, "-I", "-S", "-c", code])
        jobs.wait_until(lambda: lab["h2"].connects_to(lab["h1"], PORT), 30, "it answers")
        agent = self.distrun(lab["h2"], "--start-timeout", 5, nnodes=2, worker=["true"])
        self.assertNotIn(agent.wait(40), (0, 1))
        self.assertIn(f"h1:{PORT}", agent.err())

    def test_an_endpoint_where_nobody_answers_is_told_in_words(self):
        lab = self.lab(2)
        agent = self.distrun(lab["h2"], "--start-timeout", 3, nnodes=2, worker=["true"])
        self.assertEqual(agent.wait(40), 75)
        self.assertRegex(agent.err(), f"h1:{PORT}.*refused")

    def test_an_interrupt_while_waiting_ends_it_within_a_second(self):
        lab = self.lab(2)
        times = []
        while len(times) < 8 and min(times, default=1) >= 1:  # the machine may be busy elsewhere for a while
            agent = self.distrun(lab["h2"], nnodes=2, worker=["true"])
            self.wait_for_text(agent, f"h1:{PORT}")
            began = time.monotonic()
            agent.signal(jobs.signal.SIGINT)
            self.assertEqual(agent.wait(20), 130)
            times.append(time.monotonic() - began)
        self.assertLess(min(times), 1)


if __name__ == "__main__":
    jobs.main()
