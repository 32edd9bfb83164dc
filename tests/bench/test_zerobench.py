"""zerobench --quick: every subcommand runs, exits 0 and writes the JSON it promises; no time decides.

usage: test_zerobench.py ZEROBENCH [MPIRUN]
"""

import json
import os
import subprocess
import sys
import tempfile

COMMANDS = {  # subcommand -> words that its rows must have
    "gemm": ["fp32 small y", "bf16 small dw"],
    "copy": ["memcpy, 1 thread", "host to device, its stream", "both ways at once"],
    "adam": ["fp32 AdamW, 28 B/param", "bf16 AdamW, bf16 gradients, 26 B/param"],
    "comm": ["all_gather 64 KiB", "reduce_scatter fp32", "all_reduce 1 KiB"],
    "calibrate": ["memcpy, all threads", "linear, fp32", "head_loss, bf16", "adamw, fp32"],
    "step": ["linear_grad_w", "attention", "head_loss", "adamw"],
    "disk": [m + w for m in ("read", "write", "mixed") for w in (", sweep, 1 MiB x 16", ", posix, ")],
    "tune-disk": ["read, 1 MiB x 16, default", "write, 1 MiB x 16", "mixed, 1 MiB x 16"],
}
AIO_KEYS = {"block_size": int, "queue_depth": int, "thread_count": int, "single_submit": bool, "overlap_events": bool}
FACTS = {"tune-disk": ["best_over_default"], "step": ["step_s", "bound_s", "step_over_bound", "products_s", "copy_gbps"]}
ROW_KEYS = ("what", "seconds", "value", "unit", "ceiling", "ceiling_of", "ratio")
MPI_ENV = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl": "self,vader",
}
WRONG = [[], ["nothing"], ["gemm", "--threads", "0"], ["copy", "extra"], ["adam", "--dtype", "int4"]]
WRONG += [["gemm", "--shape", "1,2"], ["step", "--quick", "--set", "no.such.key=1"], ["comm", "--size"]]
WRONG += [["disk", "--bytes", "much"], ["disk", "--bytes", "8MiB"], ["disk", "--path", "/no/such/folder"]]
WRONG += [["disk", "--deepnvme", "python3"], ["disk", "--seconds", "0"], ["tune-disk", "--chunk", "5000"]]

zerobench = sys.argv[1]
mpirun = sys.argv[2] if len(sys.argv) > 2 else ""
# OpenMP's own threads are not known to ThreadSanitizer.
few_threads = ["--threads", "1"] if os.environ.get("ZR_SANITIZE") == "thread" else []
failures = []


def check(is_true, text):
    if not is_true:
        failures.append(text)


def start(words, ranks=1):
    launcher = [mpirun, "-n", str(ranks)] if ranks > 1 else []
    return subprocess.run(
        launcher + [zerobench] + words,
        env=dict(os.environ, **MPI_ENV),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def check_command(command, folder, ranks, more=()):
    name = " ".join([command, *more, "on %d ranks" % ranks])
    path = os.path.join(folder, "out.json")
    if os.path.exists(path):
        os.remove(path)
    done = start([command, "--quick", "--json", path, *few_threads, *more], ranks)
    check(done.returncode == 0, "%s: exit code %d: %s" % (name, done.returncode, done.stderr))
    if done.returncode != 0:
        return
    with open(path, encoding="utf-8") as file:
        out = json.load(file)
    check(out["bench"] == command and out["quick"] is True, "%s: says what it is" % name)
    check(out["machine"]["ranks"] == ranks and out["machine"]["threads"] > 0, "%s: machine" % name)
    check(isinstance(out["machine"]["processor"], str), "%s: processor" % name)
    for row in out["rows"]:
        check(all(key in row for key in ROW_KEYS), "%s: keys of %s" % (name, row))
        check(row["what"] in done.stdout, "%s: the table lacks %s" % (name, row["what"]))
        both = row["ceiling"] is not None and row["value"] is not None
        check((row["ratio"] is not None) == both, "%s: ratio of %s" % (name, row))
    whats = [row["what"] for row in out["rows"]]
    for words in COMMANDS[command]:
        check(any(words in what for what in whats), "%s: no row '%s' in %s" % (name, words, whats))
    if command == "disk":
        ours = [row for row in out["rows"] if row["what"].startswith(("read, io_uring", "read, posix"))]
        check(all(row["ratio"] for row in ours), "%s: ours without a ceiling: %s" % (name, ours))
    if command == "tune-disk":
        aio = {key: type(value) for key, value in out["facts"]["aio"].items()}
        check(aio == AIO_KEYS, "%s: aio: %s" % (name, out["facts"]["aio"]))
        check('"aio": {"block_size": ' in done.stdout, "%s: prints no aio block" % name)
    for fact in FACTS.get(command, []):
        check(out["facts"].get(fact, 0) > 0, "%s: no fact %s" % (name, fact))
    check("zerobench: %s" % command in done.stderr, "%s: says nothing while it runs" % name)


def check_wrong(words, code=2):
    done = start(words)
    name = "zerobench " + " ".join(words)
    check(done.returncode == code, "%s: exit code %d" % (name, done.returncode))
    check("error" in done.stderr and done.stdout == "", "%s: message" % name)


with tempfile.TemporaryDirectory() as scratch:
    os.environ["TMPDIR"] = scratch
    os.environ["XDG_CACHE_HOME"] = os.path.join(scratch, "cache")
    for subcommand in COMMANDS:
        on_drive = ["--bytes", "64MiB", "--path", scratch] if "disk" in subcommand else []
        check_command(subcommand, scratch, 1, on_drive)
    check_command("adam", scratch, 1, ["--all"])
    check_command("step", scratch, 1, ["--dtype", "bf16", "--set", "gradient_accumulation_steps=2"])
    if mpirun:
        for subcommand in ("copy", "comm", "step"):
            check_command(subcommand, scratch, 2)
    for wrong in WRONG:
        check_wrong(wrong)
    check_wrong(["disk", "--path", scratch, "--bytes", "8TiB"], code=4)
    left = sorted(set(os.listdir(scratch)) - {"out.json"})
    check(left == ["cache"], "left behind: %s" % left)
    check(os.listdir(scratch + "/cache/zerorun") == ["profile.json"], "no profile where it belongs")
if start(["--help"]).returncode != 0:
    failures.append("--help")
for failure in failures:
    print("FAILED", failure)
print("%d failures" % len(failures))
sys.exit(1 if failures else 0)
