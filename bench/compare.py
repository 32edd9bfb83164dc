"""zerorun beside its peers on the same GPT-2 124M steps, interleaved; ratios of the minima and a table.

usage: compare.py BUILD_DIR PEERS_DIR PYTHON [--rounds 2] [--only one|two] [--deepspeed VENV]
  PEERS_DIR  folder with torch_gpt2.py and deepspeed_gpt2.sh      PYTHON  an interpreter with PyTorch and transformers
One JSON line for each run as it ends; the table last. Minimum of several: the machine may be shared.
"""
import argparse, json, os, struct, subprocess, sys, tempfile

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("peers")
parser.add_argument("python")
parser.add_argument("--rounds", type=int, default=2)
parser.add_argument("--only", choices=["one", "two"])
parser.add_argument("--deepspeed", metavar="VENV")
args = parser.parse_args()

MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


def token_file(path, n=200_000, vocab=50257):
    header = [20240520, 1, n] + [0] * 253
    ids = [i * 2654435761 % 2**32 % vocab for i in range(n)]
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", *header) + struct.pack(f"<{n}H", *ids))


def zerorun(folder, dtype, ranks, stage, batch, seq_len):
    name = f"{folder}/run-{dtype}-{ranks}-{stage}"
    config = {"model": {"preset": "gpt2"}, "data": {"train": f"{folder}/tokens.bin", "seq_len": seq_len},
              "train_micro_batch_size_per_gpu": batch, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
              "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}}, "bf16": {"enabled": dtype == "bf16"},
              "zero_optimization": {"stage": stage}, "checkpoint": {"at_end": False},
              "run": {"steps": 5, "dir": name, "log_every": 1}}
    with open(f"{name}.json", "w") as file:
        json.dump(config, file)
    subprocess.run(["rm", "-rf", name], check=True)
    launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run(launcher + [f"{args.build}/zerorun", f"{name}.json"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, env={**os.environ, **MPI})
    if done.returncode != 0:
        sys.exit(f"zerorun failed ({done.returncode}): {done.stderr}")
    with open(f"{name}/log.jsonl") as file:
        lines = [json.loads(line) for line in file]
    steps = [line for line in lines if line["event"] == "step"]
    return min(line["step_s"] for line in steps[1:]), steps[-1]["peak_bytes"]["device"]


def peer(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        return None
    result = json.loads(lines[-1])
    return result["min_s"], result.get("rss_bytes_rank0")


def works(folder):
    """(name, runs): the first run is zerorun's."""
    torch = lambda dtype: lambda: peer([args.python, f"{args.peers}/torch_gpt2.py", dtype, "4", "256", "--steps", "3"])
    if args.only != "two":
        yield "fp32, 1 rank, 4 x 256", {"zerorun": lambda: zerorun(folder, "fp32", 1, 0, 4, 256), "torch fp32": torch("fp32")}
        yield "bf16, 1 rank, 4 x 256", {"zerorun": lambda: zerorun(folder, "bf16", 1, 0, 4, 256),
                                        "torch bf16": torch("bf16"), "torch autocast": torch("autocast")}
    if args.only != "one" and args.deepspeed:
        for stage in (1, 2, 3):
            deepspeed = ["bash", f"{args.peers}/deepspeed_gpt2.sh", args.deepspeed, "2", str(stage), "none", "2", "256"]
            yield f"bf16, 2 ranks, 2 x 256, stage {stage}", {
                "zerorun": lambda stage=stage: zerorun(folder, "bf16", 2, stage, 2, 256),
                "deepspeed": lambda deepspeed=deepspeed: peer(deepspeed)}


table = []
with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
    token_file(f"{folder}/tokens.bin")
    for work, runs in works(folder):
        best = {}
        for round_number in range(args.rounds):
            for name, run in runs.items():
                result = run()
                if result is None:
                    print(json.dumps({"bench": "compare", "work": work, "what": name, "failed": True}), flush=True)
                    continue
                print(json.dumps({"bench": "compare", "work": work, "what": name, "round": round_number,
                                  "s": round(result[0], 4), "bytes": result[1]}), flush=True)
                best[name] = min(best.get(name, 1e30), result[0])
        for name, seconds in best.items():
            table.append((work, name, seconds, seconds / best["zerorun"]))
print("\n| work | what | s a step | times zerorun's |\n|---|---|---|---|")
for work, name, seconds, ratio in table:
    print(f"| {work} | {name} | {seconds:.3f} | {ratio:.2f} |")
