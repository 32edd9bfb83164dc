"""Stop and go on, on other ranks, stages and orders: the lines of a run that never stopped."""

import json
import os
import random
import shutil
import signal
import time

import run

N_STEPS = 8
OTHERS = (  # where a run stops and where it goes on
    (
        (1, {"zero_optimization.stage": 0}),
        (4, {"zero_optimization.stage": 3, "plan.order": "breadth"}),
    ),
    ((4, {"zero_optimization.stage": 3}), (2, {"zero_optimization.stage": 1, "run.serial": True})),
    ((2, {"zero_optimization.stage": 2, "plan.order": "breadth"}), (1, {"run.threads": 3})),
    ((2, {"zero_optimization.stage": 3}), (8, {"zero_optimization.stage": 2})),
)


def config_of(bench, **run_options):
    # 900 bytes hold 56 samples: the run goes through its data twice, shuffled anew each time.
    return bench.config(
        run.GPT2,
        8,
        N_STEPS,
        run=dict({"eval_every": 4}, **run_options),
        data={"train": bench.train_short},
    )


def prepare(bench):
    bench.train_short = bench.path("short.txt")
    if not os.path.exists(bench.train_short):
        run.text_file(bench.train_short, 900, 3)
        bench.uncut = bench.whole(config_of(bench)).facts()
        assert sorted(bench.uncut[0]) == list(range(1, N_STEPS + 1)) and sorted(bench.uncut[1]) == [
            4,
            8,
        ]
    return config_of(bench), bench.uncut


def check_continued(run_dir, uncut, stopped_at, first=1):
    """All lines of both parts are those of the uncut run, each step is there once."""
    log = run.Log(run_dir)
    steps = [line["step"] for line in log.events("step")]
    assert steps == list(range(first, N_STEPS + 1)), steps
    starts = log.events("start")
    assert [line["step"] for line in starts] == [0, stopped_at], starts
    got = log.facts(first)
    run.assert_same((got[0], {}), (uncut[0], {}), "resumed at %d" % stopped_at)
    assert got[1][N_STEPS] == uncut[1][N_STEPS]


def test_run_steps_small_then_more(bench):
    config, uncut = prepare(bench)
    for number, ((ranks, sets), (other_ranks, other_sets)) in enumerate(OTHERS):
        stop, run_dir = 2 + number, bench.new_dir()
        bench.run(config, ranks, dict(sets, **{"run.steps": stop, "run.eval_every": 0}), run_dir)
        result = bench.run(config, other_ranks, other_sets, run_dir)
        assert "continued from" in result.stdout
        check_continued(run_dir, uncut, stop)
        again = bench.run(config, other_ranks, other_sets, run_dir)
        assert "finished" in again.stdout, again.stdout
        check_unchanged(run_dir)


def check_unchanged(run_dir):
    assert len(run.Log(run_dir).events("step")) == N_STEPS


def slow_start(bench, config, ranks, sets, run_dir, env=None):
    """A run that takes its time between operations, once it has made two steps."""
    job = bench.start(config, ranks, dict(sets, **{"run.delay_us": 1000}), run_dir, env)
    run.wait_for(
        lambda: len(run.Log(run_dir).events("step")) >= 2, 60, "two steps of\n" + job.said()
    )
    return job


def test_sigterm_to_one_rank_saves_and_ends(bench):
    config, uncut = prepare(bench)
    for ranks, other in ((1, 2), (2, 4)):
        run_dir = bench.new_dir()
        job = slow_start(bench, config, ranks, {"zero_optimization.stage": 3}, run_dir)
        os.kill(job.process.pid if ranks == 1 else job.ranks()[ranks - 1], signal.SIGTERM)
        result = job.wait(60)
        assert result.code == 0, result.stderr
        end = run.Log(run_dir).events("end")[-1]
        assert end["reason"] == "stopped" and 2 <= end["step"] < N_STEPS, end
        bench.run(config, other, {"plan.order": "breadth"}, run_dir)
        check_continued(run_dir, uncut, end["step"])


