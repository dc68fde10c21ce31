"""Nodes come and go as their operators wish, and workers fail: who runs with which rank, and what all nodes say at the end."""

import re
import signal

import jobs
from jobs import ranks


class MembershipTest(jobs.ClusterTest):
    def join(self, name, *options, nnodes, worker=None):
        return self.distrun(self.cluster[name], *options, nnodes=nnodes, worker=worker or self.reporting(self.job))

    def join_all(self, count, *options, nnodes, worker=None):
        self.cluster, self.job = self.lab(count), self.reports()
        self.agents = {host.name: self.join(host.name, *options, nnodes=nnodes, worker=worker) for host in self.cluster}

    def test_a_node_leaves_and_returns_three_times(self):
        self.join_all(4, nnodes="3:4")
        lines = self.job.wait_round("h1 h2 h3 h4")
        for _ in range(3):
            self.agents["h4"].signal(signal.SIGTERM)
            self.assertEqual(self.agents["h4"].wait(30), 128 + signal.SIGTERM)
            lines = self.job.wait_round("h1 h2 h3", after=lines)
            self.agents["h4"] = self.join("h4", nnodes="3:4")
            lines = self.job.wait_round("h1 h2 h3 h4", after=lines)
            self.assertEqual({line.restart_count for line in lines}, {0})
        self.end_well(self.job, self.agents)

    def test_latecomers_scale_a_job_up(self):
        self.cluster, self.job, self.agents = self.lab(4), self.reports(), {}
        options = ("--rdzv-conf", "last_call_timeout=1")
        for name in ("h1", "h2"):
            self.agents[name] = self.join(name, *options, nnodes="2:4")
        lines = self.job.wait_round("h1 h2")
        for name in ("h3", "h4"):
            self.agents[name] = self.join(name, *options, nnodes="2:4")
            before, lines = lines, self.job.wait_round(" ".join(self.agents), after=lines)
            self.assertEqual({host: ranks(lines)[host] for host in ranks(before)}, ranks(before))
        self.end_well(self.job, self.agents)

    def test_a_spare_takes_over_the_rank_of_the_node_that_is_lost(self):
        self.join_all(5, nnodes="4")
        first = self.job.wait_round()
        (spare,) = set(self.agents) - set(ranks(first))
        self.assertNotEqual(spare, "h1")
        lost = "h2" if spare != "h2" else "h3"
        self.wait_for_text(self.agents[spare], "spare")
        self.cluster[lost].crash()
        self.agents.pop(lost)
        second = self.job.wait_round(" ".join(self.agents), after=first)
        self.assertEqual(ranks(second)[spare], ranks(first)[lost])
        self.end_well(self.job, self.agents)

    def test_a_spare_that_was_never_needed_ends_with_the_job(self):
        self.join_all(3, nnodes="2")
        (spare,) = set(self.agents) - set(ranks(self.job.wait_round()))
        self.wait_for_text(self.agents[spare], "spare")
        self.end_well(self.job, self.agents)

    def test_nodes_may_have_different_numbers_of_workers(self):
        self.cluster, self.job = self.lab(3), self.reports()
        self.agents = {
            name: self.join(name, "--nproc-per-node", count, nnodes="3")
            for name, count in (("h1", 1), ("h2", 3), ("h3", 2))
        }
        lines = self.job.wait_round("h1 h2 h2 h2 h3 h3")
        self.assertEqual([line.rank for line in lines], list(range(6)))
        by_node = [line.host for line in sorted(lines, key=lambda line: (line.group_rank, line.rank))]
        self.assertEqual([line.host for line in lines], by_node, "ranks of a node are not together")
        self.end_well(self.job, self.agents)

    def test_ranks_that_were_asked_for_are_given(self):
        self.cluster, self.job, self.agents = self.lab(3), self.reports(), {}
        wanted = {"h1": 2, "h2": 0, "h3": 1}
        for name, rank in wanted.items():
            self.agents[name] = self.join(name, "--node-rank", rank, nnodes="3")
        self.assertEqual(ranks(self.job.wait_round("h1 h2 h3")), wanted)
        self.end_well(self.job, self.agents)

    def test_a_worker_that_fails_restarts_all_nodes_once_and_then_ends_them_all_alike(self):
        self.cluster, self.job = self.lab(4), self.reports()
        worker = self.reporting(self.job, 13)
        self.agents = self.everywhere(self.cluster, "--max-restarts", 1, worker=worker)
        first = self.job.wait_round("h1 h2 h3 h4")
        self.job.die(2)
        second = self.job.wait_round("h1 h2 h3 h4", after=first)
        self.assertEqual({line.restart_count for line in second}, {1})
        self.assertEqual(ranks(second), ranks(first))
        self.job.die(2)
        self.assert_all_end_with(13, self.agents)
        culprit = next(line for line in second if line.rank == 2)
        reports = {name: self.report(process.err()) for name, process in self.agents.items()}
        self.assertEqual(len(set(reports.values())), 1, reports)
        self.assertRegex(reports["h1"], rf"host\s*: {culprit.host}\n")
        self.assertRegex(reports["h1"], r"rank\s*: 2 ")
        self.assertRegex(reports["h1"], rf"exitcode\s*: 13 \(pid: {culprit.pid}\)")
        self.assertIn("rank 2 was told to die", reports["h1"])

    def report(self, text):
        """The part of what a launcher said that names the first failure."""
        found = re.search(r"Root Cause.*?\n[-=]{10}", text, re.DOTALL)
        self.assertIsNotNone(found, f"no report in:\n{text}")
        return found[0]

    def test_a_worker_that_cannot_start_ends_all_nodes_alike_and_is_not_retried(self):
        self.cluster = self.lab(3)
        restarts = None
        for attempt in range(8):
            self.job = self.reports(f"job{attempt}")
            reporting = " ".join(map(str, self.reporting(self.job)))
            worker = ["sh", "-c", f'if [ "$RANK" = 1 ]; then exit 9; fi; exec {reporting}']
            self.agents = self.everywhere(self.cluster, "--max-restarts", 3, worker=worker)
            self.assert_all_end_with(9, self.agents)
            restarts = {line.restart_count for line in self.job.lines()} - {0}
            if not restarts:  # else the machine was busy elsewhere for the second in which it is a failure to start
                break
        self.assertEqual(restarts, set())


if __name__ == "__main__":
    jobs.main()
