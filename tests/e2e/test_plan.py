"""`zerorun plan`: no MPI, no data, no run folder; and what it says is what a run does."""

import os
import re
import subprocess

import run

SETTINGS = (
    (1, {"zero_optimization.stage": 0}),
    (2, {"zero_optimization.stage": 1, "plan.order": "breadth", "run.threads": 2}),
    (3, {"zero_optimization.stage": 2, "plan.group": 0, "run.threads": 1}),
    (4, {"zero_optimization.stage": 3, "plan.prefetch": 2, "run.threads": 3}),
)


def test_it_touches_nothing(bench):
    config = bench.config(
        run.LLAMA, 12, data={"train": "/nowhere/train.txt", "eval": "/nowhere/eval.txt"}
    )
    run_dir = bench.new_dir()
    before = sorted(os.listdir(bench.folder))
    for ranks, sets in SETTINGS + ((12, {"zero_optimization.stage": 3}),):
        report = bench.plan(config, ranks, dict(sets, **{"run.dir": run_dir}))
        assert report["ranks"] == ranks and set(report["plans"]) >= {
            "load",
            "step",
            "eval",
            "eval_end",
        }
    after = [
        name for name in sorted(os.listdir(bench.folder)) if not name.endswith((".out", ".err"))
    ]
    assert after == before, after


def test_it_needs_no_mpi(bench):
    """No launcher, nor the daemon that Open MPI starts for a lone process."""
    config = bench.config(run.LLAMA, 8)
    trace = bench.path("strace.txt")
    try:
        done = subprocess.run(
            [
                "strace",
                "-f",
                "-o",
                trace,
                "-e",
                "trace=execve,socket",
                bench.zerorun,
                "plan",
                "--ranks",
                "4",
                config,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError:
        done = None
    if done is None or done.returncode != 0:
        env = {"PATH": "/nowhere", "OMPI_MCA_btl": "none"}
        done = subprocess.run(
            [bench.zerorun, "plan", "--ranks", "4", config], env=env, stdout=subprocess.PIPE
        )
        assert done.returncode == 0 and b"sent to other ranks" in done.stdout
        return "without strace"
    calls = run.read(trace)
    assert calls.count("execve(") == 1 and "socket(" not in calls, calls[:2000]
    return None


def printed(text, name):
    return int(re.search(r"%s\s+(\d+)" % re.escape(name), text).group(1))


def test_it_equals_the_run(bench):
    for model, (ranks, sets) in zip((run.LLAMA, run.GPT2) * 2, SETTINGS):
        config = bench.config(model, 12, 3, run={"eval_every": 0})
        log = bench.whole(config, ranks, sets)
        threads = log.events("start")[0]["machine"]["threads"]
        sets = dict(sets, **{"run.threads": threads})
        predicted, report = bench.plan(config, ranks, sets), log.plan()
        # The step's time is of the plan's account alone; the run says it in its log.
        assert predicted.pop("predicted")["step_s"] > 0
        assert predicted == report
        assert log.events("start")[0]["plan_hash"] == predicted["hash"]
        step, line = predicted["plans"]["step"], log.events("step")[-1]
        assert line["peak_bytes"] == {
            tier: step["tiers"][tier]["arena_bytes"] for tier in ("device", "host", "disk")
        }
        assert line["bytes"]["comm"] == step["sent_bytes"]
        assert step["tiers"]["device"]["lower_bound_bytes"] <= step["tiers"]["device"]["peak_bytes"]
        assert step["tiers"]["device"]["peak_bytes"] <= step["tiers"]["device"]["arena_bytes"]
        check_text(bench, config, ranks, sets, log, step)


def check_text(bench, config, ranks, sets, log, step):
    """plan.txt begins with what `zerorun plan` prints for people."""
    arguments = [bench.zerorun, "plan", "--ranks", str(ranks), config]
    for key, value in sets.items():
        arguments += ["--set", "%s=%s" % (key, value)]
    text = subprocess.run(arguments, stdout=subprocess.PIPE, check=True).stdout.decode()
    account, prediction = text.split("\npredicted: ")
    assert run.read(os.path.join(log.dir, "plan.txt")).startswith(account)
    assert " a step" in prediction, prediction
    assert printed(text, "sent to other ranks") == step["sent_bytes"]
    assert printed(text, "allocated, once") == step["tiers"]["device"]["arena_bytes"]
    assert printed(text, "peak of the step") == step["tiers"]["device"]["peak_bytes"]


def test_a_budget_that_does_not_fit(bench):
    """Says how much is missing, before anything is allocated; in plan and run alike."""
    config = bench.config(run.LLAMA, 8)
    sets = {"memory.device": "100KiB"}
    said = [
        bench.start(config, 2, sets, plan=True).wait(60),
        bench.start(config, 2, sets, bench.new_dir()).wait(60),
    ]
    for result in said:
        assert result.code == 4, (result.code, result.stderr)
        assert len(result.messages()) == 1 and re.search(r"\d", result.messages()[0]), result.stderr


def test_a_dump_after_each_pass(bench):
    """Each pass that the help names prints something of its own; another name is refused."""
    config = bench.config(run.GPT2, 8)
    line = re.search(r"--dump-after PASS.*after (.*)", bench.start("--help").wait(30).stdout).group(
        1
    )
    names = re.findall(r"[a-z]+", line.replace(" or ", ", "))
    assert {"model", "shard", "hoist", "place"} <= set(names), names
    dumps = {}
    for name in names:
        done = subprocess.run(
            [
                bench.zerorun,
                "plan",
                "--ranks",
                "2",
                "--set",
                "zero_optimization.stage=3",
                "--dump-after",
                name,
                config,
            ],
            stdout=subprocess.PIPE,
        )
        assert done.returncode == 0 and done.stdout, name
        dumps[name] = done.stdout
    assert len({dumps[name] for name in ("model", "shard", "hoist", "place")}) == 4
    done = subprocess.run(
        [bench.zerorun, "plan", "--dump-after", "steps", config], stderr=subprocess.PIPE
    )
    assert done.returncode == 2 and line.encode() in done.stderr, done.stderr


if __name__ == "__main__":
    run.main(
        [
            test_it_touches_nothing,
            test_it_needs_no_mpi,
            test_it_equals_the_run,
            test_a_budget_that_does_not_fit,
            test_a_dump_after_each_pass,
        ]
    )
