"""`distrun --hosts h1,h2,h3 …`: what a user sees of a job that works, fails, loses a host."""

import hashlib
import os
import re
import signal
import sys

import cases
import hosts
import jobs
from hosts import wait_until


class Job(cases.SshTest):
    def test_hosts_are_ranked_in_the_order_of_the_list(self):
        self.ssh(4)
        reports = self.reports()
        starter = self.start("h4", "h3,h1:2,h2", worker=self.reporting(reports))
        lines = reports.wait_round("h1 h1 h2 h3")
        self.assertEqual([line.host for line in lines], ["h3", "h1", "h1", "h2"])
        self.assertEqual(jobs.ranks(lines), {"h3": 0, "h1": 1, "h2": 2})
        reports.finish()
        self.assertEqual(starter.wait(40), 0)
        self.assert_nothing_is_left()

    def test_a_hostfile_gives_hosts_and_workers(self):
        lab = self.ssh(3)
        hostfile = hosts.FOLDER / "hostfile"
        hostfile.write_text("# two hosts\n\nroot@h2 slots=2\nh1:1  # the other\n")
        starter = lab["h3"].start(
            [cases.DISTRUN, "--hostfile", hostfile, "--ssh-command", self.sshd.command, "sh", "-c", "echo $RANK $(hostname)"])
        self.assertEqual(starter.wait(40), 0)
        self.assertEqual(sorted(starter.out().splitlines()), ["0 h2", "1 h2", "2 h1"])

    def test_it_may_be_started_on_one_of_the_hosts_whose_name_means_loopback_there(self):
        self.ssh(2, names="loopback")
        reports = self.reports()
        starter = self.start("h1", "h1,h2", worker=self.reporting(reports))
        lines = reports.wait_round("h1 h2")
        self.assertEqual({line.master_addr for line in lines}, {self._lab["h1"].address})
        reports.finish()
        self.assertEqual(starter.wait(40), 0)

    def test_names_of_the_users_ssh_configuration_need_not_resolve(self):
        self.ssh(3, names="none")
        alias = "".join(f"Host box{i}\n  HostName 10.77.0.{i}\n" for i in (1, 2))
        starter = self.start("h3", "box1,box2", ssh=self.sshd.client(more=alias), worker=["sh", "-c", "echo $RANK $(hostname)"])
        self.assertEqual(starter.wait(40), 0)
        self.assertEqual(sorted(starter.out().splitlines()), ["0 h1", "1 h2"])

    def test_ipv6_addresses(self):
        self.ssh(3, family=6)
        starter = self.start("h3", "[fd77::1]:2,[fd77::2]", worker=["sh", "-c", "echo $RANK $(hostname)"])
        self.assertEqual(starter.wait(40), 0)
        self.assertEqual(sorted(starter.out().splitlines()), ["0 h1", "1 h1", "2 h2"])

    def test_a_worker_fails_and_the_job_is_restarted_everywhere(self):
        self.ssh(3)
        reports = self.reports()
        starter = self.start("h3", "h1,h2", "--max-restarts", 1, worker=self.reporting(reports))
        first = reports.wait_round("h1 h2")
        reports.die(1)
        second = reports.wait_round("h1 h2", after=first)
        self.assertEqual({line.restart_count for line in second}, {1})
        reports.finish()
        self.assertEqual(starter.wait(40), 0)

    def test_the_first_failure_is_the_status_and_is_reported_once(self):
        self.ssh(4)
        reports = self.reports()
        starter = self.start("h4", "h1,h2,h3", worker=self.reporting(reports, 13))
        reports.wait_round("h1 h2 h3")
        reports.die(1)
        self.assertEqual(starter.wait(40), 13)
        self.assertEqual(starter.err().count("Root Cause (first observed failure):"), 1, starter.err())
        self.assertRegex(starter.err(), r"host +: h2\b")
        self.assertRegex(starter.err(), r"exitcode +: 13\b")
        self.assertIn("distrun: h2: error: rank 1", starter.err())
        self.assert_nothing_is_left()

    def test_a_host_that_is_lost_is_not_fatal_when_enough_remain(self):
        lab = self.ssh(4)
        reports = self.reports()
        starter = self.start("h4", "h1,h2,h3", "--nnodes", "2:3", worker=self.reporting(reports))
        reports.wait_round("h1 h2 h3")
        lab["h2"].kill()
        reports.wait_round("h1 h3")
        reports.finish()
        self.assertEqual(starter.wait(40), 0)
        self.assertIn("h2: the connection is lost", starter.err())

    def test_a_spare_takes_the_place_of_a_host_that_is_lost(self):
        lab = self.ssh(5)
        reports = self.reports()
        starter = self.start("h5", "h1,h2,h3,h4", "--nnodes", 3, worker=self.reporting(reports))
        first = jobs.ranks(reports.wait_round(seconds=30))  # of those that came first
        self.assertIn("h1", first)
        (spare,) = {"h1", "h2", "h3", "h4"} - set(first)
        lost = max(first)
        self.wait_for_text(starter, f"{spare}: a spare beside 3 nodes")
        lab[lost].kill()
        remain = sorted({*first, spare} - {lost})
        second = jobs.ranks(reports.wait_round(" ".join(remain)))
        self.assertEqual(second[spare], first[lost])
        reports.finish()
        self.assertEqual(starter.wait(40), 0)

    def test_a_host_that_is_lost_ends_a_job_of_fixed_size(self):
        lab = self.ssh(4)
        reports = self.reports()
        starter = self.start("h4", "h1,h2,h3", worker=self.reporting(reports))
        reports.wait_round("h1 h2 h3")
        lab["h2"].kill()
        self.assertEqual(starter.wait(40), 69)
        self.assertIn("h2: the connection is lost", starter.err())
        self.assertIn("2 hosts of 3 left, and the job needs 3", starter.err())
        self.assert_nothing_is_left()

    def test_each_line_may_begin_with_its_host(self):
        self.ssh(3)
        starter = self.start("h3", "h1,h2", "--host-prefix", worker=["sh", "-c", "echo out $RANK; echo err $RANK >&2"])
        self.assertEqual(starter.wait(40), 0)
        self.assertEqual(sorted(starter.out().splitlines()), ["h1: out 0", "h2: out 1"])
        self.assertIn("h2: err 1\n", starter.err())


