#!/usr/bin/env python3
"""Makes the golden files *.safetensors beside this script: the oracle of models and optimizer.

Needs torch >= 2.6, transformers >= 5, numpy, safetensors. Run it without arguments, or with the
names of some models; it overwrites the files and ends with an error if the oracle and transformers
disagree.

The forward is written here, in functional form, because a module's .double() is not float64: norms,
softmax and rotary angles of transformers pass through float32. Each model is checked against
transformers' module in float32 with the same weights (relative error 1e-4). Where samples hold
several documents, that module sees each of them alone.
"""
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

STEPS, SAMPLES, SEQ = 10, 4, 19
COMMON = dict(lr=1e-3, warmup_min_lr=2e-4, warmup_steps=4, beta1=0.9, beta2=0.95, eps=1e-8,
              weight_decay=0.1)
MODELS = {
    "gpt2": dict(arch="gpt2", vocab_size=65, hidden_size=32, n_layers=2, n_heads=4, n_kv_heads=4,
                 head_dim=8, intermediate_size=128, max_positions=24, norm_eps=1e-5, rope_theta=0.0,
                 tied=1, decay_matrices=0, max_grad_norm=2.8, seed=1),
    "llama_grouped": dict(arch="llama", vocab_size=65, hidden_size=32, n_layers=2, n_heads=4,
                          n_kv_heads=2, head_dim=8, intermediate_size=72, max_positions=24,
                          norm_eps=1e-6, rope_theta=10000.0, tied=1, decay_matrices=0,
                          max_grad_norm=4.4, seed=2),
    "llama_head_dim": dict(arch="llama", vocab_size=61, hidden_size=36, n_layers=2, n_heads=3,
                           n_kv_heads=1, head_dim=10, intermediate_size=52, max_positions=24,
                           norm_eps=1e-5, rope_theta=500.0, tied=0, decay_matrices=1,
                           max_grad_norm=4.0, seed=3),
    "llama_scaled": dict(arch="llama", vocab_size=61, hidden_size=32, n_layers=2, n_heads=2,
                         n_kv_heads=2, head_dim=16, intermediate_size=48, max_positions=128,
                         norm_eps=1e-5, rope_theta=10000.0, tied=1, decay_matrices=1,
                         attention_bias=1, mlp_bias=1, rope_type="llama3", rope_factor=4.0,
                         rope_low_freq=1.0, rope_high_freq=4.0, rope_original=32,
                         max_grad_norm=3.9, seed=4),
    "mistral": dict(arch="mistral", vocab_size=61, hidden_size=32, n_layers=2, n_heads=4,
                    n_kv_heads=2, head_dim=6, intermediate_size=56, max_positions=64,
                    norm_eps=1e-5, rope_theta=10000.0, tied=0, decay_matrices=0,
                    sliding_window=19, max_grad_norm=3.48, seed=5),
    "qwen2": dict(arch="qwen2", vocab_size=61, hidden_size=32, n_layers=2, n_heads=4, n_kv_heads=2,
                  head_dim=8, intermediate_size=52, max_positions=64, norm_eps=1e-6,
                  rope_theta=1000.0, tied=1, decay_matrices=1, attention_bias=1,
                  rope_type="linear", rope_factor=2.5, max_grad_norm=4.4, seed=6),
    "qwen3": dict(arch="qwen3", vocab_size=61, hidden_size=32, n_layers=2, n_heads=4, n_kv_heads=2,
                  head_dim=12, intermediate_size=52, max_positions=64, norm_eps=1e-6,
                  rope_theta=10000.0, tied=1, decay_matrices=0, max_grad_norm=4.5, seed=7),
    "llama_gelu": dict(arch="llama", vocab_size=61, hidden_size=32, n_layers=2, n_heads=4,
                       n_kv_heads=2, head_dim=8, intermediate_size=48, max_positions=24,
                       norm_eps=1e-6, rope_theta=10000.0, tied=1, decay_matrices=0,
                       hidden_act="gelu", max_grad_norm=5.5, seed=13),
    "mistral_window": dict(arch="mistral", vocab_size=61, hidden_size=32, n_layers=2, n_heads=4,
                           n_kv_heads=2, head_dim=6, intermediate_size=40, max_positions=64,
                           norm_eps=1e-5, rope_theta=10000.0, tied=0, decay_matrices=0,
                           sliding_window=6, max_grad_norm=3.5, seed=11),
    "qwen2_window": dict(arch="qwen2", vocab_size=61, hidden_size=32, n_layers=2, n_heads=4,
                         n_kv_heads=2, head_dim=8, intermediate_size=40, max_positions=64,
                         norm_eps=1e-6, rope_theta=10000.0, tied=1, decay_matrices=0,
                         attention_bias=1, sliding_window=7, max_window_layers=1,
                         max_grad_norm=4.95, seed=12),
    "gpt2_documents": dict(arch="gpt2", vocab_size=65, hidden_size=32, n_layers=2, n_heads=4,
                           n_kv_heads=4, head_dim=8, intermediate_size=64, max_positions=24,
                           norm_eps=1e-5, rope_theta=0.0, tied=1, decay_matrices=0, documents=1,
                           max_grad_norm=3.7, seed=8),
    "llama_documents": dict(arch="llama", vocab_size=61, hidden_size=32, n_layers=2, n_heads=4,
                            n_kv_heads=2, head_dim=8, intermediate_size=48, max_positions=24,
                            norm_eps=1e-6, rope_theta=10000.0, tied=0, decay_matrices=0, documents=1,
                            max_grad_norm=3.5, seed=21),
}


