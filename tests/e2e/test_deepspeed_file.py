"""DeepSpeed's file as it is: zerorun --model ... --data ... ds_config.json."""

import copy
import json
import os
import struct

import run

# No optimizer, no micro-batch size: what DeepSpeed leaves to its caller.
FILE = {
    "train_batch_size": 16,
    "gradient_accumulation_steps": 4,
    "fp16": {"enabled": True, "loss_scale": 0},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
        "stage3_max_live_parameters": 1e8,
        "stage3_max_reuse_distance": 1e8,
    },
}
# The Hugging Face trainer's, of its documentation of ZeRO-2 and ZeRO-3.
TRAINER = {
    "fp16": {
        "enabled": "auto",
        "loss_scale": 0,
        "loss_scale_window": 1000,
        "initial_scale_power": 16,
        "hysteresis": 2,
        "min_loss_scale": 1,
    },
    "bf16": {"enabled": "auto"},
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
    },
    "scheduler": {
        "type": "WarmupLR",
        "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"},
    },
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9,
        "stage3_gather_16bit_weights_on_model_save": True,
    },
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": False,
}
MODEL = {  # a config.json as Hugging Face writes it
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.0,
    "bos_token_id": 255,
    "embd_pdrop": 0.0,
    "eos_token_id": 255,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 32,
    "n_embd": 24,
    "n_head": 3,
    "n_layer": 2,
    "n_positions": 32,
    "resid_pdrop": 0.0,
    "torch_dtype": "float32",
    "transformers_version": "4.40.0",
    "use_cache": True,
    "vocab_size": 256,
}


def write(bench, name, value):
    path = bench.path(name)
    with open(path, "w") as file:
        json.dump(value, file)
    return path


def tokens(bench):
    path = bench.path("train.bin")
    with open(bench.train, "rb") as text, open(path, "wb") as file:
        data = text.read()
        file.write(struct.pack("<%dH" % len(data), *data))
    return path


def start(bench, config, ranks, *arguments, code=0):
    """A run by the command line form: its result and its run folder."""
    run_dir = bench.new_dir()
    launcher = [bench.mpirun, "-n", str(ranks)] if ranks > 1 else []
    command = launcher + [bench.zerorun, *arguments, "--set", "run.dir=" + run_dir, config]
    job = run.Job(command, {}, bench.folder)
    bench.jobs.append(job)
    result = job.wait(120)
    assert result.code == code, "exit code %d\n%s%s" % (result.code, result.stdout, result.stderr)
    return result, run_dir


def without_offload():
    file = copy.deepcopy(FILE)
    del file["zero_optimization"]["offload_optimizer"]
    del file["zero_optimization"]["offload_param"]
    return file


def test_trains_without_its_offload_blocks(bench):
    config = write(bench, "ds_config.json", without_offload())
    model = write(bench, "config.json", MODEL)
    facts = []
    for ranks in (1, 2):
        _, run_dir = start(
            bench, config, ranks, "--model", model, "--data", tokens(bench), "--set",
            "run.digest=params",
        )
        log = run.Log(run_dir)
        steps = log.events("step")
        # One epoch: 187 samples of 32 tokens in batches of 16.
        assert [line["step"] for line in steps] == list(range(1, 13)), steps
        assert float(steps[-1]["loss"]) < float(steps[0]["loss"])
        begun = log.events("start")[0]
        assert begun["types"]["parameters"] == "fp16", begun["types"]
        for said in ("loss_scale: 0", "seq_len: 32", "stage: 3", "train_batch_size: 16"):
            assert said in begun["configuration"], (said, begun["configuration"])
        options = [line["option"] for line in log.events("warning")]
        assert "zero_optimization.stage3_max_live_parameters" in options, options
        assert "zero_optimization.stage3_max_reuse_distance" in options, options
        assert steps[-1]["loss_scale"] is not None
        facts.append({line["step"]: (line["loss"], line["digest_params"]) for line in steps})
    # 16 leaves of 4 samples on one rank, of 2 on two: other micro-batches, so only near.
    assert abs(float(facts[0][12][0]) - float(facts[1][12][0])) < 0.05


def test_offload_changes_nothing_but_where_states_live(bench):
    model = write(bench, "config.json", MODEL)
    facts = []
    for file in (without_offload(), FILE):
        config = write(bench, "ds_offload.json", file)
        _, run_dir = start(
            bench, config, 2, "--model", model, "--data", tokens(bench), "--set",
            "run.digest=states", "--set", "run.steps=3",
        )
        log = run.Log(run_dir)
        steps = log.events("step")
        facts.append([(s["loss"], s["digest_params"], s["digest_states"]) for s in steps])
    assert facts[0] == facts[1], facts
    homes = log.events("start")[0]["tiers"]["homes"]
    wanted = {"param": "host", "grad": "host", "optimizer": "host", "activation": "device"}
    assert homes == wanted, homes
    assert steps[-1]["peak_bytes"]["host"] > 0 and steps[-1]["bytes"]["h2d"] > 0, steps[-1]
    said = {line["option"]: line["text"] for line in log.events("warning")}
    for block, home in (("offload_optimizer", "optimizer"), ("offload_param", "param")):
        key = "zero_optimization.%s.device" % block
        assert said[key] == "read as plan.homes.%s = host" % home, said