class Bytes(cases.SshTest):
    def test_arguments_arrive_byte_for_byte(self):
        self.ssh(3)
        odd = ["a b", "", "'", '"', "it's \"so\"", "$HOME `id` $(id) !!", "a\nb\n", "\\", "*", "~", "-x", "--", "\t", "ü", b"\xff\xfe", ";&|<>#"]
        file = hosts.FOLDER / "got"
        starter = self.start("h3", "h1,h2", worker=["sh", "-c", f'printf "%s\\0" "$@" > {file}.$RANK', "x", *[
            word if isinstance(word, str) else os.fsdecode(word) for word in odd]])  # fmt: skip
        self.assertEqual(starter.wait(40), 0)
        sent = b"".join((word if isinstance(word, bytes) else word.encode()) + b"\0" for word in odd)
        for rank in (0, 1):
            self.assertEqual((hosts.FOLDER / f"got.{rank}").read_bytes(), sent)

    def test_a_hundred_megabytes_of_output_arrive_whole(self):
        self.ssh(3)
        code = "import os\nfor i in range(100): os.write(1, (b'%07d\\n' % i) * 131072)"
        starter = self.start("h3", "h1", worker=[sys.executable, "-IS", "-c", code])
        self.assertEqual(starter.wait(60), 0)
        got = hashlib.sha256((hosts.FOLDER / "starter.out").read_bytes()).hexdigest()
        self.assertEqual(got, hashlib.sha256(b"".join((b"%07d\n" % i) * 131072 for i in range(100))).hexdigest())

    def test_a_last_line_without_an_end_hides_nothing(self):
        self.ssh(3)
        starter = self.start("h3", "h1,h2", worker=["sh", "-c", "printf out; printf '50 %%' >&2"])
        self.assertEqual(starter.wait(40), 0, starter.err())
        self.assertEqual(sorted(starter.out().split()), ["out", "out"])
        self.assertEqual(starter.err().count("50 %"), 2)
        self.assertNotIn("\x1e", starter.err())

    def test_only_the_variables_that_were_named_arrive(self):
        self.ssh(2)
        env = {"SECRET": "s", "NAMED": "from here", "DISTRUN_TOKEN": "only-on-stdin"}
        look = 'import os; print([os.environ.get(n) for n in ("SECRET", "NAMED", "GIVEN", "DISTRUN_TOKEN")])'
        starter = self.start("h2", "h1", "--env", "NAMED", "--env", "GIVEN=a'b\n", env=env, worker=[sys.executable, "-IS", "-c", look])
        self.assertEqual(starter.wait(40), 0)
        self.assertEqual(starter.out(), """[None, 'from here', "a'b\\n", None]\n""")

    def test_no_command_line_shows_the_token_or_the_job(self):
        self.ssh(3)
        reports = self.reports()
        starter = self.start("h3", "h1,h2", worker=self.reporting(reports), env={"DISTRUN_TOKEN": "only-on-stdin"})
        reports.wait_round("h1 h2")
        lines = "\n".join(self.left())
        self.assertIn("--from-stdin", lines)
        self.assertNotIn("only-on-stdin", lines)
        reports.finish()
        self.assertEqual(starter.wait(40), 0)

    def test_the_job_runs_in_the_folder_it_was_started_in(self):
        self.ssh(3)
        folder = hosts.FOLDER / "a folder"
        folder.mkdir()
        starter = self.start("h3", "h1,h2", folder=folder, worker=["sh", "-c", "pwd"])
        self.assertEqual(starter.wait(40), 0)
        self.assertEqual(starter.out(), f"{folder}\n" * 2)


