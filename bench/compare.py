"""zerorun beside its peers on the same work, interleaved: seconds, ratios of the minima, memory. compare.sh starts it.

usage: compare.py BUILD_DIR --peers DIR --venv VENV [--rounds 2] [--only one,two,update] [--limit 120] [--json FILE]
  --peers  folder with torch_gpt2.py, deepspeed_gpt2.sh and adamw.py
  --venv   environment with PyTorch, transformers and DeepSpeed
One JSON line for each run as it ends; the table last. Minimum of several: the machine may be shared. A run that takes
longer than the limit is ended, said so, and not tried again; DeepSpeed's own parts are compiled before. Memory is the largest sum of resident bytes over a run's
processes (what they share counts in each).
"""
import argparse, json, os, platform, signal, struct, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("--peers", required=True)
parser.add_argument("--venv", required=True)
parser.add_argument("--rounds", type=int, default=2)
parser.add_argument("--steps", type=int, default=3, help="steps of a run, besides the first")
parser.add_argument("--only", default="one,two,update")
parser.add_argument("--limit", type=float, default=120, help="seconds that a run may take")
parser.add_argument("--params", type=float, default=50e6, help="of the update alone")
parser.add_argument("--json")
args = parser.parse_args()

ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl": "self,vader", "DS_ACCELERATOR": "cpu",
       "TORCH_EXTENSIONS_DIR": os.path.join(args.venv, "torch_extensions"),
       "PATH": os.path.join(args.venv, "bin") + ":" + os.environ["PATH"]}
PYTHON = os.path.join(args.venv, "bin", "python")
for needed in (PYTHON, f"{args.peers}/torch_gpt2.py", f"{args.peers}/deepspeed_gpt2.sh", f"{args.peers}/adamw.py"):
    if not os.path.exists(needed):
        print(f"compare.py: {needed} is not there: see --help for --peers and --venv", file=sys.stderr)
        sys.exit(2)


class Late(Exception):
    pass


class Failed(Exception):
    pass


# --- processes ---------------------------------------------------------------------------------------------------

def tree(root):
    """Process ids of `root` and all below it."""
    children = {}
    for name in os.listdir("/proc"):
        try:
            if name.isdigit():
                with open(f"/proc/{name}/stat") as file:
                    children.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
        except OSError:
            pass
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def resident(pids):
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as file:
                total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            pass
    return total


def end(root):
    for pid in reversed(tree(root)):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def run(command, limit=args.limit):
    """(standard output, most resident bytes); Late or Failed."""
    begun, most = time.monotonic(), 0
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **ENV})
        while process.poll() is None:
            most = max(most, resident(tree(process.pid)))
            if time.monotonic() - begun > limit:
                end(process.pid)
                process.wait()
                raise Late(f"not finished within {limit:.0f} s")
            time.sleep(0.2)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            lines = err.read().strip().splitlines() or ["no message"]
            raise Failed(f"exit code {process.returncode}: {lines[-1][:160]}")
        return out.read(), most


# DeepSpeed compiles its optimizer and collectives when they are first used; whoever ends that leaves a lock behind, at
# which the next run waits for ever. They lie in the environment, where nobody else compiles.
COMPILE = """
import os, torch
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
import deepspeed
from deepspeed.ops.adam import DeepSpeedCPUAdam
DeepSpeedCPUAdam([torch.nn.Parameter(torch.ones(8))])
deepspeed.init_distributed("gloo")
"""


def compile_deepspeed():
    if args.only == "one":
        return
    print(json.dumps({"bench": "compare", "what": "DeepSpeed compiles its parts"}), flush=True)
    for folder, _, files in os.walk(ENV["TORCH_EXTENSIONS_DIR"]):
        for name in {"lock", ".ninja_lock"} & set(files):
            os.remove(os.path.join(folder, name))
    try:
        run([PYTHON, "-c", COMPILE], limit=900)
    except (Late, Failed) as why:
        print(json.dumps({"bench": "compare", "what": "DeepSpeed's parts", "note": str(why)}), flush=True)


# --- what is run -------------------------------------------------------------------------------------------------

def token_file(path, n=200_000, vocab=50257):
    header = [20240520, 1, n] + [0] * 253
    ids = [i * 2654435761 % 2**32 % vocab for i in range(n)]
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", *header) + struct.pack(f"<{n}H", *ids))


def zerorun(folder, dtype, ranks, stage, batch, seq_len=256):
    name = f"{folder}/run-{dtype}-{ranks}-{stage}"
    config = {"model": {"preset": "gpt2"}, "data": {"train": f"{folder}/tokens.bin", "seq_len": seq_len},
              "train_micro_batch_size_per_gpu": batch, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
              "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}}, "bf16": {"enabled": dtype == "bf16"},
              "zero_optimization": {"stage": stage}, "checkpoint": {"at_end": False},
              "run": {"steps": args.steps + 1, "dir": name, "log_every": 1}}
    with open(f"{name}.json", "w") as file:
        json.dump(config, file)
    subprocess.run(["rm", "-rf", name], check=True)
    launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    _, rss = run(launcher + [f"{args.build}/zerorun", f"{name}.json"])
    with open(f"{name}/log.jsonl") as file:
        steps = [line for line in map(json.loads, file) if line["event"] == "step"]
    return {"zerorun": min(line["step_s"] for line in steps[1:])}, rss