def variants(path):
    """DeepSpeed's three ways: all on the host, the optimizer alone, all on a drive."""
    nvme = {"device": "nvme", "nvme_path": path, "pin_memory": True}
    zero2, zero3 = copy.deepcopy(FILE), copy.deepcopy(FILE)
    zero2["zero_optimization"] = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    zero3["zero_optimization"].update(offload_optimizer=nvme, offload_param=nvme)
    return {
        "host": (FILE, {"param": "host", "optimizer": "host"}),
        "zero2": (zero2, {"param": "device", "optimizer": "host"}),
        "nvme": (zero3, {"param": "disk", "optimizer": "disk"}),
    }


def test_every_way_to_offload_gives_the_resident_bits(bench):
    model, data, path = write(bench, "config.json", MODEL), tokens(bench), bench.path("nvme")
    os.mkdir(path)
    last = []
    for ranks in (1, 2):
        resident = None
        rows = dict({"resident": (without_offload(), {})}, **variants(path))
        for name, (file, homes) in rows.items():
            _, run_dir = start(
                bench, write(bench, "ds_offload.json", file), ranks, "--model", model, "--data",
                data, "--set", "run.digest=states", "--set", "run.steps=3",
            )
            log = run.Log(run_dir)
            got = log.events("start")[0]["tiers"]["homes"]
            assert {state: got[state] for state in homes} == homes, (name, got)
            resident = resident or log.facts()
            run.assert_same(log.facts(), resident, "%s on %d ranks" % (name, ranks))
        last.append(float(resident[0][3]["loss"]))
    # Micro-batches of 4 on one rank, of 2 on two: not the same bits, by DeepSpeed's own rule.
    assert abs(last[0] - last[1]) < 1e-3, last
    assert os.listdir(path) == []


def test_the_same_micro_batches_give_the_same_bits_on_1_and_2_ranks(bench):
    model, data = write(bench, "config.json", MODEL), tokens(bench)
    file = dict(FILE, train_micro_batch_size_per_gpu=2)
    del file["gradient_accumulation_steps"]
    facts = []
    for ranks in (1, 2):
        _, run_dir = start(
            bench, write(bench, "ds_offload.json", file), ranks, "--model", model, "--data", data,
            "--set", "run.digest=states", "--set", "run.steps=3",
        )
        facts.append(run.Log(run_dir).facts())
    run.assert_same(facts[1], facts[0], "2 ranks")


def test_offload_is_refused_where_it_can_not_be(bench):
    model = write(bench, "config.json", MODEL)
    file = copy.deepcopy(FILE)
    file["zero_optimization"]["offload_optimizer"] = {"device": "nvme"}
    config = write(bench, "ds_offload.json", file)
    result, run_dir = start(bench, config, 1, "--model", model, "--data", tokens(bench), code=2)
    said = result.messages()
    wanted = "'zero_optimization.offload_optimizer.device' = nvme needs"
    assert len(said) == 1 and wanted in said[0], result.stderr
    assert not os.path.exists(run_dir)


def test_the_trainers_auto_is_resolved_and_shown(bench):
    config = write(bench, "ds_trainer.json", TRAINER)
    model = write(bench, "config.json", MODEL)
    _, run_dir = start(
        bench, config, 1, "--model", model, "--data", bench.train, "--set", "run.steps=2"
    )
    log = run.Log(run_dir)
    assert len(log.events("step")) == 2
    shown = log.events("start")[0]["configuration"]
    for said in (
        "train_micro_batch_size_per_gpu: 8",
        "train_batch_size: 8",
        "gradient_accumulation_steps: 1",
        "gradient_clipping: 1",
        "lr: 0.001",
        'betas: ["0.9", "0.999"]',
        "tokenizer: byte",
    ):
        assert said in shown, (said, shown)
    settled = [line for line in shown.split("\n") if line.strip().endswith(": auto")]
    keys = [line.strip().split(":")[0] for line in settled]
    left_to_the_planner = {
        "threads", "device", "host", "disk", "order", "group", "prefetch", "recompute", "comm",
        "isa", "progress", "format", "chunk", "slots", "disk_backend", "block_size", "queue_depth",
    }
    assert set(keys) <= left_to_the_planner, settled


def test_wrong_usage_is_named(bench):
    config = write(bench, "ds_config.json", without_offload())
    cases = (
        (2, "gone.json: there is no such file", ("--model", "gone.json", "--data", bench.train)),
        (2, 'no preset "gpt9"', ("--model", "gpt9", "--data", bench.train)),
        (2, "data.train is not given", ("--model", "gpt2-tiny")),
        (2, "no model is given", ("--data", bench.train)),
        (2, "--model needs a value", ("--data", bench.train, "--model")),
        (3, "can not open gone.bin", ("--model", "gpt2-tiny", "--data", "gone.bin")),
    )
    for code, wanted, arguments in cases:
        if arguments[-1] == "--model":
            job = run.Job([bench.zerorun, config, *arguments], {}, bench.folder)
            result = job.wait(60)
            assert result.code == code, result.code
        else:
            result, _ = start(bench, config, 1, *arguments, code=code)
        said = result.messages()
        assert len(said) == 1 and wanted in said[0], (wanted, result.stderr)


if __name__ == "__main__":
    run.main(
        [
            test_trains_without_its_offload_blocks,
            test_offload_changes_nothing_but_where_states_live,
            test_every_way_to_offload_gives_the_resident_bits,
            test_the_same_micro_batches_give_the_same_bits_on_1_and_2_ranks,
            test_offload_is_refused_where_it_can_not_be,
            test_the_trainers_auto_is_resolved_and_shown,
            test_wrong_usage_is_named,
        ]
    )
