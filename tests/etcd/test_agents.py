"""Agents without any distrund: they elect a coordinator through etcd, and go on under the next one when it is lost."""

import signal
import time

import cases
import etcd
import hosts
import jobs
from hosts import wait_until

RUN = "/distrun/runs/job"


class Agents(cases.EtcdTest):
    """Agents on h1, h2, h3; etcd on h4."""

    def begin(self, *options, nnodes="3", **how):
        self.machines(3, **how)
        self.agents = {name: self.elect(name, "--max-restarts", 3, *options, nnodes=nnodes) for name in ("h1", "h2", "h3")}
        self.first = self.job.wait_round("h1 h2 h3")

    def leader_host(self):
        """The name of the host whose agent coordinates."""
        return "h" + wait_until(lambda: self.leader(RUN), 30, "somebody leads").rpartition(".")[2]

    def others(self, name):
        return " ".join(sorted(set(self.agents) - {name}))

    def end(self):
        self.end_well(self.job, self.agents)
        led = self.assert_one_wrote_at_a_time(RUN)
        self.assert_only_the_end_is_left()
        return led

    def assert_only_the_end_is_left(self):
        """And that not for ever."""
        self.assertEqual(list(self.etcd.keys("/distrun")), [RUN + "/jobs/job"], "left in etcd")
        self.assertNotEqual(self.etcd.history(RUN + "/jobs/")[-1].lease, 0, "it is left for ever")

    def test_they_need_nothing_but_etcd_and_what_they_leave_in_it_goes_by_itself(self):
        self.backend = "etcd-v2"
        self.begin()
        self.assertIn("etcd's v3 interface is used", self.agents["h1"].err())
        self.assertEqual(jobs.ranks(self.first), {"h1": 0, "h2": 1, "h3": 2})
        self.job.die(1)
        second = self.job.wait_round("h1 h2 h3", after=self.first)
        self.assertEqual({line.restart_count for line in second}, {1})
        self.assertEqual(self.end(), 1)

    def test_the_coordinating_agent_is_killed_with_its_workers_and_the_others_go_on(self):
        self.begin(nnodes="2:3")
        lost = self.leader_host()
        jobs.kill_agent(self.agents.pop(lost))
        began = time.monotonic()
        second = self.job.wait_round(self.others(lost), after=self.first)
        self.assertLess(time.monotonic() - began, 20)
        self.agents[lost] = self.elect(lost, "--max-restarts", 3, nnodes="2:3")
        self.job.wait_round("h1 h2 h3", after=second)
        self.assertEqual(self.end(), 2)

    def test_the_coordinating_host_loses_power_and_the_others_go_on(self):
        self.begin(nnodes="2:3")
        lost = self.leader_host()
        self.cluster[lost].crash()
        self.agents.pop(lost)
        self.job.wait_round(self.others(lost), after=self.first)
        self.end()

    def test_the_coordinating_agent_is_told_to_stop_and_the_others_go_on(self):
        self.begin(nnodes="2:3")
        left = self.leader_host()
        agent = self.agents.pop(left)
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.wait(40), 143)
        self.job.wait_round(self.others(left), after=self.first)
        self.end()

    def test_a_coordinating_agent_that_was_paused_comes_back_as_one_of_many(self):
        self.begin(nnodes="2:3")
        paused = self.leader_host()
        agent = self.agents[paused]
        tree = [agent.pid, *hosts.children(agent.pid)]
        agent.signal(signal.SIGSTOP, tree)
        second = self.job.wait_round(self.others(paused), after=self.first)
        agent.signal(signal.SIGCONT, tree)
        self.wait_for_text(agent, "this node leads no more")
        self.job.wait_round("h1 h2 h3", after=second)
        self.assertNotEqual(self.leader_host(), paused)
        self.end()

    def test_who_was_out_of_sight_when_the_job_ended_hears_its_end_and_does_not_run_it_again(self):
        self.begin(nnodes="1:3")
        paused = self.others(self.leader_host()).split()[0]
        agent = self.agents.pop(paused)
        tree = [agent.pid, *hosts.children(agent.pid)]
        agent.signal(signal.SIGSTOP, tree)
        last = self.job.wait_round(" ".join(self.agents), after=self.first)
        self.end()
        agent.signal(signal.SIGCONT, tree)
        self.assertEqual(agent.wait(40), 0, agent.err())
        self.assertEqual(self.job.complete()[-1], last, "it ran the job again")
        self.assert_only_the_end_is_left()

    def test_the_next_run_of_that_name_begins_anew_while_the_last_ones_end_is_still_told(self):
        self.begin()
        self.end()
        (self.job.folder / "finish").unlink()
        self.agents = {name: self.elect(name, "--max-restarts", 3, nnodes="3") for name in ("h1", "h2", "h3")}
        second = self.job.wait_round("h1 h2 h3", after=self.first)
        self.assertEqual({line.restart_count for line in second}, {0})
        self.end()

    def test_when_the_record_cannot_be_read_any_more_all_say_so_and_end(self):
        self.begin()
        lost = self.leader_host()
        self.etcd.put(RUN + "/jobs/job", "{")
        jobs.kill_agent(self.agents.pop(lost))
        self.assert_all_end_with(77, self.agents)
        for agent in self.agents.values():
            self.assertIn("mend /distrun/runs/job/jobs/job, or delete it", agent.err())

    def test_etcds_majority_is_lost_and_comes_back(self):
        self.begin()
        leader = self.agents[self.leader_host()]
        self.etcd.kill(0, 1)
        self.wait_for_text(leader, "this node leads no more.*it decides nothing, and workers go on")
        self.assert_workers_go_on(self.first)
        self.job.die(2)
        wait_until(lambda: self.job.lines("died"), 30, "rank 2 dies")
        time.sleep(2)
        self.assertEqual(self.job.complete(), [self.first], "a decision without etcd")
        self.etcd.start(0)
        self.etcd.start(1)
        second = self.job.wait_round("h1 h2 h3", after=self.first)
        self.assertEqual({line.restart_count for line in second}, {1})
        self.end()

    def test_a_short_cut_between_the_coordinating_agent_and_etcd_moves_it_and_stops_no_worker(self):
        self.begin()
        cut = self.leader_host()
        self.cluster[cut].drop_to(self.store_host)
        self.wait_for_text(self.agents[cut], "this node leads no more")
        wait_until(lambda: self.leader(RUN) not in (None, self.cluster[cut].address), 30, "another leads")
        self.cluster[cut].undrop_to(self.store_host)
        self.wait_for_text(self.agents[cut], "the coordinator is now at")
        self.assert_workers_go_on(self.first)
        self.assertEqual(self.end(), 2)

    def test_all_are_killed_and_the_next_run_of_that_name_begins_anew(self):
        self.begin()
        for agent in self.agents.values():
            jobs.kill_agent(agent)
        self.assertIn(RUN + "/jobs/job", self.etcd.keys(RUN))
        self.agents = {name: self.elect(name, "--max-restarts", 3, nnodes="3") for name in ("h1", "h2", "h3")}
        second = self.job.wait_round("h1 h2 h3", after=self.first)
        self.assertEqual({line.restart_count for line in second}, {0})
        self.end()


