"""The coordinator dies, is paused, is cut off, comes back: in every phase of a job, as a daemon and within an agent."""

import signal
import time

import hosts
import jobs
from jobs import kill_agent, ranks


class CoordinatorCase(jobs.ClusterTest):
    def join(self, name, *options, nnodes, deaf=False):
        worker = self.reporting(self.job, *(["deaf"] if deaf else []))
        return self.distrun(self.cluster[name], *options, nnodes=nnodes, worker=worker, endpoint=self.endpoint)

    def assert_workers_go_on(self, lines, seconds):
        """For so long no worker was started or stopped: those of this round still run."""
        time.sleep(seconds)
        self.assertEqual(self.job.lines(), sorted(lines, key=self.job.lines().index), f"there were\n{self.job}")
        for line in lines:
            self.assertIn(line.pid, self.cluster[line.host].pids(), f"{line} is gone")


class DaemonTest(CoordinatorCase):
    """distrund on h4, which has no workers."""

    def setUp(self):
        super().setUp()
        self.cluster, self.job, self.endpoint = self.lab(4), self.reports(), f"h4:{jobs.PORT}"
        self.state = hosts.FOLDER / "state"
        self.state.mkdir()
        self.start_daemon()

    def start_daemon(self):
        self.coordinator = self.daemon(self.cluster["h4"], "--state", self.state)

    def kill_daemon(self):
        self.coordinator.signal(signal.SIGKILL)
        self.coordinator.wait(30)

    def run_on(self, names, *options, nnodes, **how):
        self.agents = {name: self.join(name, *options, nnodes=nnodes, **how) for name in names.split()}

    def test_killed_while_the_job_runs_no_worker_notices_and_failures_are_acted_on_again(self):
        self.run_on("h1 h2 h3", "--max-restarts", 1, nnodes="3")
        first = self.job.wait_round("h1 h2 h3")
        self.kill_daemon()
        self.start_daemon()
        self.assert_workers_go_on(first, 3)
        self.job.die(1)
        second = self.job.wait_round("h1 h2 h3", after=first)
        self.assertEqual({line.restart_count for line in second}, {1})
        self.end_well(self.job, self.agents)

    def test_killed_it_remembers_how_many_restarts_were_spent(self):
        self.run_on("h1 h2", "--max-restarts", 1, nnodes="2")
        first = self.job.wait_round("h1 h2")
        self.job.die(1)
        self.job.wait_round("h1 h2", after=first)
        self.kill_daemon()
        self.start_daemon()
        self.job.die(1)
        self.assert_all_end_with(1, self.agents)
        self.assertEqual(len(self.job.complete()), 2)

    def test_a_job_that_is_over_frees_its_id_also_for_other_flags(self):
        self.run_on("h1 h2", nnodes="2")
        first = self.job.wait_round("h1 h2")
        self.end_well(self.job, self.agents)
        (self.job.folder / "finish").unlink()
        self.kill_daemon()
        self.start_daemon()
        self.run_on("h1 h2 h3", nnodes="3")
        self.job.wait_round("h1 h2 h3", after=first)
        self.end_well(self.job, self.agents)

    def test_killed_while_nodes_gather(self):
        self.run_on("h1 h2", nnodes="3")
        self.wait_for_text(self.agents["h1"], "2 of 3 nodes")
        self.kill_daemon()
        time.sleep(0.5)
        self.start_daemon()
        self.agents["h3"] = self.join("h3", nnodes="3")
        self.job.wait_round("h1 h2 h3")
        self.end_well(self.job, self.agents)

    def test_killed_in_the_last_call(self):
        self.run_on("h1 h2", "--rdzv-conf", "last_call_timeout=4", nnodes="2:3")
        self.wait_for_text(self.agents["h1"], "2 of 3 nodes")
        self.kill_daemon()
        self.start_daemon()
        self.job.wait_round("h1 h2")
        self.end_well(self.job, self.agents)

    def test_killed_between_two_rounds(self):
        options = ("--max-restarts", 1, "--shutdown-timeout", 3)
        self.run_on("h1 h2 h3", *options, nnodes="3", deaf=True)
        first = self.job.wait_round("h1 h2 h3")
        self.job.die(1)
        hosts.wait_until(lambda: self.job.lines("died"), 30, "rank 1 dies")
        time.sleep(1)  # the other workers, deaf to SIGTERM, have two more seconds
        self.kill_daemon()
        self.start_daemon()
        second = self.job.wait_round("h1 h2 h3", after=first)
        self.assertEqual({line.restart_count for line in second}, {1})
        self.end_well(self.job, self.agents)

    def test_killed_while_workers_finish(self):
        self.run_on("h1 h2 h3", nnodes="3")
        self.job.wait_round("h1 h2 h3")
        self.kill_daemon()
        self.job.finish()
        hosts.wait_until(lambda: len(self.job.lines("done")) == 3, 30, "all workers finish")
        self.start_daemon()
        self.end_well(self.job, self.agents)

    def test_a_node_that_is_lost_while_it_is_away_is_given_up_when_it_is_back(self):
        self.run_on("h1 h2 h3", nnodes="2:3")
        first = self.job.wait_round("h1 h2 h3")
        self.kill_daemon()
        self.cluster["h3"].crash()
        self.agents.pop("h3")
        self.start_daemon()
        self.job.wait_round("h1 h2", after=first)
        self.end_well(self.job, self.agents)

    def test_paused_for_longer_than_its_patience_it_gives_nobody_up(self):
        self.run_on("h1 h2 h3", nnodes="2:3")
        first = self.job.wait_round("h1 h2 h3")
        self.coordinator.signal(signal.SIGSTOP)
        time.sleep(6)
        self.coordinator.signal(signal.SIGCONT)
        self.assert_workers_go_on(first, 4)
        self.end_well(self.job, self.agents)

    def test_gone_for_good_the_agents_stop_their_workers_and_say_why(self):
        self.run_on("h1 h2", "--rdzv-conf", "reattach_timeout=3", nnodes="2")
        first = self.job.wait_round("h1 h2")
        self.kill_daemon()
        self.assert_all_end_with(69, self.agents)
        for line in first:
            self.assert_gone(line)
        self.assertIn(f"h4:{jobs.PORT}", self.agents["h1"].err())


