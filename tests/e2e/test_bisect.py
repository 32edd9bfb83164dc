"""zerorun bisect: the first step, state and operation at which two runs differ."""

import ctypes
import ctypes.util
import json
import os
import shutil
import struct

import run

N_STEPS = 6
KEEP = {"checkpoint.every": 2, "checkpoint.keep_last": 9, "run.eval_every": 0}


def bisect(bench, a, b, *arguments, code=8):
    job = run.Job([bench.zerorun, "bisect", *arguments, "--json", a, b], {}, bench.folder)
    bench.jobs.append(job)
    result = job.wait(120)
    assert result.code == code, "exit code %d\n%s%s" % (result.code, result.stdout, result.stderr)
    return json.loads(result.stdout) if code in (0, 8) else result


def text(bench, a, b, *arguments):
    job = run.Job([bench.zerorun, "bisect", *arguments, a, b], {}, bench.folder)
    bench.jobs.append(job)
    return job.wait(120).stdout


def made(bench, config, ranks=1, sets=None, run_dir=None):
    run_dir = run_dir or bench.new_dir()
    bench.run(config, ranks, dict(KEEP, **(sets or {})), run_dir)
    return run_dir


def config_of(bench):
    return bench.config(run.GPT2, 8, N_STEPS)


def test_equal_runs_on_other_ranks(bench):
    config = config_of(bench)
    a = made(bench, config, 1)
    b = made(bench, config, 2, {"zero_optimization.stage": 3, "plan.order": "breadth"})
    report = bisect(bench, a, b, code=0)
    assert report["equal"] is True and report["options"] == [], report
    assert report["steps"] == {"first": 1, "last": 6, "compared": 6, "digests": True}, report
    assert report["last_equal_checkpoint"] == 6 and "first_step" not in report, report
    assert "they are equal, to step 6" in text(bench, a, b)


def test_another_seed(bench):
    config = config_of(bench)
    a, b = made(bench, config), made(bench, config, 1, {"run.seed": 5, "data.seed": 1234})
    report = bisect(bench, a, b, "--rerun")
    assert report["first_step"] == 1 and "loss" in report["fields"], report
    assert [row["key"] for row in report["options"]] == ["run.seed"], report["options"]
    state = report["state"]
    assert state["step"] == 2 and state["tensor"] == "transformer.wte.weight", state
    assert state["state"] == "parameter", state
    operation = report["rerun"]["operation"]
    assert operation["step"] == 1 and "embedding" in operation["operation"], operation
    assert any(name.startswith("table") or "param" in name for name in operation["reads"]), operation


def test_other_data(bench):
    config = config_of(bench)
    a, b = made(bench, config), made(bench, config, 1, {"data.seed": 9})
    report = bisect(bench, a, b, "--rerun")
    assert report["first_step"] == 1, report
    operation = report["rerun"]["operation"]
    assert operation["step"] == 1 and "fetch" in operation["operation"], operation
    assert operation["reads"] == [] and len(operation["writes"]) == 2, operation


def test_a_learning_rate_from_a_step_on(bench):
    config = config_of(bench)
    a = made(bench, config)
    b = made(bench, config, 1, {"run.steps": 4})
    changed = {"optimizer.params.lr": 0.02, "checkpoint.ignore_options": True}
    made(bench, config, 2, changed, b)
    report = bisect(bench, a, b, "--rerun")
    assert report["first_step"] == 5, report
    assert "lr" in report["fields"] and "digest_params" in report["fields"], report["fields"]
    assert "loss" not in report["fields"], report["fields"]
    assert [row["key"] for row in report["options"]] == ["optimizer.params.lr"], report["options"]
    assert report["options"][0]["a"] == "0.01" and report["options"][0]["b"] == "0.02"
    assert report["last_equal_checkpoint"] == 4 and report["state"]["step"] == 6, report
    assert report["rerun"]["from_step"] == 4 and report["rerun"]["to_step"] == 5, report
    operation = report["rerun"]["operation"]
    assert operation["step"] == 5 and "control_update" in operation["operation"], operation
    said = text(bench, a, b, "--rerun")
    assert "step 5 is the first that differs" in said, said
    assert "the first operation that differs is control_update" in said, said


def flip_bit(folder, name, state_offset):
    """In element `state_offset` of a tensor of a checkpoint; its checksums are made to fit."""
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_64bits.restype = ctypes.c_uint64
    library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    manifest_path = os.path.join(folder, "manifest.json")
    with open(manifest_path) as file:
        manifest = json.load(file)
    row = manifest["files"][0]
    path = os.path.join(folder, row["name"])
    with open(path, "rb") as file:
        data = bytearray(file.read())
    (header_bytes,) = struct.unpack("<Q", data[:8])
    begin = json.loads(data[8 : 8 + header_bytes])[name]["data_offsets"][0]
    data[8 + header_bytes + begin + 4 * state_offset] ^= 1  # the last bit of the mantissa
    with open(path, "wb") as file:
        file.write(data)
    row["xxh3"] = "%016x" % library.XXH3_64bits(bytes(data), len(data))
    del manifest["checksum"]
    plain = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    manifest["checksum"] = "%016x" % library.XXH3_64bits(plain, len(plain))
    with open(manifest_path, "w") as file:
        json.dump(manifest, file)


def test_a_flipped_bit_in_a_checkpoint(bench):
    config = config_of(bench)
    a = made(bench, config, 1)
    b = bench.new_dir()
    made(bench, config, 1, {"run.steps": 4}, b)
    name = "transformer.h.1.mlp.c_fc.weight.exp_avg"
    flip_bit(os.path.join(b, "checkpoints", "step-00000004"), name, 37)
    report = bisect(bench, a, b, "--rerun")
    state = report["state"]
    assert "first_step" not in report and report["last_equal_checkpoint"] == 2, report
    assert state["step"] == 4 and state["tensor"] == name[: -len(".exp_avg")], state
    assert state["state"] == "exp_avg" and state["element"] == 37, state
    assert state["elements"] == 1 and state["states"] == 1 and state["a"] != state["b"], state
    assert "h.1" in state["unit"] or "1" in state["unit"], state
    assert "operation" not in report["rerun"], report["rerun"]
    made(bench, config, 1, {}, b)
    report = bisect(bench, a, b, "--rerun")
    assert report["first_step"] == 5 and "loss" not in report["fields"], report
    assert report["state"]["step"] == 4 and report["state"]["elements"] == 1, report
    assert "every operation gives the same bits" in text(bench, a, b, "--rerun")


def test_what_is_not_there_is_named(bench):
    config = config_of(bench)
    a = made(bench, config, 1, {"run.steps": 2})
    result = bisect(bench, a, "gone", code=3)
    assert "gone/log.jsonl can not be opened" in result.messages()[0], result.stderr
    empty = bench.new_dir()
    shutil.copytree(a, empty)
    shutil.rmtree(os.path.join(empty, "checkpoints"))
    report = bisect(bench, a, empty, code=0)
    assert report["checkpoints_compared"] == 0, report
    job = run.Job([bench.zerorun, "bisect", a], {}, bench.folder)
    bench.jobs.append(job)
    assert job.wait(60).code == 2


if __name__ == "__main__":
    run.main(
        [
            test_equal_runs_on_other_ranks,
            test_another_seed,
            test_other_data,
            test_a_learning_rate_from_a_step_on,
            test_a_flipped_bit_in_a_checkpoint,
            test_what_is_not_there_is_named,
        ]
    )
