"""A GPT-2 124M step of zerorun beside the same model as plain C loops (and PyTorch, if asked), interleaved.

usage: step.py BUILD_DIR [--batch 4] [--seq-len 64] [--rounds 3] [--torch PYTHON SCRIPT]
Prints one JSON line for each run and, last, the ratios of the minima. Minimum of several: the machine may be shared.
"""
import argparse, json, os, struct, subprocess, sys, tempfile

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--seq-len", type=int, default=64)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--torch", nargs=2, metavar=("PYTHON", "SCRIPT"))
args = parser.parse_args()


def token_file(path, n=200_000, vocab=50257):
    header = [20240520, 1, n] + [0] * 253
    ids = [i * 2654435761 % 2**32 % vocab for i in range(n)]
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", *header) + struct.pack(f"<{n}H", *ids))


def zerorun(folder):
    config = f"""model: {{preset: gpt2}}
data: {{train: {folder}/tokens.bin, seq_len: {args.seq_len}}}
train_micro_batch_size_per_gpu: {args.batch}
gradient_accumulation_steps: 1
gradient_clipping: 1.0
optimizer: {{type: AdamW, params: {{lr: 3e-4}}}}
run: {{steps: 4, dir: {folder}/run, log_every: 1}}
"""
    with open(f"{folder}/bench.yaml", "w") as file:
        file.write(config)
    subprocess.run(["rm", "-rf", f"{folder}/run"], check=True)
    command = [f"{args.build}/zerorun", "--set", "checkpoint.at_end=false", f"{folder}/bench.yaml"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"zerorun failed ({done.returncode}): {done.stderr}")
    with open(f"{folder}/run/log.jsonl") as file:
        lines = [json.loads(line) for line in file]
    return min(line["step_s"] for line in lines if line["event"] == "step")


def json_tool(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])["min_s"]


best = {}
with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
    token_file(f"{folder}/tokens.bin")
    runs = {"zerorun": lambda: zerorun(folder),
            "plain C": lambda: json_tool([f"{args.build}/bench/gpt2_plain", str(args.batch), str(args.seq_len), "2"])}
    if args.torch:
        runs["torch"] = lambda: json_tool([*args.torch, "fp32", str(args.batch), str(args.seq_len)])
    for round_number in range(args.rounds):
        for name, run in runs.items():
            seconds = run()
            best[name] = min(best.get(name, 1e30), seconds)
            print(json.dumps({"bench": "step", "what": name, "round": round_number, "s": round(seconds, 4)}), flush=True)
ratios = {f"{name} / zerorun": round(seconds / best["zerorun"], 2) for name, seconds in best.items() if name != "zerorun"}
print(json.dumps({"bench": "step", "batch": args.batch, "seq_len": args.seq_len,
                  "min_s": {name: round(seconds, 4) for name, seconds in best.items()}, **ratios}))
