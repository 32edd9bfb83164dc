#!/usr/bin/env python3
"""Simulated beside measured: calibrates the machine, runs a dozen configurations, and prints for
each the step that was predicted before it ran, the middle one of those it took, and the bound.

usage: bench/sim_check.py BUILD_DIR [--steps N] [--only NAME,...] [--profile FILE] [--json FILE]

The machine should have nothing else to do: a profile taken in one minute does not know what a
neighbour does in the next. With --profile an existing profile is used. Exit code 0 unless a run
fails; times decide nothing.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

GPT2 = {"architectures": ["GPT2LMHeadModel"], "n_embd": 256, "n_layer": 4, "n_head": 4,
        "n_positions": 512, "vocab_size": 4096}
LLAMA = {"architectures": ["LlamaForCausalLM"], "hidden_size": 256, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 688,
         "vocab_size": 4096, "tie_word_embeddings": False}
BASE = {
    "model": GPT2,
    "data": {"tokenizer": "byte", "seq_len": 256},
    "train_batch_size": 8,
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.0003}},
    "checkpoint": {"at_end": False, "resume": False},
}


def merged(*parts):
    out = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, dict) and isinstance(out.get(key), dict) and key != "model"
            out[key] = merged(out[key], value) if both else value
    return out


def offload(**devices):
    zero = {"stage": 3 if "param" in devices else 2}
    for what, device in devices.items():
        zero["offload_" + what] = {"device": device}
    return {"zero_optimization": zero}


BF16 = {"bf16": {"enabled": True}}
WIDE = {"model": dict(GPT2, n_embd=512, n_head=8)}
CONFIGURATIONS = {
    "fp32": {},
    "bf16": BF16,
    "llama": {"model": LLAMA},
    "wide": WIDE,
    "deep bf16": merged(BF16, {"model": dict(GPT2, n_layer=10)}),
    "recompute": {"plan": {"recompute": "full"}},
    "breadth": {"plan": {"order": "breadth"}, "train_micro_batch_size_per_gpu": 2},
    "long": {"data": {"seq_len": 512}, "train_batch_size": 4, "train_micro_batch_size_per_gpu": 2},
    "optimizer on host": merged(WIDE, offload(optimizer="cpu")),
    "optimizer on disk": merged(WIDE, offload(optimizer="nvme")),
    "all on host": merged(WIDE, offload(optimizer="cpu", param="cpu")),
    "all on disk bf16": merged(WIDE, BF16, offload(optimizer="nvme", param="nvme")),
}


def write_text(path):
    words = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(300000):
            file.write(words.choice(["the ", "day ", "of ", "wind ", "sea ", "stone "]))


def run(zerorun, folder, name, change, steps, profile):
    config = merged(BASE, change, {"run": {"steps": steps, "dir": folder + "/run"},
                                   "data": {"train": folder + "/text.txt"},
                                   "backend": {"profile": profile}})
    for what in ("offload_optimizer", "offload_param"):
        block = config.get("zero_optimization", {}).get(what, {})
        if block.get("device") == "nvme":
            block["nvme_path"] = folder
    path = folder + "/config.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    done = subprocess.run([zerorun, "--json", path], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{name}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    events = [json.loads(line) for line in done.stdout.splitlines()]
    start = next(event for event in events if event["event"] == "start")
    end = events[-1]["steps"]
    waited = sorted(((s, k) for k, s in end["exposed_s"].items() if s > 0), reverse=True)
    return {"name": name, "simulated_s": start["predicted"]["step_s"],
            "profile_bound_s": start["predicted"]["bound_s"], "waited": waited[:2], **end}


def show(row):
    ratio = row["simulated_s"] / row["median_s"]
    waited = ", ".join(f"{k} {s:.3f}" for s, k in row["waited"])
    print(f"{row['name']:20} {row['simulated_s']:10.4f} {row['median_s']:10.4f} {ratio:7.3f}"
          f" {row['bound_s']:10.4f} {row['median_s'] / row['bound_s']:7.3f}  {row['bound_by']:8}"
          f" {waited}", flush=True)
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--only")
    parser.add_argument("--profile")
    parser.add_argument("--json")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(CONFIGURATIONS)
    rows, n_failed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        profile = args.profile or folder + "/profile.json"
        if not args.profile:
            subprocess.run([os.path.join(args.build, "bench/zerobench"), "calibrate", profile],
                           check=True, stdout=subprocess.DEVNULL)
        write_text(folder + "/text.txt")
        print(f"{'configuration':20} {'simulated':>10} {'median, s':>10} {'ratio':>7}"
              f" {'bound, s':>10} {'over':>7}  {'by':8} compute waits for, s")
        for name in names:
            row = run(os.path.join(args.build, "zerorun"), folder, name, CONFIGURATIONS[name],
                      args.steps, os.path.abspath(profile))
            if row is None:
                n_failed += 1
                continue
            row["ratio"] = show(row)
            rows.append(row)
    near = sum(abs(row["ratio"] - 1) <= 0.15 for row in rows)
    print(f"{near} of {len(rows)} within 15 % of the median; {n_failed} did not run")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