def shapes(c):
    """Name -> shape, as in the state dict of the Hugging Face model."""
    h, inner, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    out = {}
    if c["arch"] == "gpt2":
        out["transformer.wte.weight"] = (vocab, h)
        out["transformer.wpe.weight"] = (c["max_positions"], h)
        for i in range(c["n_layers"]):
            p = f"transformer.h.{i}."
            for name, rows, cols in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h),
                                     ("mlp.c_fc", h, inner), ("mlp.c_proj", inner, h)):
                out[p + name + ".weight"], out[p + name + ".bias"] = (rows, cols), (cols,)
            for name in ("ln_1", "ln_2"):
                out[p + name + ".weight"] = out[p + name + ".bias"] = (h,)
        out["transformer.ln_f.weight"] = out["transformer.ln_f.bias"] = (h,)
    else:
        q, kv = c["n_heads"] * c["head_dim"], c["n_kv_heads"] * c["head_dim"]
        out["model.embed_tokens.weight"] = (vocab, h)
        for i in range(c["n_layers"]):
            p = f"model.layers.{i}."
            out[p + "self_attn.q_proj.weight"] = (q, h)
            out[p + "self_attn.k_proj.weight"] = out[p + "self_attn.v_proj.weight"] = (kv, h)
            out[p + "self_attn.o_proj.weight"] = (h, q)
            out[p + "mlp.gate_proj.weight"] = out[p + "mlp.up_proj.weight"] = (inner, h)
            out[p + "mlp.down_proj.weight"] = (h, inner)
            if c.get("attention_bias"):
                out[p + "self_attn.q_proj.bias"] = (q,)
                out[p + "self_attn.k_proj.bias"] = out[p + "self_attn.v_proj.bias"] = (kv,)
                if c["arch"] != "qwen2":
                    out[p + "self_attn.o_proj.bias"] = (h,)
            if c.get("mlp_bias"):
                out[p + "mlp.gate_proj.bias"] = out[p + "mlp.up_proj.bias"] = (inner,)
                out[p + "mlp.down_proj.bias"] = (h,)
            if c["arch"] == "qwen3":
                for name in ("q_norm", "k_norm"):
                    out[p + f"self_attn.{name}.weight"] = (c["head_dim"],)
            out[p + "input_layernorm.weight"] = out[p + "post_attention_layernorm.weight"] = (h,)
        out["model.norm.weight"] = (h,)
    if not c["tied"]:
        out["lm_head.weight"] = (vocab, h)
    return out


def initial(c):
    """float32 numbers, none of them at a special place: norms near 1, biases near 0."""
    g = torch.Generator().manual_seed(c["seed"])
    params = {}
    for name, shape in shapes(c).items():
        r = torch.randn(shape, generator=g, dtype=torch.float32)
        if len(shape) == 1:
            value = 0.2 * r + (0.0 if name.endswith(".bias") else 1.0)
        else:
            value = r * (0.3 if "wte" in name or "wpe" in name or "embed" in name
                         else 1.2 / math.sqrt(c["hidden_size"]))
        params[name] = value
    return params


