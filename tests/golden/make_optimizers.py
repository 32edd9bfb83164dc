#!/usr/bin/env python3
"""Writes optimizers.inc: a few steps of each optimizer in float64, by torch.optim where it has it
(2.x) and by its definition where not (Lion, Chen et al. 2023, algorithm 2). Needs torch.

usage: tests/golden/make_optimizers.py > tests/golden/optimizers.inc
"""
import math
import torch

N, STEPS = 5, 6


def gradient(step):
    return [math.sin(1.7 * step + 0.9 * i) * (0.0 if i == 3 else 1.0) for i in range(N)]


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                beta1, beta2 = group["betas"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * torch.sign(beta1 * m + (1 - beta1) * p.grad))
                m.mul_(beta2).add_((1 - beta2) * p.grad)


O = torch.optim
CASES = [
    ("adamw", O.AdamW, "ZR_OP_ADAMW", dict(lr=0.1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)),
    ("adam", O.Adam, "ZR_OP_ADAMW", dict(lr=0.1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)),
    ("sgd", O.SGD, "ZR_OP_SGD", dict(lr=0.1)),
    ("sgd decay", O.SGD, "ZR_OP_SGD", dict(lr=0.1, weight_decay=0.1)),
    ("sgd momentum", O.SGD, "ZR_OP_SGD", dict(lr=0.1, momentum=0.9, weight_decay=0.1)),
    ("sgd dampening", O.SGD, "ZR_OP_SGD", dict(lr=0.1, momentum=0.9, dampening=0.25)),
    ("sgd nesterov", O.SGD, "ZR_OP_SGD", dict(lr=0.1, momentum=0.9, nesterov=True,
                                              weight_decay=0.1)),
    ("lion", Lion, "ZR_OP_LION", dict(lr=0.1, betas=(0.9, 0.99), weight_decay=0.1)),
    ("adagrad", O.Adagrad, "ZR_OP_ADAGRAD", dict(lr=0.1, eps=1e-10, weight_decay=0.1)),
    ("adagrad decay", O.Adagrad, "ZR_OP_ADAGRAD",
     dict(lr=0.1, lr_decay=0.2, eps=1e-10, initial_accumulator_value=0.5)),
]


def numbers(values):
    return "{" + ", ".join("%.17g" % v for v in values) + "}"


def main():
    print("/* Made by make_optimizers.py with torch %s. */" % torch.__version__.split("+")[0])
    for name, make, kind, args in CASES:
        p = torch.tensor([0.5, -1.0, 2.0, 0.25, 1e-3], dtype=torch.float64, requires_grad=True)
        optimizer = make([p], **args)
        rows = []
        for step in range(1, STEPS + 1):
            p.grad = torch.tensor(gradient(step), dtype=torch.float64)
            optimizer.step()
            rows.append(numbers(p.tolist()))
        beta1, beta2 = args.get("betas", (0, 0))
        decoupled = make in (O.AdamW, Lion)
        print('{"%s", %s, %g, %g, %g, %g, %g, %g, %g, %d, %g, %g, %d,' % (
            name, kind, args["lr"], beta1, beta2, args.get("eps", 0), args.get("weight_decay", 0),
            args.get("momentum", 0), args.get("dampening", 0), args.get("nesterov", False),
            args.get("lr_decay", 0), args.get("initial_accumulator_value", 0), not decoupled))
        print(" {" + ",\n  ".join(rows) + "}},")


main()
