"""programs_test.py DIR: that the benchmark's programs tell right from wrong. Measures nothing: a slow or
busy machine must not fail it."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True

from bench import measure, table  # noqa: E402

TOOLS = pathlib.Path(sys.argv.pop(1)).resolve()


def call(tool, *arguments, env=None):
    return subprocess.run(
        [str(TOOLS / tool), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
        env=env,
    )


def lines_of(rank, size=20_000):
    return call("line_writer", size, 777, env={"RANK": str(rank)}).stdout.splitlines(keepends=True)


class RecordOps(unittest.TestCase):
    def test_it_prints_one_figure_for_each_way_and_leaves_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            done = call("record_ops", 1, folder + "/ops.fr")
            self.assertEqual(done.returncode, 0, done.stderr)
            names = [line.split()[0] for line in done.stdout.decode().splitlines()]
            self.assertEqual(names, ["scheduled_started_completed", "began_completed", "not_recording", "clock"])
            self.assertEqual(os.listdir(folder), [])

    def test_a_folder_that_is_not_there_fails(self):
        self.assertEqual(call("record_ops", 1, "/nonexistent/ops.fr").returncode, 1)


class GroupRecord(unittest.TestCase):
    def test_it_prints_what_a_call_takes_with_and_without_and_leaves_no_file(self):
        if not (TOOLS / "group_record").exists():
            self.skipTest("group_record was not built: libgloo-dev")
        with tempfile.TemporaryDirectory() as folder:
            done = call("group_record", 1, folder + "/group.fr")
            self.assertEqual(done.returncode, 0, done.stderr)
            names = [line.split()[0] for line in done.stdout.decode().splitlines()]
            self.assertEqual(names, ["without", "with", "ratio"])
            self.assertEqual(os.listdir(folder), [])


class LineCheck(unittest.TestCase):
    def verdict(self, lines, prefix="[default%]:", streams=2, size=20_000):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"".join(lines))
            file.flush()
            return call("line_check", size, streams, prefix, file.name).returncode

    def console(self):
        zero = [b"[default0]:" + line for line in lines_of(0)]
        one = [b"[default1]:" + line for line in lines_of(1)]
        return zero[:7] + one[:90] + zero[7:] + one[90:]

    def test_whole_lines_in_any_mixture_of_ranks_pass(self):
        self.assertEqual(self.verdict(self.console()), 0)

    def test_a_log_file_of_one_rank_passes(self):
        self.assertEqual(self.verdict(lines_of(1), prefix="", streams=1), 0)

    def test_another_ranks_log_file_fails(self):
        self.assertEqual(self.verdict(lines_of(0), prefix="", streams=1), 1)

    def test_a_lost_line_fails(self):
        self.assertEqual(self.verdict(self.console()[:50] + self.console()[51:]), 1)

    def test_a_lost_last_line_fails(self):
        self.assertEqual(self.verdict(self.console()[:-1]), 1)

    def test_a_doubled_last_line_fails(self):
        self.assertEqual(self.verdict(self.console() + self.console()[-1:]), 1)

    def test_two_lines_swapped_within_a_rank_fail(self):
        lines = self.console()
        lines[2], lines[3] = lines[3], lines[2]
        self.assertEqual(self.verdict(lines), 1)

    def test_one_changed_byte_fails(self):
        text = bytearray(b"".join(self.console()))
        text[5000] ^= 1
        self.assertEqual(self.verdict([bytes(text)]), 1)

    def test_a_torn_line_fails(self):
        lines = self.console()
        lines[4] = lines[4][:40] + b"[default1]:" + lines[4][40:]
        self.assertEqual(self.verdict(lines), 1)

    def test_a_missing_last_newline_fails(self):
        self.assertEqual(self.verdict([b"".join(self.console())[:-1]]), 1)

    def test_silence_fails(self):
        self.assertEqual(self.verdict([]), 1)


class TimeRun(unittest.TestCase):
    def test_commands_run_in_turn_and_statuses_are_told(self):
        commands = {"good": ["true"], "bad": ["sh", "-c", "exit 7"], "killed": ["sh", "-c", "kill -9 $$"]}
        runs = measure.run_in_turn(TOOLS / "time_run", commands, 3, 20)
        statuses = {name: [run.status for run in some] for name, some in runs.items()}
        self.assertEqual(statuses, {"good": [0] * 3, "bad": [7] * 3, "killed": [137] * 3})

    def test_a_hang_is_told_and_its_children_are_gone(self):
        mark = "DISTRUN_BENCH_HANG=1"
        env = dict(os.environ, DISTRUN_BENCH_HANG="1")
        script = ["sh", "-c", "setsid sleep 60 & sleep 60"]
        runs = measure.run_in_turn(TOOLS / "time_run", {"hang": script}, 1, 0.3, env=env)
        self.assertTrue(runs["hang"][0].hung)
        self.assertEqual(measure.marked(mark), [])

    def test_what_outlives_its_command_is_counted(self):
        runs = measure.run_in_turn(TOOLS / "time_run", {"orphan": ["sh", "-c", "sleep 1.5 &"]}, 1, 20)
        self.assertEqual(runs["orphan"][0].left_behind, 1)

    def test_slow_commands_run_as_often_as_told(self):
        fast, slow = {"fast": ["true"]}, {"slow": ["true"]}
        runs = measure.run_fast_and_slow(TOOLS / "time_run", fast, 11, slow, 3, 20)
        self.assertEqual([len(runs["fast"]), len(runs["slow"])], [11, 3])


class SpawnFloor(unittest.TestCase):
    def test_it_starts_all_copies_and_waits(self):
        done = call("spawn_floor", 5, "/bin/echo", "here")
        self.assertEqual((done.returncode, done.stdout), (0, b"here\n" * 5))

    def test_a_failing_copy_fails_it(self):
        self.assertEqual(call("spawn_floor", 2, "/bin/false").returncode, 1)


class StoreLoad(unittest.TestCase):
    def test_a_server_that_answers_as_told_gives_operations_without_errors(self):
        with measure.Server([TOOLS / "echo_server"]) as server:
            for operation in ("get", "get16", "set", "wait_get"):
                done = call("store_load", server.port, "echo", operation, 4, 0.5)
                operations, _, errors = done.stdout.split()
                self.assertGreater(int(operations), 0, operation)
                self.assertEqual(int(errors), 0, operation)

    def test_a_wrong_answer_is_an_error(self):
        with measure.Server([TOOLS / "echo_server"]) as server:  # No store: it repeats the request.
            self.assertEqual(call("store_load", server.port, "g4", "get", 4, 0.5).returncode, 1)
            released, errors, *_ = call("store_load", server.port, "g4", "release", 4, 5).stdout.split()
            self.assertEqual((int(released), int(errors)), (0, 4))


class RestartWorker(unittest.TestCase):
    def test_rank_0_dies_as_told_but_in_its_last_life(self):
        with tempfile.TemporaryDirectory() as folder:

            def live(life, cause):
                env = {"RANK": "0", "TORCHELASTIC_RESTART_COUNT": str(life)}
                return call("restart_worker", folder, 3, cause, env=env).returncode

            self.assertEqual([live(0, "exit"), live(1, "kill"), live(2, "kill")], [1, -9, 0])
            names = sorted(path.name for path in pathlib.Path(folder).iterdir())
            self.assertEqual(names, ["died.0", "died.1", "main.0.0", "main.1.0", "main.2.0"])


@unittest.skipUnless((TOOLS / "group_load").exists(), "built without Gloo")
class GroupLoads(unittest.TestCase):
    def test_one_process_has_its_group_when_the_gate_opens(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "gate").touch()
            env = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}  # fmt: skip
            done = call("group_load", folder, env=env)
            self.assertEqual(done.returncode, 0, done.stderr)
            times = [int(word) for word in pathlib.Path(folder, "took.0").read_text().split()]
            self.assertEqual((len(times), times), (4, sorted(times)))

    def test_without_a_gate_or_a_launcher_they_fail(self):
        self.assertEqual(call("group_load", "/nonexistent", env={"RANK": "0"}).returncode, 1)
        self.assertEqual(call("group_load", "/tmp", env={}).returncode, 2)
        self.assertEqual(call("hosts_load", "distrun", "/tmp", 0.1, 8, env={}).returncode, 1)


class Command(unittest.TestCase):
    def test_a_wrong_call_is_refused_with_status_2(self):
        bench = HERE.parent.parent / "scripts" / "bench"
        for wrong in (["--only", "lunch"], ["--rounds", "0"], ["--fast"]):
            done = subprocess.run([sys.executable, str(bench), *wrong], capture_output=True, timeout=30)
            self.assertEqual(done.returncode, 2, wrong)


class Bars(unittest.TestCase):
    def test_at_most_holds_at_the_bar_and_not_above(self):
        self.assertEqual(measure.at_most(6, 2, 3), (3, True))
        self.assertEqual(measure.at_most(6.1, 2, 3)[1], False)

    def test_at_least_holds_at_the_bar_and_not_below(self):
        self.assertEqual(measure.at_least(3, 5, 0.6), (0.6, True))
        self.assertEqual(measure.at_least(2.9, 5, 0.6)[1], False)

    def test_nothing_to_compare_with_is_no_verdict(self):
        self.assertEqual(measure.at_most(6, None, 3), (None, None))

    def test_a_missed_bar_is_seen_in_the_table(self):
        figure = measure.Figure("launch", 9.0, "ms", "floor", 1.0, 9.0, "<= 3x", False)
        self.assertRegex(table.render([figure])[2], r"9\.00x.*<= 3x.*NO")


if __name__ == "__main__":
    unittest.main()
