"""Models larger than the memory they are given; what a process holds against what its plan says;
stop and resume while states live elsewhere."""

import os
import signal
import sys

import run
import test_resume

MIB = 1 << 20
HELD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "held.py")
DEVICE = {"param": "device", "grad": "device", "optimizer": "device", "activation": "device"}
DISK = {"param": "disk", "grad": "disk", "optimizer": "disk", "activation": "disk"}


def homes(places):
    return {"plan.homes." + state: home for state, home in places.items()}


def held_by(bench, config, sets, limit="none", code=0):
    """(bytes a run held at most, its log)"""
    run_dir, out = bench.new_dir(), bench.new_dir() + "-held"
    before = (sys.executable, HELD, out, limit)
    bench.run(config, 1, sets, run_dir, code=code, before=before)
    return int(run.read(out)), run.Log(run_dir)


def planned(log):
    """What the plan puts into this process's memory."""
    return sum(log.events("step")[-1]["peak_bytes"][tier] for tier in ("device", "host"))


def fits(held, log):
    """The promise: a process holds its plan within 5 % and 64 MiB."""
    size = planned(log)
    assert held <= size * 1.05 + 64 * MIB, "%d held, %d planned" % (held, size)


# --- more than fits ------------------------------------------------------------------------------


def oversized(bench):
    """bf16, gradients too; its states are several times what the device and the host may hold."""
    hidden, layers = (384, 14) if run.LONG else (256, 8)
    return bench.config(
        dict(run.GPT2, n_embd=hidden, n_layer=layers, n_head=4, vocab_size=12000),
        2,
        2,
        run={"eval_every": 0, "digest": "none"},
        data={"eval": []},
        checkpoint={"at_end": False},
        scheduler={"type": "Constant", "params": {}},
        bf16={"enabled": True},
        data_types={"grad_accum_dtype": "bf16"},
        plan={"order": "breadth", "recompute": "full", "chunk": 1 << 18, "slots": 3},
    )


BUDGETS = {"memory.device": "40MiB", "memory.host": "20MiB"}


class Group:
    """A control group that may hold `limit` bytes, or None in its place where there is none."""

    def __init__(self, limit):
        self.folder = None
        for root, names in (
            ("/sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")),
            ("/sys/fs/cgroup", ("memory.max", "memory.swap.max")),
        ):
            folder = os.path.join(root, "zr-e2e-%d" % os.getpid())
            try:
                os.mkdir(folder)
            except OSError:
                continue
            if self._limit(folder, names, limit):
                self.folder = folder
                return
            os.rmdir(folder)

    @staticmethod
    def _limit(folder, names, limit):
        values = (limit, 0 if names[1].endswith("swap.max") else limit)
        for name, value in zip(names, values):
            path = os.path.join(folder, name)
            if name != names[0] and not os.path.exists(path):
                continue  # no swap to account for
            try:
                with open(path, "w") as file:
                    file.write(str(value))
            except OSError:
                return False
        return True

    def close(self):
        if self.folder:
            os.rmdir(self.folder)


def test_trains_what_does_not_fit(bench):
    config = oversized(bench)
    sets = dict(BUDGETS, **homes(DISK))
    result = bench.run(config, 1, dict(BUDGETS, **homes(DEVICE)), bench.new_dir(), code=4)
    assert "does not fit" in result.stderr, result.stderr
    held, log = held_by(bench, config, sets)
    fits(held, log)
    states = log.events("step")[-1]["peak_bytes"]["disk"]
    params = log.events("start")[0]["parameters"]
    assert states >= 14 * params > 2 * planned(log), (states, params, planned(log))
    assert held < states, (held, states)
    # The start writes everything once, and the parameters' two halves over it; then steps.
    written = log.events("end")[0]["disk"]["written_bytes"]
    steps = sum(line["bytes"]["disk_write"] for line in log.events("step"))
    assert written - steps <= states + 4 * params + 4 * MIB, (written, steps, states)
    return "%d MiB of states in %d MiB held, %d MiB planned" % tuple(
        size // MIB for size in (states, held, planned(log))
    )


