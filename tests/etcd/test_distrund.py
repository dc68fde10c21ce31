"""Several distrunds on one etcd: whatever is lost, one acts, workers go on, and who lost its lease writes no more."""

import json
import signal
import time

import cases
import hosts
import jobs
from hosts import wait_until


class Replicas(cases.EtcdTest):
    """distrund on h1 (leads) and h2 (stands by), which the agents on h1 and h2 are told of; etcd on h3."""

    def begin(self, *options, ttl=2, **how):
        self.machines(2, **how)
        self.replicas("h1 h2", "--etcd-ttl", ttl)
        self.agents = {name: self.join(name, "--max-restarts", 3, *options, nnodes="2", at="h2") for name in ("h1", "h2")}
        self.first = self.job.wait_round("h1 h2")

    def assert_failures_are_acted_on(self, seconds=40):
        """A worker fails: a new round, on the same nodes."""
        self.job.die(1)
        second = self.job.wait_round("h1 h2", after=self.job.complete()[-1], seconds=seconds)
        return second

    def end(self):
        self.end_well(self.job, self.agents)
        return self.assert_one_wrote_at_a_time()

    def test_the_leader_is_killed_and_workers_do_not_notice(self):
        self.begin()
        self.daemons["h1"].signal(signal.SIGKILL)
        self.wait_for_text(self.daemons["h2"], "this distrund leads")
        self.assert_workers_go_on(self.first)
        second = self.assert_failures_are_acted_on()
        self.assertEqual({line.restart_count for line in second}, {1})
        self.assertEqual(self.end(), 2)

    def test_one_record_that_cannot_be_read_stops_no_other_job(self):
        self.begin()
        self.etcd.put(cases.PREFIX + "/jobs/damaged", "{")
        self.daemons["h1"].signal(signal.SIGKILL)
        self.wait_for_text(self.daemons["h2"], "cannot read what is kept in etcd.*/distrun/jobs/damaged")
        self.wait_for_text(self.daemons["h2"], "this distrund leads")
        self.assert_failures_are_acted_on()
        damaged = self.distrun(self.cluster["h1"], nnodes="2", worker=["true"], endpoint=f"h2:{jobs.PORT}", job="damaged")
        self.assertEqual(damaged.wait(40), 77, damaged.err())
        self.assertIn("the record of job damaged in etcd cannot be read", damaged.err())
        self.end()
        self.assertEqual(self.etcd.keys(cases.PREFIX)[cases.PREFIX + "/jobs/damaged"], "{")

    def test_a_member_of_etcd_is_killed(self):
        self.begin(ttl=20)  # that a busy machine holds the leader up moves no leadership
        leads = self.etcd.leader()
        self.etcd.kill((leads + 1) % 3)  # the first that it asks, or another
        self.assert_failures_are_acted_on()
        self.etcd.start((leads + 1) % 3)
        wait_until(self.etcd.healthy, 40, "etcd is healthy")
        self.etcd.kill((leads + 2) % 3)
        self.assert_failures_are_acted_on()
        self.assertEqual(self.end(), 1, "leadership moved")

    def test_etcds_own_leader_is_killed_and_its_default_election_moves_no_leadership(self):
        self.begin(pace=(100, 1000))
        self.etcd.kill(self.etcd.leader())
        self.assert_failures_are_acted_on()
        self.assertEqual(self.end(), 1, "leadership moved")

    def test_who_stands_by_sends_those_who_ask_for_the_status_to_the_leader(self):
        self.begin()
        status = [jobs.BIN / "distrun", "status", "--rdzv-endpoint", f"h2:{jobs.PORT}", "--json"]
        jobs_there = json.loads(self.cluster["h1"].run(status))["jobs"]
        self.assertEqual(len(jobs_there), 1)
        self.end()

    def test_etcds_majority_is_lost_and_comes_back(self):
        self.begin()
        self.etcd.kill(0, 1)
        self.wait_for_text(self.daemons["h1"], "this distrund leads no more.*it decides nothing, and workers go on")
        self.assert_workers_go_on(self.first)
        self.job.die(1)
        wait_until(lambda: self.job.lines("died"), 30, "rank 1 dies")
        time.sleep(2)
        self.assertEqual(self.job.complete(), [self.first], "a decision without etcd")
        self.wait_for_text(self.daemons["h1"], "etcd does not answer.*are most of its members up")
        self.etcd.start(0)
        self.etcd.start(1)
        second = self.job.wait_round("h1 h2", after=self.first, seconds=30)
        self.assertEqual({line.restart_count for line in second}, {1})
        self.end()

    def test_a_leader_that_was_paused_for_longer_than_its_lease_does_not_act_when_it_wakes(self):
        self.begin()
        old = self.daemons["h1"]
        old.signal(signal.SIGSTOP)
        self.wait_for_text(self.daemons["h2"], "this distrund leads")
        second = self.assert_failures_are_acted_on()
        old.signal(signal.SIGCONT)
        self.wait_for_text(old, "this distrund leads no more")
        self.wait_for_text(old, "10.77.0.2:29400 leads; this distrund stands by")
        self.assertEqual(self.job.complete()[-1], second)
        self.assertEqual(self.leader(), "10.77.0.2")
        self.assert_failures_are_acted_on()  # by the new one
        self.assertEqual(self.end(), 2)

    def test_a_leader_that_does_not_reach_etcd_stops_and_the_other_acts(self):
        self.begin()
        self.cluster["h1"].drop_to(self.store_host)
        self.wait_for_text(self.daemons["h2"], "this distrund leads")
        self.wait_for_text(self.daemons["h1"], "this distrund leads no more")
        self.assert_workers_go_on(self.first)
        self.assert_failures_are_acted_on()
        self.cluster["h1"].undrop_to(self.store_host)
        self.wait_for_text(self.daemons["h1"], "10.77.0.2:29400 leads; this distrund stands by")
        self.assertEqual(self.end(), 2)

    def test_a_leader_that_is_told_to_stop_hands_over_at_once_and_nothing_but_records_is_left(self):
        self.begin(ttl=300)  # it is not the lease's end that ends the old one's leadership
        self.daemons["h1"].signal(signal.SIGTERM)
        self.assertEqual(self.daemons["h1"].wait(40), 0)
        self.wait_for_text(self.daemons["h2"], "this distrund leads", seconds=40)
        self.end()
        self.daemons["h2"].signal(signal.SIGTERM)
        self.assertEqual(self.daemons["h2"].wait(40), 0)
        self.assertEqual(list(self.etcd.keys(cases.PREFIX)), [cases.PREFIX + "/jobs/job"])  # told for ten minutes more


if __name__ == "__main__":
    cases.main()
