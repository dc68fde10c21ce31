"""Networks as they are: slow, lossy, with names that nobody knows, cards that lead nowhere, IPv6 alone. Real workers, with collectives
over all hosts."""

import re

import jobs
from jobs import BIN, PORT

DATA = jobs.ROOT / "tests" / "data" / "digits" / "digits.csv"


class NetworkCase(jobs.ClusterTest):
    def digits(self, steps):
        return [BIN / "digits", "--data", DATA, "--steps", steps, "--report-every", steps]


class NetworkTest(NetworkCase):
    def assert_trains(self, lab, endpoint=f"h1:{PORT}", steps=20, seconds=60):
        """One worker on each host; the same result as of as many on one host."""
        agents = self.everywhere(lab, endpoint=endpoint, worker=self.digits(steps))
        self.assert_all_end_with(0, agents, seconds)
        alone = lab["h2"].run([BIN / "distrun", "--nproc-per-node", len(lab), *self.digits(steps)], seconds=60)
        results = re.findall(r"accuracy \S+ loss \S+", "".join(agent.out() for agent in agents.values()))
        self.assertEqual(results, re.findall(r"accuracy \S+ loss \S+", alone))

    def master_addresses(self, lab, endpoint=f"h1:{PORT}"):
        job = self.reports()
        agents = self.everywhere(lab, endpoint=endpoint, worker=self.reporting(job))
        lines = job.wait_round(" ".join(agents))
        self.end_well(job, agents)
        return {line.master_addr for line in lines}

    def test_with_50_ms_delay_and_2_percent_loss(self):
        lab = self.lab(4, cable=jobs.TOOLS / "cable")
        for host in lab:
            host.impair(delay_ms=25, loss=0.01)  # each way passes two cables
        agents = self.everywhere(lab, worker=self.digits(10))
        self.assert_all_end_with(0, agents, 60)
        self.assertNotRegex("".join(agent.err() for agent in agents.values()), "lost|restart")

    def test_where_nobody_resolves_hostnames(self):
        self.assert_trains(self.lab(4, names="none"), endpoint=f"10.77.0.1:{PORT}")

    def test_where_a_hosts_own_name_is_loopback(self):
        lab = self.lab(3, names="loopback")
        self.assertEqual(self.master_addresses(lab), {lab["h1"].ipv4})

    def test_where_a_second_card_leads_nowhere(self):
        self.assert_trains(self.lab(3, dead_nic=True))

    def test_over_ipv6_alone_with_a_name(self):
        self.assert_trains(self.lab(3, family=6))

    def test_over_ipv6_alone_with_an_address_in_brackets(self):
        lab = self.lab(2, family=6)
        self.assertEqual(self.master_addresses(lab, f"[{lab['h1'].ipv6}]:{PORT}"), {lab["h1"].ipv6})

    def test_where_names_have_addresses_of_both_families(self):
        self.assertEqual(len(self.master_addresses(self.lab(3, family=46))), 1)


class DigitsTest(NetworkCase):
    """The main job over four hosts: whatever happens on the way, the same numbers to the last digit."""

    STEPS = 200

    def setUp(self):
        super().setUp()
        self.cluster = self.lab(4)
        self.checkpoint = jobs.hosts.FOLDER / f"{self._testMethodName}.ckpt"  # hosts share a file system
        alone = self.cluster["h1"].run([BIN / "distrun", "--nproc-per-node", 4, *self.digits(self.STEPS)], seconds=60)
        self.expected = re.findall(r"accuracy.*", alone)

    def worker(self, *options):
        return [*self.digits(self.STEPS), "--checkpoint", self.checkpoint, "--checkpoint-every", 20, "--step-sleep-ms", 5, *options]

    def assert_result(self, agents):
        self.assert_all_end_with(0, agents, 60)
        out = "".join(agent.out() for agent in agents.values())
        self.assertIn("resumed from step", out)
        self.assertEqual(re.findall(r"accuracy.*", out), self.expected)

    def test_a_worker_is_killed_on_the_way(self):
        agents = self.everywhere(
            self.cluster, "--max-restarts", 1, worker=self.worker("--die-at-step", 110, "--die-rank", 2)
        )
        self.assert_result(agents)

    def test_a_host_is_lost_on_the_way_and_a_spare_takes_its_place(self):
        pace = jobs.Pace(200)
        worker = pace.worker([*self.digits(self.STEPS), "--checkpoint", self.checkpoint, "--checkpoint-every", 20])
        agents = self.everywhere(self.cluster, worker=worker)
        jobs.wait_until(self.checkpoint.exists, 60, "the first checkpoint")
        pace.set(0)
        self.cluster["h3"].crash()
        self.cluster["h3"].restart()
        agents["h3"] = self.distrun(self.cluster["h3"], nnodes=4, worker=worker)
        self.assert_result(agents)


if __name__ == "__main__":
    jobs.main()