def test_trains_under_a_limit_below_its_states(bench):
    """The kernel holds the process to what the plan says, within 5 % and 64 MiB."""
    config = oversized(bench)
    sets = dict(BUDGETS, **homes(DISK))
    tiers = bench.plan(config, 1, sets)["plans"]["step"]["tiers"]
    size = tiers["device"]["arena_bytes"] + tiers["host"]["arena_bytes"]
    limit = int(size * 1.05) + 64 * MIB
    assert limit < tiers["disk"]["arena_bytes"], (limit, tiers)
    group = Group(limit)
    try:
        if group.folder:
            held_by(bench, config, sets, "group:" + group.folder)
            return "a control group of %d MiB" % (limit // MIB)
    finally:
        group.close()
    # Stacks count, touched or not, and two dozen threads have 8 MiB each.
    limit += 24 * 8 * MIB
    held_by(bench, config, sets, "data:%d" % limit)
    return "RLIMIT_DATA of %d MiB, for want of a control group" % (limit // MIB)


# --- each state moved down -----------------------------------------------------------------------

DOWN = (  # one state more on disk each time
    DEVICE,
    dict(DEVICE, grad="host", optimizer="host"),
    dict(DEVICE, grad="host", optimizer="disk"),
    dict(DEVICE, grad="disk", optimizer="disk"),
    dict(DEVICE, grad="disk", optimizer="disk", param="disk"),
)


def tight(bench, config, sets):
    """With hardly more of the device than the step needs: what is free would serve overlap."""
    device = bench.plan(config, 1, sets)["plans"]["step"]["tiers"]["device"]
    return dict(sets, **{"memory.device": int(device["lower_bound_bytes"] * 1.02)})


def test_held_memory_falls_with_each_state(bench):
    """As far as the plan says, within 5 % and 6 MiB; a state on the host is still in memory."""
    config = bench.config(
        dict(run.GPT2, n_embd=192, n_layer=6, n_head=4, vocab_size=12000),
        2,
        1,
        run={"eval_every": 0, "digest": "none"},
        data={"eval": []},
        checkpoint={"at_end": False},
        scheduler={"type": "Constant", "params": {}},
        plan={"order": "breadth", "chunk": 1 << 17, "slots": 2, "prefetch": 0},
    )
    rows = []
    for places in DOWN:
        held, log = held_by(bench, config, tight(bench, config, homes(places)))
        fits(held, log)
        rows.append((held, planned(log)))
    said = ", ".join("%d of %d" % (held // MIB, size // MIB) for held, size in rows)
    for (held, size), (less_held, less_size) in zip(rows, rows[1:]):
        off = (held - less_held) - (size - less_size)
        assert abs(off) <= 0.05 * size + 6 * MIB, said
    for row, less in ((1, 2), (2, 3), (3, 4)):
        assert rows[less][0] < rows[row][0] - 6 * MIB, said
    return said + " MiB"


# --- stop and go on ------------------------------------------------------------------------------

OTHERS = (  # where a run stops and where it goes on
    ((1, DISK), (2, DEVICE)),
    ((2, DEVICE), (1, DISK)),
    ((2, DISK), (2, dict(DEVICE, grad="host", optimizer="host"))),
)


def away(places):
    return dict(homes(places), **{"zero_optimization.stage": 3, "plan.chunk": 2048})


def test_resumes_from_other_homes(bench):
    config, uncut = test_resume.prepare(bench)
    for number, ((ranks, places), (other_ranks, other_places)) in enumerate(OTHERS):
        stop, run_dir = 3 + number, bench.new_dir()
        sets = dict(away(places), **{"run.steps": stop, "run.eval_every": 0})
        bench.run(config, ranks, sets, run_dir)
        bench.run(config, other_ranks, away(other_places), run_dir)
        test_resume.check_continued(run_dir, uncut, stop)


def test_signals_while_states_live_on_disk(bench):
    """SIGUSR1 saves and goes on, SIGTERM saves and ends; the rest is trained on the device."""
    config, uncut = test_resume.prepare(bench)
    for ranks, number in ((1, signal.SIGTERM), (2, signal.SIGUSR1)):
        run_dir = bench.new_dir()
        job = bench.start(config, ranks, dict(away(DISK), **{"run.delay_us": 200}), run_dir)
        run.wait_for(lambda: len(run.Log(run_dir).events("step")) >= 2, 60, "two steps")
        os.kill(job.process.pid if ranks == 1 else job.ranks()[1], number)
        if number == signal.SIGUSR1:
            run.wait_for(lambda: run.Log(run_dir).events("save"), 60, "a checkpoint")
            job.kill()
        else:
            result = job.wait(60)
            assert result.code == 0, result.stderr
            assert run.Log(run_dir).events("end")[-1]["reason"] == "stopped"
        at = run.Log(run_dir).events("save")[-1]["step"]
        assert 2 <= at < test_resume.N_STEPS, at
        bench.run(config, 3 - ranks, {"zero_optimization.stage": 1}, run_dir)
        log = run.Log(run_dir)
        assert log.events("start")[-1]["step"] == at
        run.assert_same((log.facts()[0], {}), (uncut[0], {}), "resumed at %d" % at)


if __name__ == "__main__":
    # Of a process with a sanitizer in it, its memory says nothing.
    measured = [
        test_trains_what_does_not_fit,
        test_trains_under_a_limit_below_its_states,
        test_held_memory_falls_with_each_state,
    ]
    run.main(
        (measured if run.SLOW == 1 else [])
        + [
            test_resumes_from_other_homes,
            test_signals_while_states_live_on_disk,
        ]
    )
