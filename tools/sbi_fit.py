#!/usr/bin/env python3
"""Trains a flow of the package sbi on a table and prints its time and test score as a JSON line.

usage: sbi_fit.py TRAIN.csv TEST.csv --target COLUMNS [--flow maf|nsf] [--log] [--seed 0] [--threads 2] [--epochs N]
needs: pip install sbi

All settings are sbi's own. The same fit with Brenier, to be run beside it on the same cores:

    brenier fit TRAIN.csv --target COLUMNS --given rest --test TEST.csv --method npe --flow maf --preset sbi --seed 0

The score is the mean negative log-likelihood of the test rows in units of the standard deviations of the training table's target
columns, or of their logarithms with --log (--support COLUMNS=log in Brenier).
"""
import argparse
import json
import os
import resource
import tempfile
import time

import numpy as np
import torch
from sbi.inference import NPE


def table(path, wanted):
    """Target and given columns of a file with a header."""
    with open(path) as file:
        names = file.readline().strip().split(",")
    values = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise SystemExit(f"{path}: there is no column {unknown[0]}")
    target = [names.index(name) for name in wanted]
    given = [place for place in range(len(names)) if place not in target]
    return values[:, target], values[:, given]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--target", required=True, help="names of the target columns, with commas between")
    parser.add_argument("--flow", choices=["maf", "nsf"], default="maf")
    parser.add_argument("--log", action="store_true", help="take logarithms of the target columns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2**31 - 1, help="epochs at most, to time them")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    np.random.seed(options.seed)
    wanted = options.target.split(",")
    (x, y), (test_x, test_y) = table(options.train, wanted), table(options.test, wanted)
    if options.log:
        x, test_x = np.log(x), np.log(test_x)
    single = lambda values: torch.as_tensor(values, dtype=torch.float32)
    start, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    # sbi leaves its logs where it runs.
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        inference = NPE(density_estimator=options.flow, show_progress_bars=False)
        estimator = inference.append_simulations(single(x), single(y)).train(max_num_epochs=options.epochs)
        os.chdir("/")
    seconds, now = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    with torch.no_grad():
        density = estimator.log_prob(single(test_x)[None], condition=single(test_y))[0].double().numpy()
    line = {
        "flow": options.flow,
        "rows": len(x),
        "seed": options.seed,
        "seconds": round(seconds, 2),
        "processor_seconds": round(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, 2),
        "epochs": inference.summary["epochs_trained"][-1],
        "seconds_per_epoch": round(seconds / inference.summary["epochs_trained"][-1], 4),
        "parameters": sum(parameter.numel() for parameter in estimator.parameters()),
        "test_nll": round(float(-density.mean() - np.log(x.std(0)).sum()), 4),
        "standard_error": round(float(density.std() / len(density) ** 0.5), 4),
        "threads": options.threads,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
