"""The same bits whatever the schedule: losses, norms, digests, evaluations of whole runs."""

import concurrent.futures
import itertools
import os
import random

import run

STAGES = ("0", "1", "2", "3")


def legal_groups(ranks, leaves):
    """The a for which this split gives nodes of the one tree."""
    rest = leaves // ranks
    fitting = [a for a in range(8) if rest % 2**a == 0]
    power_of_two = ranks & (ranks - 1) == 0
    return fitting if power_of_two else [a for a in fitting if 2**a == rest]


def levels(ranks):
    return {
        "ranks": ranks,
        "zero_optimization.stage": STAGES,
        "plan.order": ("depth", "breadth"),
        "plan.group": ("least", "most", "auto"),
        "plan.prefetch": ("0", "1", "3", "auto"),
        "run.threads": (1, 2, 3, 8),
        "run.serial": (False, True),
        "run.delay_us": (0, 300),
    }


def pairwise(factors, seed):
    """Rows in which every two values of two factors meet: greedy, the same at every call."""
    chance = random.Random(seed)
    names = list(factors)
    missing = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(names, 2)
        for x in factors[a]
        for y in factors[b]
    }
    rows = []
    while missing:
        best, most = None, -1
        for _ in range(60):
            row = {}
            pair = chance.choice(sorted(missing, key=repr))
            row.update(dict(pair))
            for name in chance.sample(names, len(names)):
                if name not in row:
                    row[name] = max(
                        factors[name],
                        key=lambda value: (gain(row, name, value, names, missing), chance.random()),
                    )
            covered = sum(
                ((a, row[a]), (b, row[b])) in missing for a, b in itertools.combinations(names, 2)
            )
            if covered > most:
                best, most = row, covered
        rows.append(best)
        missing -= {((a, best[a]), (b, best[b])) for a, b in itertools.combinations(names, 2)}
    return rows


def gain(row, name, value, names, missing):
    pairs = (
        sorted(((other, row[other]), (name, value)), key=lambda item: names.index(item[0]))
        for other in row
    )
    return sum(tuple(pair) in missing for pair in pairs)


def settings(row, leaves):
    """(ranks, --set pairs) of a row of the table."""
    ranks = row["ranks"]
    sets = {key: value for key, value in row.items() if key != "ranks"}
    legal = legal_groups(ranks, leaves)
    sets["plan.group"] = {"least": legal[0], "most": legal[-1], "auto": "auto"}[row["plan.group"]]
    return ranks, sets


def check_plan(bench, config, log, ranks, sets):
    """The run's own account, `zerorun plan` without MPI, and what the stage must make of it."""
    report = log.plan()
    predicted = bench.plan(config, ranks, sets)
    start = log.events("start")[-1]
    assert predicted["hash"] == start["plan_hash"] == report["hash"], (
        predicted["hash"],
        start["plan_hash"],
    )
    assert predicted["split_is_exact"]
    step = predicted["plans"]["step"]
    for line in log.events("step"):
        assert line["bytes"]["comm"] == step["sent_bytes"]
        assert line["peak_bytes"]["device"] == step["tiers"]["device"]["arena_bytes"]
    stage, whole = predicted["stage"], 4 * predicted["params_padded"]
    kept = step["tiers"]["device"]["persistent"]
    names = {name.split("_")[0].rstrip("s"): size for name, size in kept.items()}
    check_kept(kept, names, stage, ranks, whole)
    return step["sent_bytes"]


def check_kept(kept, names, stage, ranks, whole):
    share = {"param": ranks if stage >= 3 else 1, "optimizer": ranks if stage >= 1 else 1}
    assert names["param"] * share["param"] == whole, (kept, whole)
    assert names["optimizer"] * share["optimizer"] == 2 * whole, (kept, whole)
    assert names.get("grad", 0) == (0 if stage >= 2 else whole), (kept, whole)