def test_sigusr1_saves_and_goes_on_then_killed(bench):
    config, uncut = prepare(bench)
    run_dir = bench.new_dir()
    job = slow_start(bench, config, 2, {"zero_optimization.stage": 2}, run_dir)
    os.kill(job.ranks()[1], signal.SIGUSR1)
    save = run.wait_for(lambda: run.Log(run_dir).events("save"), 60, "a checkpoint")[0]
    job.kill()
    at = save["step"]
    assert 2 <= at < N_STEPS, at
    assert os.path.isdir(os.path.join(run_dir, "checkpoints", "step-%08d" % at))
    bench.run(config, 4, {"zero_optimization.stage": 3}, run_dir)
    # Steps that the killed run had made after its checkpoint are made again, with the same bits.
    log = run.Log(run_dir)
    assert log.events("start")[-1]["step"] == at
    run.assert_same((log.facts()[0], {}), (uncut[0], {}), "killed after %d" % at)
    run.assert_same((log.facts(at + 1)[0], {}), (part(uncut, at + 1), {}), "resumed at %d" % at)
    lines = {}
    for line in log.events("step"):
        lines.setdefault(line["step"], []).append({key: line[key] for key in run.EXACT})
    assert all(one == several[0] for several in lines.values() for one in several)


def test_killed_at_any_moment_leaves_a_good_checkpoint(bench):
    """A checkpoint after every step, all ranks killed wherever they are, often inside of one."""
    config, uncut = prepare(bench)
    run_dir = bench.new_dir()
    sets = {"checkpoint.every": 1, "run.steps": 100000, "run.eval_every": 0}
    chance = random.Random(7)
    reached = 0
    for ranks in (2, 1, 4, 2) if run.LONG else (2, 1):
        job = bench.start(
            config, ranks, dict(sets, **{"zero_optimization.stage": ranks % 3 + 1}), run_dir
        )
        run.wait_for(lambda: last_save(run_dir) > reached + 1, 60, "two checkpoints")
        time.sleep(chance.random() * 0.2)
        job.kill()
        reached = last_save(run_dir)
        bench.run(config, 1, dict(sets, **{"run.steps": reached + 2}), run_dir)
        reached = last_save(run_dir)
    log = run.Log(run_dir)
    whole = bench.whole(config, 1, {"run.steps": reached, "run.eval_every": 0}).facts()
    run.assert_same((log.facts()[0], {}), (whole[0], {}), "after all the kills")
    left = os.listdir(os.path.join(run_dir, "checkpoints"))
    assert len(left) == 3 and "latest" in left, left  # keep_last, and nothing half written
    return "%d steps" % reached


def last_save(run_dir):
    return max([line["step"] for line in run.Log(run_dir).events("save")], default=0)


def test_sigterm_to_the_launcher(bench):
    """Open MPI hands it to the ranks after a time (default: a second), and kills after another."""
    config, _ = prepare(bench)
    run_dir = bench.new_dir()
    endless = {"run.steps": 100000, "run.eval_every": 0}
    patience = {"OMPI_MCA_odls_base_sigkill_timeout": "3"}
    job = slow_start(bench, config, 2, endless, run_dir, patience)
    job.process.send_signal(signal.SIGTERM)
    job.wait(30)
    log = run.Log(run_dir)
    at = last_save(run_dir)
    assert log.events("end")[-1]["reason"] == "stopped" and at == log.events("step")[-1]["step"]
    bench.run(config, 4, dict(endless, **{"run.steps": at + 2}), run_dir)
    whole = bench.whole(config, 1, dict(endless, **{"run.steps": at + 2}))
    run.assert_same((run.Log(run_dir).facts()[0], {}), (whole.facts()[0], {}), "after SIGTERM")


def part(facts, first):
    return {step: line for step, line in facts[0].items() if step >= first}


def saved_run(bench, config):
    """A run of four steps on two ranks with two checkpoints, at 2 and 4: its folder."""
    run_dir = bench.new_dir()
    bench.run(
        config, 2, {"run.steps": 4, "checkpoint.every": 2, "zero_optimization.stage": 3}, run_dir
    )
    assert sorted(os.listdir(os.path.join(run_dir, "checkpoints"))) == [
        "latest",
        "step-00000002",
        "step-00000004",
    ]
    return run_dir


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset if offset >= 0 else os.path.getsize(path) + offset)
        place = file.tell()
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 0x10]))