class Stopping(cases.SshTest):
    def trapping(self, mark, before=""):
        """A worker that needs two seconds to save."""
        script = hosts.FOLDER / "saves.sh"
        script.write_text(
            f"trap 'sleep 2; touch {mark}.saved.$RANK; exit 0' INT TERM\n{before}\ntouch {mark}.ready.$RANK\n"
            "while :; do sleep 0.1; done\n"
        )
        return ["sh", script]

    def wait_for(self, *names):
        wait_until(lambda: all((hosts.FOLDER / name).exists() for name in names), 30, f"{names} are there")

    def test_an_interrupt_gives_workers_everywhere_their_grace(self):
        self.ssh(3)
        starter = self.start("h3", "h1,h2", worker=self.trapping(hosts.FOLDER / "m"))
        self.wait_for("m.ready.0", "m.ready.1")
        starter.signal(signal.SIGINT)
        self.assertEqual(starter.wait(40), 130)
        self.wait_for("m.saved.0", "m.saved.1")
        self.assert_nothing_is_left()

    def test_the_second_interrupt_is_final(self):
        self.ssh(3)
        reports = self.reports()
        starter = self.start("h3", "h1,h2", "--shutdown-timeout", 300, worker=self.reporting(reports, "deaf"))
        reports.wait_round("h1 h2")
        starter.signal(signal.SIGTERM)
        self.wait_for_text(starter, "h1: stopping 1 worker")
        self.wait_for_text(starter, "h2: stopping 1 worker")
        starter.signal(signal.SIGTERM)
        self.assertEqual(starter.wait(40), 143)
        self.assert_nothing_is_left()

    def test_notice_signals_reach_workers(self):
        self.ssh(3)
        mark = hosts.FOLDER / "u"
        starter = self.start("h3", "h1,h2", worker=[
            "sh", "-c", f"trap 'touch {mark}.noticed.$RANK; exit 0' USR1; touch {mark}.ready.$RANK; while :; do sleep 0.1; done"])  # fmt: skip
        self.wait_for("u.ready.0", "u.ready.1")
        starter.signal(signal.SIGUSR1)
        self.assertEqual(starter.wait(40), 0)
        self.wait_for("u.noticed.0", "u.noticed.1")

    def test_a_starter_that_is_killed_leaves_nothing(self):
        self.ssh(3)
        starter = self.start("h3", "h1,h2", worker=self.trapping(hosts.FOLDER / "k", "setsid sleep 1000 &"))
        self.wait_for("k.ready.0", "k.ready.1")
        starter.signal(signal.SIGKILL, starter.tree())
        self.wait_for("k.saved.0", "k.saved.1")  # it was told as by SIGTERM
        self.assert_nothing_is_left()

    def test_a_connection_that_breaks_does_not_shorten_the_grace(self):
        self.ssh(3)
        starter = self.start("h3", "h1,h2", worker=self.trapping(hosts.FOLDER / "g"))
        self.wait_for("g.ready.0", "g.ready.1")
        starter.signal(signal.SIGTERM)
        self.wait_for_text(starter, "h1: stopping 1 worker")
        self.wait_for_text(starter, "h2: stopping 1 worker")
        starter.signal(signal.SIGKILL, starter.tree())
        self.wait_for("g.saved.0", "g.saved.1")
        self.assert_nothing_is_left()

    def test_the_third_interrupt_closes_connections_to_what_hangs(self):
        lab = self.ssh(2)
        reports = self.reports()
        starter = self.start("h2", "h1", "--shutdown-timeout", 300, worker=self.reporting(reports, "deaf"))
        reports.wait_round("h1")
        lab["h1"].run(["pkill", "-STOP", "-f", "from-stdin"])
        try:
            # The third, but on a busy machine two that come together count as one.
            for _ in range(10):
                starter.signal(signal.SIGINT)
                try:
                    starter.wait(1.2)  # the guard's patience
                    break
                except AssertionError:
                    pass
            self.assertEqual(starter.wait(40), 130, starter.err())
        finally:
            lab["h1"].run(["pkill", "-CONT", "-f", "from-stdin"])
        self.assert_nothing_is_left()

    def test_a_starter_whose_guard_alone_is_killed_leaves_nothing(self):
        self.ssh(2)
        reports = self.reports()
        starter = self.start("h2", "h1", worker=self.reporting(reports))
        reports.wait_round("h1")
        starter.signal(signal.SIGKILL)
        self.assert_nothing_is_left()


