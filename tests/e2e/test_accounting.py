"""Bytes counted where MPI is called, by a preloaded library that knows nothing of zerorun: the sum
over the log's steps, the other plans' share, and the small agreements of a run, each by name.
Nothing is left over. MPI carries them all because ranks are told not to read each other's memory;
if they may, it carries none (tests/proof counts those reads)."""

import os
import sys

import run

STEPS = 6

# What ranks tell each other outside of plans: bytes that each rank sends to each other one.
STATUS = 8  # "did it work for all?"
IDENTITY = 16  # process id and host
BUDGET = 32  # threads and what each tier may hold, of which the least counts
CHECKSUM = 16  # of a rank's checkpoint file, for the manifest
START = {  # once
    "identity": IDENTITY,
    "configuration read": STATUS,
    "backends open": STATUS,
    "data and checkpoint found": STATUS,
    "budget": BUDGET,
    "plans compiled": STATUS,
    "outputs open": STATUS,
    "threads started": STATUS,
    "states filled": STATUS,
    "start logged": STATUS,
    "end logged": STATUS,
}
SAVE = {"begun": STATUS, "written": STATUS, "checksums": CHECKSUM, "committed": STATUS}

SETTINGS = (
    (2, {"zero_optimization.stage": 0}),
    (2, {"zero_optimization.stage": 3, "plan.order": "breadth", "plan.group": 1}),
    (3, {"zero_optimization.stage": 2, "plan.order": "breadth"}),
    (3, {"zero_optimization.stage": 1, "plan.group": 0}),
    (4, {"zero_optimization.stage": 3, "plan.prefetch": 2, "run.delay_us": 200}),
)


def hashes_bytes(ranks, report):
    """Every plan's hash in a slot for each rank, summed over the ranks."""
    return 8 * ranks * len(report["plans"])


def counted(bench, config, ranks, sets, shared="0"):
    """(log, bytes that each rank handed to MPI) of a whole run."""
    out = bench.new_dir() + "-sent"
    env = {"LD_PRELOAD": bench.preload, "ZR_PMPI_OUT": out, "ZR_COMM_SHARED": shared}
    log = bench.whole(config, ranks, sets, env)
    sent = []
    for rank in range(ranks):
        size, uncounted = (int(word) for word in run.read("%s.%d" % (out, rank)).split())
        assert uncounted == 0, "rank %d: %d calls that the library does not count" % (
            rank,
            uncounted,
        )
        sent.append(size)
    return log, sent


def planned_bytes(log, leaves_of_a_rank):
    """What the plans of a run send, by the log: steps, evaluations, and the loading of states."""
    plans = log.plan()["plans"]
    steps = sum(line["bytes"]["comm"] for line in log.events("step"))
    batches = 2 * leaves_of_a_rank  # run.eval_batches, one execution for each micro-batch
    evals = len(log.events("eval")) * (
        batches * plans["eval"]["sent_bytes"] + plans["eval_end"]["sent_bytes"]
    )
    return steps + evals + plans["load"]["sent_bytes"]


def test_every_byte_has_a_name(bench):
    for model, leaves in ((run.LLAMA, 12), (run.GPT2, 12)):
        config = bench.config(model, leaves, STEPS, checkpoint={"every": 2})
        for ranks, sets in SETTINGS:
            log, sent = counted(bench, config, ranks, sets)
            report = log.plan()
            assert (
                len(log.events("step")) == STEPS
                and len(log.events("eval")) == 2
                and len(log.events("save")) == 3
            )
            agreed = sum(START.values()) + hashes_bytes(ranks, report) + 3 * sum(SAVE.values())
            wanted = planned_bytes(log, leaves // ranks) + (ranks - 1) * agreed
            assert (
                sent == [wanted] * ranks
            ), "%s on %d ranks: %s handed to MPI, %d accounted for (%s)" % (
                sets,
                ranks,
                sent,
                wanted,
                [size - wanted for size in sent],
            )
    return "%d runs" % (2 * len(SETTINGS))


def test_three_more_steps_cost_three_times_the_plan(bench):
    """Whatever else is sent, a step costs what `zerorun plan` says."""
    config = bench.config(run.LLAMA, 12, 9, run={"eval_every": 0})
    for ranks, sets in SETTINGS[1:4:2]:
        few, more = (
            counted(bench, config, ranks, dict(sets, **{"run.steps": steps}))[1] for steps in (3, 6)
        )
        threads = dict(sets, **{"run.threads": 1})
        predicted = bench.plan(config, ranks, threads)["plans"]["step"]["sent_bytes"]
        assert [b - a for a, b in zip(few, more)] == [3 * predicted] * ranks, (few, more, predicted)


def test_ranks_that_read_each_other_log_the_same_bytes(bench):
    config = bench.config(run.LLAMA, 12, 3, run={"eval_every": 0})
    ranks, sets = SETTINGS[1]
    through_mpi, _ = counted(bench, config, ranks, sets)
    log, sent = counted(bench, config, ranks, sets, shared="1")
    for key in ("loss", "bytes"):
        wanted = [line[key] for line in through_mpi.events("step")]
        assert [line[key] for line in log.events("step")] == wanted, key
    return "MPI was handed %s" % sent


def test_one_rank_sends_nothing(bench):
    config = bench.config(run.GPT2, 4, 2, scheduler={"type": "Constant", "params": {}})
    log = bench.whole(config, 1, {"zero_optimization.stage": 3})
    assert [line["bytes"]["comm"] for line in log.events("step")] == [0, 0]


if __name__ == "__main__":
    if len(sys.argv) < 3 or not os.path.exists(sys.argv[2]):
        print("skipped: needs the library that counts MPI's calls")
        sys.exit(77)
    if run.SLOW > 1:
        print("skipped: a sanitizer must be the first library that is loaded")
        sys.exit(77)
    run.main(
        [
            test_every_byte_has_a_name,
            test_three_more_steps_cost_three_times_the_plan,
            test_ranks_that_read_each_other_log_the_same_bytes,
            test_one_rank_sends_nothing,
        ]
    )
