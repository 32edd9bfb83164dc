#!/usr/bin/env python3
"""Makes half.json beside this script: how far PyTorch's own bf16 is from the golden files' float64.

Masters in float32, a module of transformers with its parameters in bf16, the loss of its logits in
float32, gradients in bf16 taken to float32, clipping and torch.optim.AdamW on the masters. Needs
what make_golden.py needs; the golden files are read, not made.

Relative L2 distances: `losses` of the ten steps; of the first step `token_losses` (before the mean),
`logits`, `gradient` (all tensors together, key biases left out) and `gradients` tensor by tensor.
"""
import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import make_golden as golden

HERE = pathlib.Path(__file__).resolve().parent


def without_key_bias(name, value):
    if not name.endswith("c_attn.bias"):
        return value
    query, _, v = value.chunk(3)
    return torch.cat((query, v))


def run(c, file):
    """Logits and gradients of step 1, losses of all steps."""
    masters = {n: file["param." + n].clone() for n in golden.shapes(c)}
    module = golden.reference_module(c).eval()
    module.load_state_dict(masters, strict=False)
    module.tie_weights()
    module = module.bfloat16()
    named = dict(module.named_parameters())
    decay = [v for v in masters.values() if v.dim() > 1 or not c["decay_matrices"]]
    plain = [v for v in masters.values() if v.dim() == 1 and c["decay_matrices"]]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": c["weight_decay"]},
         {"params": plain, "weight_decay": 0.0}],
        lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["eps"], foreach=False)
    out = {"losses": []}
    for step in range(golden.STEPS):
        logits = module(file["tokens"][step].long()).logits
        loss = F.cross_entropy(logits.float().reshape(-1, c["vocab_size"]),
                               file["targets"][step].long().reshape(-1), ignore_index=-1)
        module.zero_grad()
        loss.backward()
        for name, master in masters.items():
            master.grad = named[name].grad.float()
        if step == 0:
            out["logits"] = logits.detach()
            out["grads"] = {name: m.grad.clone() for name, m in masters.items()}
        out["losses"].append(float(loss.detach()))
        torch.nn.utils.clip_grad_norm_(masters.values(), c["max_grad_norm"])
        for group in optimizer.param_groups:
            group["lr"] = golden.learning_rate(c, step + 1)
        optimizer.step()
        with torch.no_grad():
            for name, master in masters.items():
                named[name].copy_(master)
    return out


def token_losses(logits, targets):
    logits, targets = logits.reshape(-1, logits.shape[-1]), targets.long().reshape(-1)
    return F.cross_entropy(logits, targets, ignore_index=-1, reduction="none")


def distances(c, file):
    got = run(c, file)
    pairs = {n: (without_key_bias(n, got["grads"][n]), without_key_bias(n, file["grad." + n]))
             for n in golden.shapes(c)}
    whole = [torch.cat([pair[i].double().reshape(-1) for pair in pairs.values()]) for i in (0, 1)]
    return {"losses": golden.distance(torch.tensor(got["losses"]), file["losses"]),
            "token_losses": golden.distance(token_losses(got["logits"].float(), file["targets"][0]),
                                            token_losses(file["logits"], file["targets"][0])),
            "logits": golden.distance(got["logits"], file["logits"]),
            "gradient": golden.distance(*whole),
            "gradients": {name: golden.distance(*pair) for name, pair in pairs.items()}}


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = {}
    for model, config in golden.MODELS.items():
        if "documents" in config:  # no module of transformers takes them packed
            continue
        out[model] = distances({**golden.COMMON, **config}, load_file(HERE / f"{model}.safetensors"))
        print(model, {k: f"{v:.2e}" for k, v in out[model].items() if k != "gradients"})
    (HERE / "half.json").write_text(json.dumps(out, indent=1) + "\n")
