"""A node is lost in every way there is; the others go on within seconds, and it may come back."""

import signal
import time

import jobs
from jobs import kill_agent, ranks


class LossTest(jobs.ClusterTest):
    def start(self, nnodes, count=4, running=4, **lab):
        """A job of reporting workers that runs on h1 to h`running`."""
        self.cluster = self.lab(count, **lab)
        self.job = self.reports()
        self.nnodes = nnodes
        self.agents = {host.name: self.join(host.name) for host in list(self.cluster)[:running]}
        self.first = self.job.wait_round(" ".join(self.agents))
        self.assertEqual(ranks(self.first), {f"h{i}": i - 1 for i in range(1, running + 1)})

    def join(self, name):
        worker = self.reporting(self.job)
        return self.distrun(self.cluster[name], nnodes=self.nnodes, worker=worker)

    def worker_of(self, name, lines=None):
        return next(line for line in lines or self.first if line.host == name)

    def assert_survivors_go_on(self, seconds=40):
        """h1 to h3, each with the rank it had, and no restart spent."""
        lines = self.job.wait_round("h1 h2 h3", after=self.first, seconds=seconds)
        self.assertEqual(ranks(lines), {"h1": 0, "h2": 1, "h3": 2})
        self.assertEqual({line.restart_count for line in lines}, {0})
        for name in ("h1", "h2", "h3"):
            self.assert_gone(self.worker_of(name))
        return lines

    def test_a_host_that_is_cut_off_is_given_up_and_taken_back(self):
        self.start("3:4")
        self.cluster["h4"].cut()
        second = self.assert_survivors_go_on()
        self.cluster["h4"].heal()
        self.job.wait_round("h1 h2 h3 h4", after=second)
        self.assert_gone(self.worker_of("h4"))
        self.end_well(self.job, self.agents)

    def test_a_host_that_is_killed_is_given_up_and_taken_back(self):
        self.start("3:4")
        self.cluster["h4"].kill()
        second = self.assert_survivors_go_on()
        self.cluster["h4"].restart()
        self.agents["h4"] = self.join("h4")
        self.job.wait_round("h1 h2 h3 h4", after=second)
        self.end_well(self.job, self.agents)

    def test_a_host_that_loses_power_is_given_up_and_taken_back(self):
        self.start("3:4")
        self.cluster["h4"].crash()
        second = self.assert_survivors_go_on()
        self.cluster["h4"].restart()
        self.agents["h4"] = self.join("h4")
        self.job.wait_round("h1 h2 h3 h4", after=second)
        self.end_well(self.job, self.agents)

    def test_a_frozen_host_is_given_up_and_taken_back(self):
        self.start("3:4")
        self.cluster["h4"].freeze()
        second = self.assert_survivors_go_on()
        self.cluster["h4"].thaw()
        self.job.wait_round("h1 h2 h3 h4", after=second)
        self.assert_gone(self.worker_of("h4"))
        self.end_well(self.job, self.agents)

    def test_an_agent_that_is_killed_takes_its_worker_along_and_can_be_started_again(self):
        self.start("4")
        kill_agent(self.agents["h3"])
        self.assert_gone(self.worker_of("h3"))
        self.agents["h3"] = self.join("h3")
        second = self.job.wait_round("h1 h2 h3 h4", after=self.first)
        self.assertEqual(ranks(second), ranks(self.first))
        self.end_well(self.job, self.agents)

    def test_an_agent_that_is_continued_after_its_replacement_joined_disturbs_nobody(self):
        self.start("4", count=5)
        stopped = self.agents["h3"].tree()[:2]  # guard and agent; its worker runs on
        self.agents["h3"].signal(signal.SIGSTOP, stopped)
        self.agents["h5"] = self.join("h5")
        second = self.job.wait_round("h1 h2 h4 h5", after=self.first)
        self.assertEqual(ranks(second)["h5"], ranks(self.first)["h3"])
        self.agents["h3"].signal(signal.SIGCONT, stopped)
        self.assert_gone(self.worker_of("h3"))
        time.sleep(2)  # for what it must not do
        self.assertEqual(self.job.complete()[-1], second, "it disturbed the round")
        self.end_well(self.job, self.agents)

    def test_a_node_that_hears_but_is_not_heard_is_given_up_and_taken_back(self):
        self.start("3:4")
        for other in ("h1", "h2", "h3"):
            self.cluster["h4"].drop_to(self.cluster[other])
        second = self.assert_survivors_go_on()
        for other in ("h1", "h2", "h3"):
            self.cluster["h4"].undrop_to(self.cluster[other])
        self.job.wait_round("h1 h2 h3 h4", after=second)
        self.end_well(self.job, self.agents)

    def test_a_node_that_is_heard_but_does_not_hear_its_coordinator_begins_no_second_job(self):
        self.start("3:4")
        self.cluster["h1"].drop_to(self.cluster["h4"])
        second = self.assert_survivors_go_on()
        time.sleep(4)  # h4 reaches h2 and h3, the successors
        self.assertEqual(self.job.complete()[-1], second)
        self.cluster["h1"].undrop_to(self.cluster["h4"])
        self.job.wait_round("h1 h2 h3 h4", after=second)
        self.end_well(self.job, self.agents)

    def test_who_dies_while_waiting_is_not_counted(self):
        self.cluster, self.job, self.nnodes = self.lab(4), self.reports(), "3"
        self.agents = {"h1": self.join("h1")}
        self.wait_for_text(self.agents["h1"], r"1 of 3 nodes \(h1\)")
        self.agents["h2"] = self.join("h2")
        self.wait_for_text(self.agents["h1"], r"2 of 3 nodes \(h1, h2\)")
        self.cluster["h2"].crash()
        self.agents.pop("h2")
        self.agents["h3"] = self.join("h3")
        self.wait_for_text(self.agents["h1"], r"2 of 3 nodes \(h1, h3\)")
        self.assertEqual(self.job.complete(), [])
        self.agents["h4"] = self.join("h4")
        self.job.wait_round("h1 h3 h4")
        self.end_well(self.job, self.agents)


if __name__ == "__main__":
    jobs.main()