def damage(kind, path):
    if kind == "missing":
        os.unlink(path)
    elif kind == "cut":
        os.truncate(path, os.path.getsize(path) - 100)
    else:
        flip(path, {"bit": -200, "head": 4}[kind])


def test_damaged_checkpoint_is_refused_by_name(bench):
    config, uncut = prepare(bench)
    whole = saved_run(bench, config)
    latest = os.path.join("checkpoints", "step-00000004")
    files = sorted(os.listdir(os.path.join(whole, latest)))
    tensors = [name for name in files if name.endswith(".safetensors")]
    assert len(tensors) == 2, files
    cases = [
        (name, kind)
        for name in (tensors[-1], "manifest.json")
        for kind in ("bit", "cut", "missing")
    ]
    for name, kind in cases + [(tensors[0], "head")]:
        run_dir = bench.new_dir()
        shutil.copytree(whole, run_dir)
        damage(kind, os.path.join(run_dir, latest, name))
        ranks = 2 if kind == "bit" else 1
        result = bench.run(config, ranks, {}, run_dir, code=3)
        said = result.messages()
        assert len(said) == 1 and name in said[0] and "step-00000004" in said[0], (
            name,
            kind,
            result.stderr,
        )
        assert len(run.Log(run_dir).events("step")) == 4
    # The remedy of the message: the older checkpoint is still good.
    with open(os.path.join(run_dir, "checkpoints", "latest"), "w") as file:
        file.write("step-00000002\n")
    bench.run(config, 1, {}, run_dir)
    run.assert_same((run.Log(run_dir).facts()[0], {}), (uncut[0], {}), "from the older checkpoint")


def test_other_numeric_options_are_refused(bench):
    config, uncut = prepare(bench)
    run_dir = saved_run(bench, config)
    before = run.read(os.path.join(run_dir, "log.jsonl"))
    for key, value in (
        ("optimizer.params.lr", "0.5"),
        ("gradient_clipping", "0.7"),
        ("data.seed", "5"),
        ("plan.logits_chunk", "8"),
        ("scheduler.params.min_lr", "1e-7"),
    ):
        result = bench.run(config, 2 if key == "data.seed" else 1, {key: value}, run_dir, code=2)
        said = result.messages()
        assert len(said) == 1 and key in said[0], (key, result.stderr)
    assert run.read(os.path.join(run_dir, "log.jsonl")) == before
    bench.run(
        config,
        2,
        {"optimizer.params.weight_decay": "0.2", "checkpoint.ignore_options": True},
        run_dir,
    )
    last = run.Log(run_dir).facts()[0]
    assert last[N_STEPS]["digest_params"] != uncut[0][N_STEPS]["digest_params"]


def test_no_resume_starts_again(bench):
    config, uncut = prepare(bench)
    run_dir = saved_run(bench, config)
    bench.run(config, 1, {"checkpoint.resume": False}, run_dir)
    assert [line["step"] for line in run.Log(run_dir).events("start")] == [0, 0]
    run.assert_same(run.Log(run_dir).facts(), uncut, "a fresh start")


def test_manifest_says_the_cursor(bench):
    config, _ = prepare(bench)
    run_dir = saved_run(bench, config)
    manifest = json.loads(
        run.read(os.path.join(run_dir, "checkpoints", "step-00000004", "manifest.json"))
    )
    assert manifest["step"] == 4 and manifest["data"]["iteration"] == 4, manifest
    assert manifest["counters"]["tokens"] == 4 * 16 * 16


if __name__ == "__main__":
    long_tests = [test_sigterm_to_the_launcher] if run.LONG else []
    run.main(
        long_tests
        + [
            test_run_steps_small_then_more,
            test_sigterm_to_one_rank_saves_and_ends,
            test_sigusr1_saves_and_goes_on_then_killed,
            test_killed_at_any_moment_leaves_a_good_checkpoint,
            test_damaged_checkpoint_is_refused_by_name,
            test_other_numeric_options_are_refused,
            test_no_resume_starts_again,
            test_manifest_says_the_cursor,
        ]
    )