def check_table(bench, model, leaves, ranks, seed):
    config = bench.config(model, leaves)
    oracle = bench.whole(
        config, 1, {"run.serial": True, "run.threads": 1, "zero_optimization.stage": 0}
    )
    wanted = oracle.facts()
    assert sorted(wanted[0]) == [1, 2, 3, 4, 5, 6] and sorted(wanted[1]) == [3, 6]
    check_clipping(wanted[0])
    rows = pairwise(levels(ranks), seed)
    if run.SLOW > 1 and not run.LONG:
        rows = rows[:5]

    def check_row(row):
        n_ranks, sets = settings(row, leaves)
        log = bench.whole(config, n_ranks, sets)
        run.assert_same(log.facts(), wanted, "%s" % row)
        return n_ranks, check_plan(bench, config, log, n_ranks, sets)

    # Two runs at a time: much of a small run is waiting for its launcher.
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        sent = list(pool.map(check_row, rows))
    assert all((size > 0) == (n_ranks > 1) for n_ranks, size in sent)
    return "%d settings" % len(rows)


def check_clipping(steps):
    norms = [float(facts["grad_norm"]) for facts in steps.values()]
    assert min(norms) < run.CLIPPING < max(norms), "clipping should act on some steps: %s" % norms
    assert len({facts["digest_params"] for facts in steps.values()}) == 6
    assert len({facts["digest_states"] for facts in steps.values()}) == 6


def test_llama_8_micro_batches(bench):
    return check_table(bench, run.LLAMA, 8, (1, 2, 4, 8), 1)


def test_gpt2_12_micro_batches(bench):
    return check_table(bench, run.GPT2, 12, (1, 2, 3, 4), 2)


def test_gpt2_8_micro_batches(bench):
    return check_table(bench, run.GPT2, 8, (1, 2, 4, 8), 3)


def test_llama_12_micro_batches(bench):
    return check_table(bench, run.LLAMA, 12, (1, 2, 3, 4), 4)


def test_settings_differ_where_they_should(bench):
    """Traffic and kept bytes by stage, order and group, from plans like those the runs obey."""
    config = bench.config(run.LLAMA, 8)

    def sent(ranks, stage, order="depth", group=0):
        sets = {"zero_optimization.stage": stage, "plan.order": order, "plan.group": group}
        step = bench.plan(config, ranks, sets)["plans"]["step"]
        return step["sent_bytes"], sum(step["tiers"]["device"]["persistent"].values())

    for ranks in (2, 4):
        by_stage = [sent(ranks, stage) for stage in range(4)]
        kept = [kept for _, kept in by_stage]
        assert kept[0] > kept[1] > kept[2] > kept[3], kept
        assert by_stage[3][0] > by_stage[2][0] == by_stage[1][0], by_stage
        assert sent(ranks, 3, "breadth")[0] < sent(ranks, 3)[0]
        assert sent(ranks, 2, "depth", 1)[0] < sent(ranks, 2)[0]
    assert sent(1, 3)[0] == 0


def test_quickstart_configuration(bench):
    """configs/quickstart.yaml, a few steps of it: -n 8, 4, 2 and 1 print the same losses."""
    config = os.path.join(os.path.dirname(__file__), "..", "..", "configs", "quickstart.yaml")
    data = bench.path("quickstart.txt")
    run.text_file(data, 60000, 4)
    sets = {
        "data.train": data,
        "data.eval": data,
        "run.steps": 3,
        "run.eval_batches": 1,
        "run.digest": "states",
        "run.log_every": 1,
        "scheduler.params.total_num_steps": 600,
    }
    logs = {n: bench.whole(os.path.abspath(config), n, sets) for n in (1, 2, 4, 8)}
    for ranks, log in logs.items():
        run.assert_same(log.facts(), logs[1].facts(), "%d ranks" % ranks)
    assert sorted(logs[8].facts()[0]) == [1, 2, 3]


if __name__ == "__main__":
    tests = [
        test_llama_8_micro_batches,
        test_gpt2_12_micro_batches,
        test_settings_differ_where_they_should,
    ]
    if run.LONG:
        tests += [
            test_gpt2_8_micro_batches,
            test_llama_12_micro_batches,
            test_quickstart_configuration,
        ]
    run.main(tests)
