"""What goes wrong outside of zerorun: one message that says what, where and what to do; the right
exit code; nobody left behind; and what was only late goes on as if nothing had happened."""

import os
import re
import shutil
import signal
import subprocess
import time

import run

ENDLESS = {"run.steps": 1000000, "run.eval_every": 0}


def config_of(bench, **blocks):
    return bench.config(run.LLAMA, 12, **blocks)


def started(bench, config, ranks, sets, run_dir, mpi=()):
    """An endless run in full swing, and its ranks."""
    job = bench.start(config, ranks, dict(ENDLESS, **sets), run_dir, mpi=mpi)
    run.wait_for(
        lambda: len(run.Log(run_dir).events("step")) >= 3 or not job.is_running(), 60, "three steps"
    )
    assert job.is_running(), job.said()
    return job, job.ranks()


def gone_within(job, seconds):
    begun = time.monotonic()
    result = job.wait(seconds)
    took = time.monotonic() - begun
    assert took < seconds * run.SLOW + 3, took
    return result


def test_killed_rank_ends_the_run_under_mpirun(bench):
    config = config_of(bench)
    job, ranks = started(bench, config, 3, {"zero_optimization.stage": 3}, bench.new_dir())
    os.kill(ranks[1], signal.SIGKILL)
    result = gone_within(job, 10)
    assert result.code != 0
    assert (
        "rank 1" in result.stderr and "vanished" in result.stderr or "signal 9" in result.stderr
    ), result.stderr


def test_killed_rank_ends_the_run_without_the_launchers_help(bench):
    """mpirun is told to leave the other ranks alone: they notice by themselves."""
    config = config_of(bench)
    for victim in (0, 2):
        job, ranks = started(
            bench,
            config,
            3,
            {"zero_optimization.stage": 3},
            bench.new_dir(),
            ("--enable-recovery",),
        )
        os.kill(ranks[victim], signal.SIGKILL)
        result = gone_within(job, 10)
        said = result.messages()
        vanished = [
            line
            for line in said
            if "rank %d (process %d) vanished" % (victim, ranks[victim]) in line
        ]
        assert len(vanished) == 1, result.stderr
        assert all(
            "MPI does not end" in line for line in said if line not in vanished
        ), result.stderr


def cpu_seconds(pid):
    """Of all threads of a process."""
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_waiting_ranks_sleep_and_the_run_goes_on(bench):
    """One of three ranks is stopped in mid-run; the others use < 10 % of a core each."""
    seconds = 10 if run.LONG else 5
    config = config_of(bench)
    sets = {
        "zero_optimization.stage": 3,
        "plan.group": 2,
        "run.threads": 2,
        "run.steps": 40,
        "run.delay_us": 200,
    }
    reference = bench.whole(config, 1, dict(sets, **{"run.delay_us": 0})).facts()
    run_dir = bench.new_dir()
    job = bench.start(config, 3, sets, run_dir)
    run.wait_for(lambda: len(run.Log(run_dir).events("step")) >= 3, 60, "three steps")
    ranks = job.ranks()
    os.kill(ranks[1], signal.SIGSTOP)
    try:
        time.sleep(0.5)  # what is under way ends
        before, steps = {r: cpu_seconds(ranks[r]) for r in (0, 2)}, len(
            run.Log(run_dir).events("step")
        )
        time.sleep(seconds)
        used = {r: (cpu_seconds(ranks[r]) - before[r]) / seconds for r in (0, 2)}
        assert len(run.Log(run_dir).events("step")) == steps < 40
    finally:
        os.kill(ranks[1], signal.SIGCONT)
    result = job.wait(90)
    assert result.code == 0, result.stderr
    assert all(share < 0.10 for share in used.values()), used
    run.assert_same(run.Log(run_dir).facts(), reference, "after the pause")
    return "used %s of a core" % ", ".join("%.1f %%" % (100 * share) for share in used.values())


def test_watchdog_names_what_is_late(bench):
    config = config_of(bench)
    run_dir = bench.new_dir()
    job, ranks = started(
        bench, config, 3, {"zero_optimization.stage": 3, "run.watchdog_s": 2 * run.SLOW}, run_dir
    )
    os.kill(ranks[2], signal.SIGSTOP)
    try:
        result = gone_within(job, 20)
    finally:
        try:
            os.kill(ranks[2], signal.SIGCONT)
        except ProcessLookupError:
            pass
    assert result.code in (5, 6), (result.code, result.stderr)
    said = [line for line in result.messages() if "MPI does not end" not in line]
    assert len(said) == 1, result.stderr
    assert "late" in said[0] or "watchdog" in said[0], said
    return said[0]