class Security(cases.EtcdTest):
    """A job of agents on h1 and h2; etcd on h3."""

    def test_tls_and_a_password_out_of_the_environment(self):
        self.machines(2, tls=True)
        self.etcd.demand_password("job", "secret,with=signs", "/distrun/")
        env = {"ETCDCTL_USER": "job", "ETCDCTL_PASSWORD": "secret,with=signs", "ETCDCTL_CACERT": str(self.etcd.tls.path("ca.crt"))}
        agents = {name: self.elect(name, "--rdzv-conf", "protocol=https", nnodes="2", env=env) for name in ("h1", "h2")}
        self.job.wait_round("h1 h2")
        self.job.finish()
        self.assert_all_end_with(0, agents)

    def test_tls_with_a_clients_certificate(self):
        self.machines(1, tls=True, mutual=True, members=1)
        path = self.etcd.tls.path
        ca, cert, key = path("ca.crt"), path("client.crt"), path("client.key")
        self.replica("h1", "--etcd-cacert", ca, "--etcd-cert", cert, "--etcd-key", key, leads=True)
        conf = f"protocol=https,ca_cert={ca}"
        without = self.elect("h1", "--rdzv-conf", conf, nnodes="2")
        self.assertEqual(without.wait(40), 77, without.err())
        self.assertIn("it does not take this client without another certificate", without.err())
        with_one = self.elect("h1", "--rdzv-conf", f"{conf},ssl_cert={cert},ssl_cert_key={key}", nnodes="2")
        self.wait_for_text(with_one, "this node leads")


