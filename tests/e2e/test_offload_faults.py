"""Disks that are missing, full, refused, shared, broken; and nothing that grows while a run goes on."""

import os
import shutil
import signal
import subprocess
import time

import run
import test_faults

HOMES = ("param", "grad", "optimizer", "activation")
DISK = dict({"plan.homes." + state: "disk" for state in HOMES}, **{"plan.chunk": 1024})
RESIDENT = {}
FAIL_LIBRARY = os.environ.get("ZR_DISK_FAIL_LIBRARY", "")
COUNT_LIBRARY = os.environ.get("ZR_COUNT_ALLOC_LIBRARY", "")


def config_of(bench):
    return bench.config(run.LLAMA, 4, 4)


def resident(bench):
    """What a run of config_of says with everything on the device."""
    if bench not in RESIDENT:
        RESIDENT[bench] = bench.whole(config_of(bench)).facts()
    return RESIDENT[bench]


def folder(bench):
    path = bench.new_dir() + "-disk"
    os.mkdir(path)
    return path


def on_disk(path, **more):
    return dict(DISK, **{"zero_optimization.stage": 3, "memory.disk_path": path}, **more)


def refused(bench, path, code, wanted):
    for ranks in (1, 2):
        result = bench.run(config_of(bench), ranks, on_disk(path), bench.new_dir(), code=code)
        said = result.messages()
        assert len(said) == 1 and path in said[0] and wanted in said[0], result.stderr


def test_paths_that_are_no_place(bench):
    refused(bench, bench.path("nowhere"), 2, "No such file or directory")
    refused(bench, bench.train, 2, "Not a directory")


def test_paths_too_small_or_not_writable(bench):
    path = bench.path("small-disk")
    if os.geteuid() != 0 or shutil.which("mount") is None or not test_faults.mount(path, 128):
        return "skipped: may not mount a file system here"
    try:
        refused(bench, path, 4, "bytes are missing")
        for option in ("remount,size=8m", "remount,ro"):
            subprocess.run(["mount", "-o", option, path], check=True)
        refused(bench, path, 2, "Read-only file system")
    finally:
        subprocess.run(["umount", "-l", path], check=True)
    return None


def test_every_engine_gives_the_same_bits(bench):
    """Threads, two paths, checksums: as without a disk."""
    first, second = folder(bench), folder(bench)
    for ranks, path, more in (
        (1, first, {"memory.disk_backend": "posix"}),
        (2, "[%s, %s]" % (first, second), {"memory.checksums": True, "aio.block_size": 4096}),
        (2, first, {"memory.disk_backend": "posix", "memory.checksums": True, "plan.slots": 1}),
    ):
        log = bench.whole(config_of(bench), ranks, on_disk(path, **more))
        run.assert_same(log.facts(), resident(bench), str(more))
    assert os.listdir(first) == os.listdir(second) == []


def test_goes_on_without_locked_memory(bench):
    """And so without io_uring where that needs locked memory; both are said once."""
    capsh = shutil.which("capsh")
    if capsh is None:
        return "skipped: needs capsh to give up the right to lock memory"
    before = ["bash", "-c", 'ulimit -l 0 && exec "$@"', "bash"]
    if os.geteuid() == 0:
        before += [capsh, "--drop=cap_ipc_lock", "--", "-c", 'exec "$@"', "bash"]
    run_dir = bench.new_dir()
    result = bench.run(config_of(bench), 1, on_disk(folder(bench)), run_dir, before=before)
    said = [line for line in result.stderr.splitlines() if "not pinned" in line]
    assert len(said) == 1 and "ulimit -l" in said[0], result.stderr
    log = run.Log(run_dir)
    tiers = log.events("start")[0]["tiers"]
    assert not tiers["host_pinned"] and "mlock" in tiers["host_notice"], tiers
    run.assert_same(log.facts(), resident(bench), "unpinned")
    return tiers["disk"].partition("; ")[2]


def test_killed_run_leaves_nothing(bench):
    path, run_dir = folder(bench), bench.new_dir()
    job, ranks = test_faults.started(bench, config_of(bench), 2, on_disk(path), run_dir)
    assert os.listdir(path) == []  # nameless from the start
    for pid in ranks.values():
        os.kill(pid, signal.SIGKILL)
    assert job.wait(20).code != 0
    assert os.listdir(path) == []


def test_two_jobs_share_a_path(bench):
    path, dirs = folder(bench), (bench.new_dir(), bench.new_dir())
    config = config_of(bench)
    jobs = [bench.start(config, 1 + i, on_disk(path), dirs[i]) for i in range(2)]
    for job, run_dir in zip(jobs, dirs):
        result = job.wait(120)
        assert result.code == 0, result.stderr
        run.assert_same(run.Log(run_dir).facts(), resident(bench), "beside another job")
    assert os.listdir(path) == []