def test_full_log(bench):
    """/dev/full in the place of the log: every write says that the device is full."""
    config = config_of(bench)
    for ranks in (1, 2):
        run_dir = bench.new_dir()
        os.mkdir(run_dir)
        os.symlink("/dev/full", os.path.join(run_dir, "log.jsonl"))
        result = bench.run(config, ranks, {}, run_dir, code=4)
        said = result.messages()
        assert (
            len(said) == 1 and "log.jsonl" in said[0] and "free some space" in said[0]
        ), result.stderr


def mount(folder, kib):
    os.makedirs(folder, exist_ok=True)
    return (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=%dk" % kib, "tmpfs", folder],
            stderr=subprocess.DEVNULL,
        ).returncode
        == 0
    )


def fill(path):
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass


def test_full_folder(bench):
    """A checkpoint does not fit its file system: the run ends, the one before is still whole."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "skipped: needs root to mount a small file system"
    disk = bench.path("small")
    if not mount(disk, 1024):
        return "skipped: may not mount a file system here"
    try:
        config, run_dir = config_of(bench), os.path.join(disk, "run")
        bench.run(config, 2, {"run.steps": 2}, run_dir)
        fill(os.path.join(disk, "ballast"))
        for ranks in (1, 2):
            result = bench.run(config, ranks, {}, run_dir, code=4)
            said = result.messages()
            assert len(said) == 1 and disk in said[0] and "space" in said[0], result.stderr
        os.unlink(os.path.join(disk, "ballast"))
        bench.run(config, 2, {}, run_dir)
        starts = [line["step"] for line in run.Log(run_dir).events("start")]
        assert starts[-1] == 2, starts
        run.assert_same(
            (run.Log(run_dir).facts(3)[0], {}),
            (bench.whole(config).facts(3)[0], {}),
            "with space again",
        )
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    return None


def test_unwritable_folder(bench):
    config = config_of(bench)
    os.symlink("/nowhere/else", bench.path("dangling"))
    for ranks, run_dir in (
        (1, "/proc/zerorun"),
        (2, os.path.join(bench.train, "run")),
        (1, bench.path("dangling")),
    ):
        result = bench.run(config, ranks, {}, run_dir, code=5)
        said = result.messages()
        assert len(said) == 1 and run_dir in said[0], result.stderr


def test_data_that_is_gone_or_cut_between_runs(bench):
    data = bench.path("changing.txt")
    shutil.copy(bench.train, data)
    config = config_of(bench, data={"train": data})
    run_dir = bench.new_dir()
    bench.run(config, 2, {"run.steps": 2}, run_dir)
    for size in (5000, 16, 0, None):
        os.unlink(data) if size is None else os.truncate(data, size)
        result = bench.run(config, 2 if size is None else 1, {}, run_dir, code=3)
        said = result.messages()
        assert len(said) == 1, result.stderr
        # Long enough to go on, but with other samples: the checkpoint knows.
        wanted = "6007 tokens in data.train, now there are 5000" if size == 5000 else data
        assert wanted in said[0], result.stderr
    shutil.copy(bench.train, data)
    bench.run(config, 1, {}, run_dir)
    assert run.Log(run_dir).events("end")[-1]["step"] == 6


def test_two_runs_in_one_folder(bench):
    config, run_dir = config_of(bench), bench.new_dir()
    job, _ = started(bench, config, 2, {}, run_dir)
    result = bench.run(config, 1, {}, run_dir, code=2)
    assert re.search("another run is writing", result.stderr), result.stderr
    assert job.is_running()
    job.kill()


if __name__ == "__main__":
    run.main(
        [
            test_killed_rank_ends_the_run_under_mpirun,
            test_killed_rank_ends_the_run_without_the_launchers_help,
            test_waiting_ranks_sleep_and_the_run_goes_on,
            test_watchdog_names_what_is_late,
            test_full_log,
            test_full_folder,
            test_unwritable_folder,
            test_data_that_is_gone_or_cut_between_runs,
            test_two_runs_in_one_folder,
        ]
    )