def batches(c):
    """tokens, targets [STEPS, SAMPLES, SEQ]: noisy cycles, so that there is something to learn."""
    g = torch.Generator().manual_seed(100 + c["seed"])
    start = torch.randint(c["vocab_size"], (STEPS, SAMPLES, 1), generator=g)
    text = (start + 3 * torch.arange(SEQ + 1)) % c["vocab_size"]
    noise = torch.randint(c["vocab_size"], text.shape, generator=g)
    text = torch.where(torch.rand(text.shape, generator=g) < 0.2, noise, text)
    tokens, targets = text[..., :-1].clone(), text[..., 1:].clone()
    targets[0, 0, :7] = -1  # step 1: 64 of the 76 count, unevenly over the samples
    targets[0, 2, 14:] = -1
    targets[3, 1, :] = -1  # a sample without any
    targets[6, :, ::2] = -1
    assert int((targets[0] >= 0).sum()) == 64
    starts = torch.zeros_like(tokens)
    if c.get("documents"):
        begins = torch.rand(tokens.shape, generator=g) < 0.2
        begins[..., 0] = True
        begins[0, 1] = False  # step 1: a sample that is one document, and one of three
        begins[0, 1, 0] = begins[0, 3, 0] = True
        begins[0, 3, 1:] = False
        begins[0, 3, 6] = begins[0, 3, 7] = True
        starts = torch.where(begins, torch.arange(SEQ), 0).cummax(-1).values
        targets[..., :-1][begins[..., 1:]] = -1  # what begins a document is no target
    return tokens.to(torch.int32), targets.to(torch.int32), starts.to(torch.int32)


def activation(c, x):
    """silu where the model says nothing; GPT-2's gelu_new is where it is used."""
    if c.get("hidden_act", "silu") == "gelu":
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2
    return x / (1 + torch.exp(-x))


def attend(q, k, v, head_dim, starts, window=SEQ):
    """q, k, v [b, heads, s, head_dim], starts [b, s] -> [b, s, heads * head_dim]"""
    scores = q @ k.transpose(-1, -2) / math.sqrt(head_dim)
    s = scores.shape[-1]
    query, key = torch.arange(s)[:, None], torch.arange(s)[None, :]
    hidden = (key > query) | (key <= query - window) | (key < starts[:, None, :, None])
    scores = scores.masked_fill(hidden, -math.inf)
    y = torch.softmax(scores, -1) @ v
    return y.transpose(1, 2).reshape(y.shape[0], s, -1)


def heads_of(x, n, head_dim):
    return x.reshape(x.shape[0], x.shape[1], n, head_dim).transpose(1, 2)


def gpt2(c, p, tokens, starts):
    h, n, d = c["hidden_size"], c["n_heads"], c["head_dim"]

    def norm(x, name):
        mean = x.mean(-1, keepdim=True)
        var = ((x - mean) ** 2).mean(-1, keepdim=True)
        x = (x - mean) / torch.sqrt(var + c["norm_eps"])
        return x * p[name + ".weight"] + p[name + ".bias"]

    def linear(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    position = torch.arange(tokens.shape[1]) - starts
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][position]
    for i in range(c["n_layers"]):
        b = f"transformer.h.{i}."
        q, k, v = linear(norm(x, b + "ln_1"), b + "attn.c_attn").split(h, -1)
        y = attend(heads_of(q, n, d), heads_of(k, n, d), heads_of(v, n, d), d, starts)
        x = x + linear(y, b + "attn.c_proj")
        u = linear(norm(x, b + "ln_2"), b + "mlp.c_fc")
        u = 0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
        x = x + linear(u, b + "mlp.c_proj")
    head = p["transformer.wte.weight"] if c["tied"] else p["lm_head.weight"]
    return norm(x, "transformer.ln_f") @ head.T


def stretched(c, rate):
    """rope_scaling of type linear and llama3."""
    kind = c.get("rope_type", "default")
    if kind == "default":
        return rate
    if kind == "linear":
        return rate / c["rope_factor"]
    waves = c["rope_original"] * rate / (2 * math.pi)
    low, high = c["rope_low_freq"], c["rope_high_freq"]
    smooth = ((waves - low) / (high - low)).clamp(0, 1)
    assert {0.0, 1.0} < set(smooth.tolist()), "all three parts of the curve"
    return (1 - smooth) * rate / c["rope_factor"] + smooth * rate