class Trouble(cases.SshTest):
    """What cannot work is told, with ssh's words and what to do; the others are stopped; the status says what it was."""

    def fails(self, where, *options, status, says, count=3, worker=("sleep", "1000"), seconds=40, **how):
        starter = self.start(f"h{count}", where, *options, worker=worker, **how)
        self.assertEqual(starter.wait(seconds), status, starter.err())
        for pattern in says:
            self.assertRegex(starter.err(), pattern)
        self.assert_nothing_is_left()
        return starter

    def test_a_host_without_an_ssh_server(self):
        self.ssh(3)
        self.sshd.stop("h2")
        self.fails("h1,h2", status=71, says=["error: h2: ssh cannot start anything there: .*Connection refused", "stopped everywhere"])

    def test_a_name_that_nobody_knows(self):
        self.ssh(3)
        with (hosts.FOLDER / "h3" / "resolv.conf").open("a") as file:
            file.write("options timeout:1 attempts:1\n")  # its name server is nobody
        self.fails("h1,no-such-host.invalid", status=71, says=["no-such-host.invalid: .*nobody knows that name"])

    def test_a_host_that_does_not_answer(self):
        lab = self.ssh(3)
        lab["h2"].cut()
        self.fails("h1,h2", status=71, seconds=60, says=["h2: ssh cannot .*(timed out|No route to host)"])

    def test_a_key_that_is_refused(self):
        self.ssh(3)
        self.fails("h1,h2", ssh=self.sshd.client(key="other_key"), status=71,
                   says=["h([12]): .*Permission denied.*ssh-copy-id.*try: ssh -o BatchMode=yes h\\1 true"])  # fmt: skip

    def test_a_host_key_that_is_not_known(self):
        self.ssh(3)
        self.fails("h1,h2", ssh=self.sshd.client(known="nothing"), status=71, says=["Host key verification failed.*connect once by hand"])

    def test_a_host_without_distrun(self):
        self.ssh(3)
        self.fails("h1,h2", "--remote-distrun", "/nowhere/distrun", status=127,
                   says=["h[12]: there is no distrun that can be run there .*/nowhere/distrun.*--remote-distrun"])  # fmt: skip

    def test_a_host_with_another_version(self):
        self.ssh(3)
        other = hosts.FOLDER / "other version"
        other.write_text(f"#!/bin/sh\n[ $(hostname) = h1 ] && exec {cases.DISTRUN} \"$@\"\nprintf '\\036distrun 1 0.0.9 - - 20000\\n' >&2; cat\n")
        other.chmod(0o755)
        self.fails("h1,h2", "--remote-distrun", other, status=77, says=["h2: has distrun 0.0.9, and here is .*install the same"])

    def test_a_folder_that_is_not_there(self):
        lab = self.ssh(3)
        folder = hosts.FOLDER / "away" / "work"
        folder.mkdir(parents=True)
        lab["h2"].run(["mount", "-t", "tmpfs", "tmpfs", folder.parent])
        self.fails("h1,h2", folder=folder, status=127, says=[f"h2: error: cannot go to the folder.*'{folder}': No such file"])

    def test_the_others_do_not_look_for_each_other_at_a_first_host_that_refused(self):
        lab = self.ssh(4)
        folder = hosts.FOLDER / "gone" / "work"
        folder.mkdir(parents=True)
        lab["h1"].run(["mount", "-t", "tmpfs", "tmpfs", folder.parent])
        starter = self.start("h4", "h1,h2,h3", "--nnodes", "2:3", "--rdzv-conf", "last_call_timeout=1", folder=folder, worker=["true"])
        self.assertEqual(starter.wait(40), 0, starter.err())
        self.assertIn("h1: error: cannot go to the folder", starter.err())

    def test_a_script_that_is_not_there(self):
        self.ssh(3)
        self.fails("h1,h2", worker=["no-such-script.py"], status=127, says=["h[12]: error: .*no-such-script.py"])

    def test_no_ssh_client(self):
        self.ssh(1)
        self.fails("h1", ssh="no-such-client -v", count=1, status=127, says=["no-such-client: no such program"])

    def test_enough_hosts_remain_without_the_one_that_cannot_be_reached(self):
        self.ssh(4)
        self.sshd.stop("h1")
        reports = self.reports()
        starter = self.start("h4", "h1,h2,h3", "--nnodes", "2:3", "--rdzv-conf", "last_call_timeout=1", worker=self.reporting(reports))
        lines = reports.wait_round("h2 h3", seconds=40)
        self.assertTrue(all(re.fullmatch(r"10\.77\.0\.[23]", line.master_addr) for line in lines))
        reports.finish()
        self.assertEqual(starter.wait(40), 0)
        self.assertIn("error: h1: ssh cannot start anything there", starter.err())


if __name__ == "__main__":
    cases.main()
