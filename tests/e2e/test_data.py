"""Token files of every format, masks, and steps without a target, in whole runs."""

import json
import math
import os
import struct

import run

N_STEPS = 4


def ids_of(path):
    with open(path, "rb") as file:
        return list(file.read())


def write(bench, name, data):
    path = bench.path(name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def write_megatron(bench, name, ids, sizes):
    assert sum(sizes) == len(ids)
    path = write(bench, name + ".bin", struct.pack("<%di" % len(ids), *ids))
    starts = [4 * sum(sizes[:i]) for i in range(len(sizes))]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(sizes), len(sizes) + 1)
    index += struct.pack("<%di" % len(sizes), *sizes) + struct.pack("<%dq" % len(starts), *starts)
    index += struct.pack("<%dq" % (len(sizes) + 1), *range(len(sizes) + 1))
    write(bench, name + ".idx", index)
    return path


def config_of(bench, files, **data):
    data = dict({"train": files, "eval": None, "tokenizer": None}, **data)
    return bench.config(
        dict(run.GPT2, vocab_size=256), 8, N_STEPS, run={"eval_every": 0}, data=data
    )


def test_every_format_gives_the_same_bits(bench):
    ids = ids_of(bench.train)
    text = bench.config(
        dict(run.GPT2, vocab_size=256), 8, N_STEPS, run={"eval_every": 0}, data={"eval": None}
    )
    wanted = bench.whole(text).facts()
    u16 = struct.pack("<%dH" % len(ids), *ids)
    header = struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253)
    wide = struct.pack("<256i", 20240801, 7, len(ids), *[0] * 253)
    u32 = struct.pack("<%dI" % len(ids), *ids)
    write(bench, "part0.bin", u16[:3000])
    write(bench, "part1.bin", u16[3000:])
    cases = {
        "llm.c": [write(bench, "llmc.bin", header + u16)],
        "llm.c, 32 bits": [write(bench, "wide.bin", wide + u32)],
        "nanoGPT": [write(bench, "nano.bin", u16)],
        "nanoGPT, glob": [bench.path("part?.bin")],
        "Megatron": [write_megatron(bench, "mega", ids, [1000, 0, 7, len(ids) - 1007])],
    }
    for name, files in cases.items():
        config = config_of(bench, files)
        log = bench.whole(config, 2 if name == "Megatron" else 1)
        run.assert_same(log.facts(), wanted, name)
    result = bench.run(config_of(bench, cases["nanoGPT"]), 1, {}, bench.new_dir())
    assert "1 file of nanoGPT format (no known header" in result.stdout, result.stdout
    mixed = config_of(bench, cases["nanoGPT"] + cases["llm.c"])
    result = bench.run(mixed, 2, {}, bench.new_dir(), code=3)
    assert "the files of one list are of one kind" in result.messages()[0], result.stderr


def test_masked_targets_do_not_count(bench):
    ids = ids_of(bench.train)
    mask = bytes(1 if i % 3 else 0 for i in range(len(ids)))
    train = write(bench, "masked.bin", struct.pack("<%dH" % len(ids), *ids))
    write(bench, "masked.bin.mask", mask)
    config = config_of(bench, [train], mask=".mask", shuffle=False, eval=[train])
    logs = [bench.whole(config, ranks, {"run.eval_batches": 0}) for ranks in (1, 2)]
    run.assert_same(logs[1].facts(), logs[0].facts(), "two ranks")
    # A step has 16 samples of 16 tokens, one after the other.
    counted = [sum(mask[1 + 256 * s : 257 + 256 * s]) for s in range(N_STEPS)]
    lines = logs[0].events("step")
    assert [line["tokens"] for line in lines] == [sum(counted[: s + 1]) for s in range(N_STEPS)]
    n_samples = (len(ids) - 1) // 16
    evaluated = logs[0].events("eval")[-1]
    assert evaluated["tokens"] == sum(mask[1 : 1 + 16 * n_samples]), evaluated
    assert math.isfinite(float(evaluated["loss"]))
    ignored = config_of(bench, [train], ignore_id=ids[5], shuffle=False)
    lines = bench.whole(ignored).events("step")
    assert lines[-1]["tokens"] == sum(token != ids[5] for token in ids[1 : 1 + 256 * N_STEPS])


def test_documents_apart(bench):
    """What begins a document is no target; the same bits whatever the schedule."""
    ids = ids_of(bench.train)
    end = ord(" ")
    train = write(bench, "words.bin", struct.pack("<%dH" % len(ids), *ids))
    joined = config_of(bench, [train], shuffle=False, eval=[train])
    config = config_of(
        bench, [train], shuffle=False, eval=[train], documents="separate", eot_id=end
    )
    wanted = bench.whole(config, 1)
    for ranks, sets in (
        (2, {"zero_optimization.stage": 3, "plan.recompute": "full"}),
        (4, {"zero_optimization.stage": 2, "plan.order": "breadth"}),
    ):
        run.assert_same(bench.whole(config, ranks, sets).facts(), wanted.facts(), "%s" % sets)
    lines = wanted.events("step")
    assert lines[-1]["tokens"] == sum(token != end for token in ids[: 256 * N_STEPS]), lines[-1]
    together = bench.whole(joined).events("step")
    assert all(a["loss"] != b["loss"] for a, b in zip(lines, together))
    said = bench.run(joined, 1, {"data.documents": "separate"}, bench.new_dir(), code=2).messages()
    assert "data.eot_id" in said[0], said


def test_a_step_without_a_target_ends_the_run(bench):
    ids = ids_of(bench.train)
    train = write(bench, "blank.bin", struct.pack("<%dH" % len(ids), *ids))
    write(bench, "blank.bin.mask", bytes(0 if 512 < i <= 768 else 1 for i in range(len(ids))))
    config = config_of(bench, [train], mask=".mask", shuffle=False)
    for ranks in (1, 2):
        run_dir = bench.new_dir()
        result = bench.run(config, ranks, {}, run_dir, code=3)
        said = result.messages()
        assert len(said) == 1 and "none of its targets counts" in said[0], result.stderr
        assert "step 3" in said[0] and "from place 32" in said[0], said
        assert not os.path.exists(os.path.join(run_dir, "checkpoints", "latest"))
    write(bench, "blank.bin.mask", bytes(len(ids)))
    config = config_of(bench, [bench.path("masked.bin")], mask=None, eval=[train])
    other = json.loads(run.read(config))
    other["data"]["mask"] = ".mask"
    other["data"]["train"] = [bench.path("masked.bin")]
    with open(config, "w") as file:
        json.dump(other, file)
    result = bench.run(config, 1, {}, bench.new_dir(), code=3)
    assert "data.eval: none of its targets counts" in result.messages()[0], result.stderr


if __name__ == "__main__":
    run.main(
        [
            test_every_format_gives_the_same_bits,
            test_masked_targets_do_not_count,
            test_documents_apart,
            test_a_step_without_a_target_ends_the_run,
        ]
    )