def test_broken_drive_ends_all_ranks(bench):
    """EIO in mid-run: one message that says rank, unit, operation, file, place and cause."""
    if not FAIL_LIBRARY:
        return "skipped: needs ZR_DISK_FAIL_LIBRARY"
    for verb, rank in (("read", 1), ("write", 0)):
        env = {
            "LD_PRELOAD": FAIL_LIBRARY,
            "ZR_DISK_FAIL": verb + ":200",
            "ZR_DISK_FAIL_RANK": str(rank),
        }
        sets = on_disk(folder(bench), **test_faults.ENDLESS)
        sets["memory.disk_backend"] = "posix"
        run_dir = bench.new_dir()
        begun = time.monotonic()
        result = bench.run(config_of(bench), 2, sets, run_dir, env, timeout=30, code=5)
        took = time.monotonic() - begun
        steps = len(run.Log(run_dir).events("step"))
        assert steps >= 1, "it ended before the first step"
        said = result.messages()
        assert len(said) == 1, result.stderr
        for wanted in (
            "rank %d: " % rank,
            "/disk_%s on %s: " % (verb, verb),
            "/data: %s of " % verb,
            " bytes at ",
            "Input/output error",
        ):
            assert wanted in said[0], (wanted, said)
        assert took < 15 * run.SLOW, took
    return said[0]


# --- nothing grows -------------------------------------------------------------------------------


def kept(pid):
    """(resident bytes, open files) of a process, or None when it is gone."""
    try:
        with open("/proc/%d/statm" % pid) as file:
            pages = int(file.read().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/%d/fd" % pid))
    except (OSError, IndexError):
        return None


def watched(bench, config, sets, run_dir):
    """A whole run: (steps made, resident bytes, open files) some fifty times a second."""
    job = bench.start(config, 1, sets, run_dir)
    path, n_steps, seen = os.path.join(run_dir, "log.jsonl"), 0, []
    run.wait_for(lambda: os.path.exists(path) or not job.is_running(), 30, "the log")
    with open(path) as log:
        while job.is_running():
            n_steps += log.read().count('"event":"step"')
            now = kept(job.process.pid)
            if now and job.is_running():
                seen.append((n_steps,) + now)
            time.sleep(0.02)
    result = job.wait(60)
    assert result.code == 0, result.stderr
    return seen


def test_nothing_grows(bench):
    """Streams keep their queues in rings, whose pages are touched as the first round reaches them:
    some hundred KiB in some hundred steps. After that, less than a hundred bytes a step."""
    steps, first, most = (2000, 600, 64 << 10) if run.LONG else (200, 20, 512 << 10)
    config = bench.config(
        run.LLAMA, 4, steps, run={"eval_every": 0, "digest": "none"}, data={"eval": []}
    )
    sets = on_disk(folder(bench), **{"checkpoint.at_end": False, "run.log_every": steps})
    seen = watched(bench, config, sets, bench.new_dir())
    early = [row for row in seen if first <= row[0] < (first + steps) // 2]
    late = [row for row in seen if (first + steps) // 2 <= row[0] < steps]
    assert len(early) >= 3 and len(late) >= 3, (len(seen), seen[-1])
    held, files = early[0][1], early[0][2]
    assert max(row[2] for row in late) <= files, (early[0], late[-1])
    grown = max(row[1] for row in late) - held
    assert grown <= most, "%d bytes more than the %d at step %d" % (grown, held, first)
    return "%d steps, %d KiB more, %d files" % (steps, grown >> 10, files)


def test_steps_allocate_no_more_than_without_a_disk(bench):
    """What streams and workers allocate, in two runs with twice the steps."""
    if not COUNT_LIBRARY:
        return "skipped: needs ZR_COUNT_ALLOC_LIBRARY"
    config = bench.config(run.LLAMA, 4, 8, run={"eval_every": 0}, data={"eval": []})
    counts = {}
    for name, sets in (("device", {}), ("disk", on_disk(folder(bench)))):
        for steps in (4, 8):
            out = bench.new_dir() + "-calls"
            env = {"LD_PRELOAD": COUNT_LIBRARY, "ZR_COUNT_ALLOC": out}
            bench.run(config, 1, dict(sets, **{"run.steps": steps}), bench.new_dir(), env)
            counts[name, steps] = int(run.read(out))
    more = {name: counts[name, 8] - counts[name, 4] for name in ("device", "disk")}
    assert more["disk"] == more["device"], counts
    return "%d calls a step, oneDNN's own" % (more["disk"] // 4)


if __name__ == "__main__":
    # Sanitizers keep memory that was freed, and lock none.
    plain = [test_nothing_grows, test_goes_on_without_locked_memory]
    run.main(
        (plain if run.SLOW == 1 else [])
        + [
            test_paths_that_are_no_place,
            test_paths_too_small_or_not_writable,
            test_every_engine_gives_the_same_bits,
            test_killed_run_leaves_nothing,
            test_two_jobs_share_a_path,
            test_broken_drive_ends_all_ranks,
            test_steps_allocate_no_more_than_without_a_disk,
        ]
    )