class Words(cases.EtcdTest):
    """What an agent says, and with which status it ends, when etcd is not what it should be."""

    def attempt(self, *options, endpoint=None):
        return self.elect("h1", "--start-timeout", 6, *options, nnodes="2", endpoint=endpoint)

    def listening(self, port, *argv):
        self.store_host.start(argv)
        wait_until(lambda: self.cluster["h1"].connects_to(self.store_host, port), 40, f"{argv[0]} listens")

    def assert_ends(self, process, status, *texts, seconds=40):
        self.assertEqual(process.wait(seconds), status, process.err())
        for text in texts:
            self.assertIn(text, process.err())

    def test_a_wrong_password_and_a_user_without_the_right_to_write_end_it_at_once(self):
        self.machines(1)
        self.etcd.demand_password("job", "secret", "/elsewhere/")
        wrong = self.attempt("--rdzv-conf", "user=job,password=wrong")
        nobody = self.attempt()
        elsewhere = self.attempt("--rdzv-conf", "user=job,password=secret")
        self.assert_ends(wrong, 77, "refuses user job", "invalid user ID or password")
        self.assert_ends(nobody, 77, "this etcd wants a user and a password")
        self.assert_ends(elsewhere, 77, "permission denied", "role grant-permission")

    def test_tls_where_none_is_and_none_where_it_is(self):
        self.machines(1, tls=True, members=1)
        self.listening(4379, "etcd", "--data-dir", hosts.FOLDER / "plain", "--listen-client-urls=http://10.77.0.2:4379",
                       "--advertise-client-urls=http://10.77.0.2:4379", "--listen-peer-urls=http://127.0.0.1:4380")  # fmt: skip
        ca = self.etcd.tls.path("ca.crt")
        none = self.attempt()
        untrusted = self.attempt("--rdzv-conf", "protocol=https")
        no_file = self.attempt("--rdzv-conf", "protocol=https,ca_cert=/nowhere")
        too_much = self.attempt("--rdzv-conf", f"protocol=https,ca_cert={ca}", endpoint="10.77.0.2:4379")
        self.assert_ends(none, 75, "if it speaks TLS", "protocol=https")
        self.assert_ends(untrusted, 77, "its certificate is not trusted")
        self.assert_ends(no_file, 77, "the CA's certificate cannot be read: /nowhere")
        self.assert_ends(too_much, 75, "10.77.0.2:4379: it closed the connection when TLS was to begin", "protocol=http")

    def test_the_certificate_of_another_host(self):
        self.machines(1, members=1)
        other = etcd.Certificates("10.0.0.99", "other")
        self.listening(5379, "etcd", "--data-dir", hosts.FOLDER / "other-etcd", "--listen-client-urls=https://10.77.0.2:5379",
                       "--advertise-client-urls=https://10.77.0.2:5379", "--listen-peer-urls=http://127.0.0.1:5380",
                       "--cert-file", other.path("server.crt"), "--key-file", other.path("server.key"))  # fmt: skip
        ca = other.path("ca.crt")
        process = self.attempt("--rdzv-conf", f"protocol=https,ca_cert={ca}", endpoint="10.77.0.2:5379")
        self.assert_ends(process, 77, "IP address mismatch")

    def test_nobody_there_and_somebody_else_there(self):
        self.machines(1, members=1)
        self.listening(4446, "python3", "-m", "http.server", "--bind", "10.77.0.2", "4446")
        process = self.attempt(endpoint="10.77.0.2:4444,10.77.0.2:4446")
        self.wait_for_text(process, "etcd does not answer")
        self.assert_ends(process, 75, "10.77.0.2:4444: Connection refused", "10.77.0.2:4446: ", "no coordinator in 6 s")

    def test_one_that_says_nothing_holds_up_no_interrupt(self):
        self.machines(1, members=1)
        code = "import socket, time; s = socket.create_server(('10.77.0.2', 4447)); time.sleep(600)"
        self.listening(4447, "python3", "-c", code)
        agent = self.elect("h1", nnodes="2", endpoint="10.77.0.2:4447")
        daemon = self.replica("h1", state="etcd://10.77.0.2:4447")
        for process in (agent, daemon):
            self.wait_for_text(process, "10.77.0.2:4447: no answer in time")
        agent.signal(signal.SIGINT)
        daemon.signal(signal.SIGTERM)
        self.assertEqual(agent.wait(20), 130)
        self.assertEqual(daemon.wait(20), 0)


if __name__ == "__main__":
    cases.main()
