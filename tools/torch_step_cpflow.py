#!/usr/bin/env python3
"""Seconds per training step of CP-Flow in PyTorch, one JSON line per configuration, as torch_step.py has them for the others.

usage: torch_step_cpflow.py [CONFIG ...] [--threads 2] [--steps N]
needs: pip install torch numpy

Loss, gradient and Adam in single precision, with the exact log-determinant from forward-over-reverse Hessians under vmap; the
model is that of golden_cpflow.py. Run it and benches/training_step.rs in turn on an idle machine.
"""
import argparse
import json

import torch

from golden_cpflow import CpFlow
from torch_step import measure, product_peak

CONFIGS = {
    "cpflow_swe": (CpFlow(14, 3500, 256, 3), 64),
    "cpflow_swe_full": (CpFlow(100, 3500, 512, 5), 64),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", metavar="CONFIG", help=f"some of {', '.join(CONFIGS)}; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0, help="steps to time; 0 means about three seconds, at least five steps")
    options = parser.parse_args()
    unknown = [name for name in options.configs if name not in CONFIGS]
    if unknown:
        parser.error(f"unknown configuration {unknown[0]}; known are {', '.join(CONFIGS)}")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    peak = product_peak()
    for name in options.configs or CONFIGS:
        model, batch = CONFIGS[name]
        times = measure(model, batch, options.steps)
        median = times[len(times) // 2]
        line = {
            "config": name,
            "median_s": round(median, 6),
            "min_s": round(times[0], 6),
            "steps": len(times),
            "threads": options.threads,
            "gflops": round(2.0 * model.products() * batch / median / 1e9, 1),
            "gemm_peak_gflops": round(peak, 1),
        }
        print(json.dumps(line), flush=True)
        model.tensors.clear()


if __name__ == "__main__":
    main()