def torch(dtype):
    out, rss = run([PYTHON, f"{args.peers}/torch_gpt2.py", dtype, "4", "256", "--steps", str(args.steps),
                    "--threads", str(os.cpu_count())])
    return {f"torch {dtype}": json.loads(out.strip().splitlines()[-1])["min_s"]}, rss


def deepspeed(stage):
    out, rss = run(["bash", f"{args.peers}/deepspeed_gpt2.sh", args.venv, "2", str(stage), "none", "2", "256"])
    return {"deepspeed": json.loads(out.strip().splitlines()[-1])["min_s"]}, rss


def our_updates(folder):
    size = int(args.params) * 16
    path = f"{folder}/adam.json"
    _, rss = run([f"{args.build}/bench/zerobench", "adam", "--json", path, "--size", str(size), "--rounds", "7"])
    with open(path) as file:
        rows = {row["what"]: row["seconds"] for row in json.load(file)["rows"]}
    return {"zerorun AdamW fp32": rows["fp32 AdamW, 28 B/param"],
            "zerorun norm + AdamW, bf16 model": rows["bf16 norm, then AdamW, 32 B/param"]}, rss


def their_updates():
    out, rss = run([PYTHON, f"{args.peers}/adamw.py", str(int(args.params)), str(os.cpu_count())])
    seconds = {line["peer"]: line["s"] for line in map(json.loads, filter(lambda l: l.startswith("{"), out.splitlines()))}
    return {name: s for name, s in seconds.items() if "copy" not in name}, rss


def works(folder):
    """(name, {what: run}, whose time each other one is divided by)"""
    only = args.only.split(",")
    if "one" in only:
        yield "fp32, 1 rank, 4 x 256", {"zerorun": lambda: zerorun(folder, "fp32", 1, 0, 4), "torch fp32": lambda: torch("fp32")}
        yield "bf16, 1 rank, 4 x 256", {"zerorun": lambda: zerorun(folder, "bf16", 1, 0, 4), "torch bf16": lambda: torch("bf16"),
                                        "torch autocast": lambda: torch("autocast")}
    if "two" in only:
        for stage in (1, 2, 3):
            yield f"bf16, 2 ranks, 2 x 256 each, stage {stage}", {
                "zerorun": lambda stage=stage: zerorun(folder, "bf16", 2, stage, 2),
                "deepspeed": lambda stage=stage: deepspeed(stage)}
    if "update" in only:
        yield f"update alone, {args.params / 1e6:.0f}M parameters", {"zerorun updates": lambda: our_updates(folder),
                                                                  "peers' updates": their_updates}


def yardstick(what, best):
    """What a row is compared with: our run of the same work."""
    if "zerorun" in best:
        return best["zerorun"]
    return best.get("zerorun norm + AdamW, bf16 model" if "sequence" in what or "bf16" in what else "zerorun AdamW fp32")


def processor():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def measure(folder):
    table = []
    for work, runs in works(folder):
        best, memory, notes = {}, {}, {}
        for round_number in range(args.rounds):
            for name, start in runs.items():
                if name in notes:
                    continue
                try:
                    seconds, rss = start()
                except (Late, Failed) as why:
                    notes[name] = str(why)
                    print(json.dumps({"bench": "compare", "work": work, "what": name, "note": str(why)}), flush=True)
                    continue
                for what, s in seconds.items():
                    print(json.dumps({"bench": "compare", "work": work, "what": what, "round": round_number,
                                      "s": round(s, 5), "rss_bytes": rss}), flush=True)
                    best[what] = min(best.get(what, 1e30), s)
                    memory[what] = max(memory.get(what, 0), rss)
        for what, s in best.items():
            ours = yardstick(what, best)
            table.append({"work": work, "what": what, "s": s, "ratio": s / ours if ours else None, "rss_bytes": memory[what]})
        table += [{"work": work, "what": name, "s": None, "ratio": None, "rss_bytes": None, "note": why}
                  for name, why in notes.items()]
    return table


def show(table):
    print("\n| work | what | s | times zerorun's | resident MiB |\n|---|---|---|---|---|")
    for row in table:
        if row["s"] is None:
            print(f"| {row['work']} | {row['what']} | {row['note']} | | |")
        else:
            ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
            print(f"| {row['work']} | {row['what']} | {row['s']:.3f} | {ratio} | {row['rss_bytes'] / 2**20:.0f} |")


with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
    token_file(f"{scratch}/tokens.bin")
    compile_deepspeed()
    result = measure(scratch)
show(result)
if args.json:
    with open(args.json, "w") as out_file:
        json.dump({"bench": "compare", "processor": processor(), "cores": os.cpu_count(), "rounds": args.rounds, "rows": result},
                  out_file, indent=1)
sys.exit(1 if any(row["s"] is None and row["what"].startswith("zerorun") for row in result) else 0)
