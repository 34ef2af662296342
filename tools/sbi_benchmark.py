#!/usr/bin/env python3
"""Spline flows of the package sbi on the tables, observations and reference draws of a folder of `brenier reproduce sbibm`.

usage: sbi_benchmark.py FOLDER TASK [--simulations 10000] [--seed 0] [--members 1] [--flow nsf] [--threads 1] [--brenier brenier]
needs: pip install sbi pyarrow, and the command brenier

All settings are sbi's own. Draws outside the prior's bounds are drawn again, as sbi does. With several members, each is trained with a
seed of its own and gives an equal part of the draws. Prints a JSON line with the C2ST of `brenier compare` at every observation, to be
compared with those in FOLDER: the same rows, observations, references and classifier.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

import numpy as np
import pyarrow.parquet as parquet
import torch
from sbi.inference import NPE

BOUNDS = {"gaussian-mixture": 10.0, "two-moons": 1.0, "slcp": 3.0, "gaussian-linear-uniform": 1.0}
POSITIVE = {"sir", "lotka-volterra-ode"}


def numbers(path):
    table = parquet.read_table(path)
    return table.column_names, np.stack([table[name].to_numpy() for name in table.column_names], axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("task")
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--flow", default="nsf")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--brenier", default="brenier", help="the command")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    torch.set_num_threads(options.threads)
    names, rows = numbers(options.folder / f"simulations-{options.task}-{options.simulations}-{options.seed}.parquet")
    reference_names, _ = numbers(options.folder / f"reference-{options.task}-1.parquet")
    n = len(reference_names)
    _, observed = numbers(options.folder / f"observations-{options.task}.parquet")
    single = lambda values: torch.as_tensor(values, dtype=torch.float32)
    bound = BOUNDS.get(options.task)

    def inside(draws):
        if options.task in POSITIVE:
            return (draws > 0).all(axis=1)
        return np.ones(len(draws), dtype=bool) if bound is None else (np.abs(draws) <= bound).all(axis=1)

    start, estimators = time.process_time(), []
    with tempfile.TemporaryDirectory() as folder:
        # sbi leaves its logs where it runs.
        os.chdir(folder)
        for member in range(options.members):
            torch.manual_seed(options.seed + member)
            np.random.seed(options.seed + member)
            inference = NPE(density_estimator=options.flow, show_progress_bars=False)
            estimators.append(inference.append_simulations(single(rows[:, :n]), single(rows[:, n:])).train())
        seconds = time.process_time() - start
        scores = []
        for index, row in enumerate(observed):
            reference = options.folder / f"reference-{options.task}-{index + 1}.parquet"
            count = len(numbers(reference)[1])
            parts = []
            for member, estimator in enumerate(estimators):
                share = count // len(estimators) + (member < count % len(estimators))
                kept = np.empty((0, n))
                while len(kept) < share:
                    with torch.no_grad():
                        draws = estimator.sample((2 * share,), condition=single(row[n:])[None]).reshape(-1, n).double().numpy()
                    kept = np.concatenate([kept, draws[inside(draws)]])
                parts.append(kept[:share])
            path = pathlib.Path(folder) / "draws.csv"
            np.savetxt(path, np.concatenate(parts), delimiter=",", header=",".join(names[:n]), comments="")
            command = [options.brenier, "compare", str(path), str(reference), "--permutations", "1", "--json", "--quiet"]
            command += ["--threads", str(options.threads)]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            scores.append(round(answer["comparison"]["c2st"]["accuracy"], 4))
        os.chdir("/")
    line = {
        "task": options.task,
        "simulations": options.simulations,
        "seed": options.seed,
        "flow": options.flow,
        "members": options.members,
        "processor_seconds": round(seconds, 1),
        "c2st": scores,
        "mean": round(float(np.mean(scores)), 4),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