class AgentHostedTest(CoordinatorCase):
    """The agent on h1 hosts the coordinator, because the endpoint's address is its own."""

    endpoint = f"h1:{jobs.PORT}"

    def start(self, count, *options, nnodes):
        self.cluster, self.job = self.lab(count), self.reports()
        self.options, self.nnodes = options, nnodes
        self.agents = {host.name: self.join(host.name, *options, nnodes=nnodes) for host in self.cluster}
        self.first = self.job.wait_round(" ".join(self.agents))
        self.assertEqual(ranks(self.first)["h1"], 0)

    def test_its_host_loses_power_and_the_others_go_on(self):
        self.start(4, nnodes="3:4")
        self.cluster["h1"].crash()
        self.agents.pop("h1")
        self.job.wait_round("h2 h3 h4", after=self.first)
        self.end_well(self.job, self.agents)

    def test_its_agent_is_killed_and_the_others_go_on(self):
        self.start(4, nnodes="3:4")
        kill_agent(self.agents.pop("h1"))
        self.job.wait_round("h2 h3 h4", after=self.first)
        self.end_well(self.job, self.agents)

    def test_its_host_loses_power_and_a_spare_takes_its_place(self):
        self.cluster, self.job = self.lab(4), self.reports()
        self.options, self.nnodes = (), "3"
        self.agents = {host.name: self.join(host.name, nnodes="3") for host in self.cluster}
        first = self.job.wait_round()
        (spare,) = set(self.agents) - set(ranks(first))
        self.wait_for_text(self.agents[spare], "spare")
        self.cluster["h1"].crash()
        self.agents.pop("h1")
        second = self.job.wait_round("h2 h3 h4", after=first)
        self.assertIn(spare, ranks(second))
        self.end_well(self.job, self.agents)

    def test_it_and_its_successor_are_lost_one_after_the_other(self):
        self.start(5, nnodes="3:5")
        self.cluster["h1"].crash()
        self.agents.pop("h1")
        second = self.job.wait_round("h2 h3 h4 h5", after=self.first)
        master = next(name for name, rank in ranks(second).items() if rank == 0)
        self.cluster[master].crash()
        self.agents.pop(master)
        self.job.wait_round(" ".join(self.agents), after=second)
        self.end_well(self.job, self.agents)

    def test_its_host_is_cut_off_and_begins_no_second_job(self):
        self.start(4, nnodes="1:4")
        self.cluster["h1"].cut()
        second = self.job.wait_round("h2 h3 h4", after=self.first)
        time.sleep(3)
        self.assertEqual(self.job.complete()[-1], second, "h1 went on alone")
        self.cluster["h1"].heal()
        self.job.wait_round("h1 h2 h3 h4", after=second)
        self.end_well(self.job, self.agents)

    def test_a_job_that_is_cut_in_two_halves_goes_on_in_one(self):
        self.start(4, nnodes="2:4")
        for one in ("h1", "h2"):
            for other in ("h3", "h4"):
                self.cluster[one].drop_to(self.cluster[other])
                self.cluster[other].drop_to(self.cluster[one])
        second = self.job.wait_round("h1 h2", after=self.first)
        time.sleep(6)
        self.assertEqual(self.job.complete()[-1], second, "the other half went on, too")
        for one in ("h1", "h2"):
            for other in ("h3", "h4"):
                self.cluster[one].undrop_to(self.cluster[other])
                self.cluster[other].undrop_to(self.cluster[one])
        self.job.wait_round("h1 h2 h3 h4", after=second)
        self.end_well(self.job, self.agents)

    def test_with_two_nodes_the_survivor_goes_on_alone_if_it_was_told_it_may(self):
        self.start(2, "--rdzv-conf", "takeover=any", nnodes="1:2")
        self.cluster["h1"].crash()
        self.agents.pop("h1")
        self.job.wait_round("h2", after=self.first)
        self.end_well(self.job, self.agents)

    def test_with_two_nodes_the_survivor_does_not_go_on_alone_by_itself(self):
        self.start(2, "--rdzv-conf", "takeover_timeout=8", nnodes="1:2")
        self.cluster["h1"].crash()
        self.agents.pop("h1")
        self.assert_all_end_with(69, self.agents, seconds=60)
        self.assertEqual(self.job.complete(), [self.first])

    def test_it_dies_before_the_first_round_and_is_started_again(self):
        self.cluster, self.job = self.lab(3), self.reports()
        self.agents = {name: self.join(name, nnodes="3") for name in ("h1", "h2")}
        self.wait_for_text(self.agents["h2"], "2 of 3 nodes")
        kill_agent(self.agents["h1"])
        for name in ("h1", "h3"):
            self.agents[name] = self.join(name, nnodes="3")
        self.job.wait_round("h1 h2 h3")
        self.end_well(self.job, self.agents)

    def test_a_race_of_agents_on_its_host_ends_with_one_coordinator(self):
        self.cluster, self.job = self.lab(2), self.reports()
        self.agents = {f"{name}.{i}": self.join(name, nnodes="4") for i in range(2) for name in ("h1", "h2")}
        self.job.wait_round("h1 h1 h2 h2")
        self.end_well(self.job, self.agents)


if __name__ == "__main__":
    jobs.main()