def llama(c, p, tokens, starts):
    """Llama, and what Mistral, Qwen2 and Qwen3 make of it."""
    n, kv, d = c["n_heads"], c["n_kv_heads"], c["head_dim"]
    rate = stretched(c, c["rope_theta"] ** (-torch.arange(0, d, 2, dtype=torch.float64) / d))
    angle = torch.outer(torch.arange(tokens.shape[1], dtype=torch.float64), rate)
    position = torch.arange(tokens.shape[1]) - starts
    cos, sin = (t[position][:, None] for t in (angle.cos(), angle.sin()))  # [b, 1, s, d / 2]

    def norm(x, name):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + c["norm_eps"]) * p[name + ".weight"]

    def linear(x, name):
        y = x @ p[name + ".weight"].T
        return y + p[name + ".bias"] if name + ".bias" in p else y

    def rope(x):
        a, b = x[..., : d // 2], x[..., d // 2 :]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    x = p["model.embed_tokens.weight"][tokens]
    for i in range(c["n_layers"]):
        b = f"model.layers.{i}."
        u = norm(x, b + "input_layernorm")
        q = heads_of(linear(u, b + "self_attn.q_proj"), n, d)
        k = heads_of(linear(u, b + "self_attn.k_proj"), kv, d)
        v = heads_of(linear(u, b + "self_attn.v_proj"), kv, d)
        if c["arch"] == "qwen3":
            q, k = norm(q, b + "self_attn.q_norm"), norm(k, b + "self_attn.k_norm")
        k, v = (t.repeat_interleave(n // kv, dim=1) for t in (rope(k), v))
        sees_all = i < c.get("max_window_layers", 0)
        window = SEQ if sees_all else c.get("sliding_window", SEQ)
        x = x + linear(attend(rope(q), k, v, d, starts, window), b + "self_attn.o_proj")
        u = norm(x, b + "post_attention_layernorm")
        gate, up = linear(u, b + "mlp.gate_proj"), linear(u, b + "mlp.up_proj")
        x = x + linear(activation(c, gate) * up, b + "mlp.down_proj")
    head = p["model.embed_tokens.weight"] if c["tied"] else p["lm_head.weight"]
    return norm(x, "model.norm") @ head.T


def logits_and_loss(c, p, tokens, targets, starts):
    logits = (gpt2 if c["arch"] == "gpt2" else llama)(c, p, tokens.long(), starts.long())
    flat, target = logits.reshape(-1, c["vocab_size"]), targets.long().reshape(-1)
    counted = target >= 0
    lse = torch.logsumexp(flat, -1)
    picked = flat.gather(1, target.clamp(min=0)[:, None])[:, 0]
    return logits, ((lse - picked) * counted).sum() / counted.sum()


def reference_module(c):
    if c["arch"] == "gpt2":
        return GPT2LMHeadModel(GPT2Config(
            vocab_size=c["vocab_size"], bos_token_id=None, eos_token_id=None,
            n_embd=c["hidden_size"], n_layer=c["n_layers"], n_head=c["n_heads"],
            n_positions=c["max_positions"], n_inner=c["intermediate_size"],
            layer_norm_epsilon=c["norm_eps"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            tie_word_embeddings=bool(c["tied"])))
    rope = {"rope_type": c.get("rope_type", "default"), "rope_theta": c["rope_theta"]}
    if "rope_factor" in c:
        rope["factor"] = c["rope_factor"]
    if rope["rope_type"] == "llama3":
        rope.update(low_freq_factor=c["rope_low_freq"], high_freq_factor=c["rope_high_freq"],
                    original_max_position_embeddings=c["rope_original"])
    more = {"llama": dict(attention_bias=bool(c.get("attention_bias")),
                          mlp_bias=bool(c.get("mlp_bias")),
                          hidden_act=c.get("hidden_act", "silu")),
            "mistral": dict(sliding_window=c.get("sliding_window")),
            "qwen2": dict(use_sliding_window="sliding_window" in c,
                          sliding_window=c.get("sliding_window"),
                          max_window_layers=c.get("max_window_layers", 28)),
            "qwen3": {}}[c["arch"]]
    model, config = {"llama": (LlamaForCausalLM, LlamaConfig),
                     "mistral": (MistralForCausalLM, MistralConfig),
                     "qwen2": (Qwen2ForCausalLM, Qwen2Config),
                     "qwen3": (Qwen3ForCausalLM, Qwen3Config)}[c["arch"]]
    return model(config(
        vocab_size=c["vocab_size"], hidden_size=c["hidden_size"], num_hidden_layers=c["n_layers"],
        num_attention_heads=c["n_heads"], num_key_value_heads=c["n_kv_heads"],
        head_dim=c["head_dim"], intermediate_size=c["intermediate_size"],
        max_position_embeddings=c["max_positions"], rms_norm_eps=c["norm_eps"],
        rope_parameters=rope, tie_word_embeddings=bool(c["tied"]), **more))


def distance(a, b):
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm() / b.norm())


def alone(module, tokens, starts):
    """The module's logits of each document by itself, put together again."""
    rows = []
    for sample, start in zip(tokens, starts):
        lengths = start.unique(return_counts=True)[1].tolist()
        rows.append(torch.cat([module(t[None]).logits[0] for t in sample.split(lengths)]))
    return torch.stack(rows)


def check_against_transformers(c, params, tokens, targets, starts, logits, loss, grads):
    module = reference_module(c).float().eval()
    missing, unexpected = module.load_state_dict(params, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    module.tie_weights()
    got = alone(module, tokens.long(), starts) if starts.any() else module(tokens.long()).logits
    got_loss = F.cross_entropy(got.reshape(-1, c["vocab_size"]), targets.long().reshape(-1),
                               ignore_index=-1)
    got_loss.backward()
    errors = {"logits": distance(got, logits), "loss": distance(got_loss, loss)}
    named = dict(module.named_parameters())
    assert set(named) == set(params), set(named) ^ set(params)
    errors.update({name: distance(named[name].grad, grads[name]) for name in params})
    worst = max(errors, key=errors.get)
    print(f"  transformers in float32: worst relative distance {errors[worst]:.1e} ({worst})")
    assert errors[worst] < 1e-4, errors


def learning_rate(c, step):
    if step >= c["warmup_steps"]:
        return c["lr"]
    return c["warmup_min_lr"] + (c["lr"] - c["warmup_min_lr"]) * step / c["warmup_steps"]


def train(c, params, tokens, targets, starts):
    """Ten steps of torch.optim.AdamW in float64; what it gives at each."""
    p = {name: value.double().requires_grad_() for name, value in params.items()}
    decay = [v for v in p.values() if v.dim() > 1 or not c["decay_matrices"]]
    plain = [v for v in p.values() if v.dim() == 1 and c["decay_matrices"]]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": c["weight_decay"]},
         {"params": plain, "weight_decay": 0.0}],
        lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["eps"], foreach=False)
    out = {"losses": [], "norms": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        logits, loss = logits_and_loss(c, p, tokens[step], targets[step], starts[step])
        loss.backward()
        if step == 0:
            out["logits"], out["loss"] = logits.detach().clone(), loss.detach().clone()
            out["grads"] = {name: v.grad.clone() for name, v in p.items()}
        out["losses"].append(float(loss.detach()))
        out["norms"].append(float(torch.nn.utils.clip_grad_norm_(p.values(), c["max_grad_norm"])))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(c, step + 1)
        optimizer.step()
    out["updates"] = {name: v.detach() - params[name].double() for name, v in p.items()}
    return out


def make(name, c, folder):
    params, (tokens, targets, starts) = initial(c), batches(c)
    got = train(c, params, tokens, targets, starts)
    print(f"{name}: losses {got['losses'][0]:.4f} .. {got['losses'][-1]:.4f}, norms "
          + " ".join(f"{n:.2f}" for n in got["norms"]))
    clipped = sum(n > c["max_grad_norm"] for n in got["norms"])
    assert 3 <= clipped <= STEPS - 3, "clipping must act on some of the steps"
    for tensor, grad in got["grads"].items():
        if tensor.endswith("c_attn.bias"):  # a key's bias moves all scores of a query alike
            query, key, value = grad.chunk(3)
            assert float(key.norm()) < 1e-12 * float(value.norm()), tensor
            grad = query
        assert float(grad.norm()) > 1e-3, tensor
    check_against_transformers(c, params, tokens[0], targets[0], starts[0], got["logits"],
                               got["loss"], got["grads"])
    tensors = {"tokens": tokens, "targets": targets, "logits": got["logits"],
               "losses": torch.tensor(got["losses"], dtype=torch.float64),
               "norms": torch.tensor(got["norms"], dtype=torch.float64)}
    if c.get("documents"):
        tensors["starts"] = starts
    for tensor in params:
        tensors["param." + tensor] = params[tensor]
        tensors["grad." + tensor] = got["grads"][tensor].float()
        tensors["update." + tensor] = got["updates"][tensor].float()
    config = json.dumps({**c, "steps": STEPS, "samples": SAMPLES, "seq": SEQ}, sort_keys=True)
    path = folder / f"{name}.safetensors"
    save_file({k: v.contiguous() for k, v in tensors.items()}, path, {"config": config})
    path.chmod(0o644)
    assert path.stat().st_size < 500_000, path.stat().st_size
    print(f"  {path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the same bits wherever it runs
    for model, config in MODELS.items():
        if len(sys.argv) > 1 and model not in sys.argv[1:]:
            continue
        make(model, {**COMMON, **config}, pathlib.Path(__file__).resolve().parent)
