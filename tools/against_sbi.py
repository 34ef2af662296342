#!/usr/bin/env python3
"""Brenier and sbi on the same simulations and cores: time to train, time for 10 000 draws, and how good the draws are.

usage: against_sbi.py [--task two-moons|lotka-volterra] [--rows 10000] [--threads 2] [--only brenier|sbi]
needs: pip install brenier sbi torch

Two moons: C2ST of 10 000 draws against draws from the exact posterior, the mean over three observations from the prior predictive; 0.5 is
best. Lotka-Volterra: mean negative log-likelihood of 2000 held-out pairs, of the logarithms of the four rates in units of their
standard deviations. Both packages have their default settings, and learn from the same rows.
"""
import argparse
import json
import time
import warnings

import numpy as np

import brenier as br

DRAWS = 10_000
OBSERVATIONS = 3


def exact_two_moons(y, n, rng):
    """Draws from the posterior at y, by rejection: the noise is drawn, the construction inverted."""
    rows = np.empty((0, 2))
    while len(rows) < n:
        a, r = rng.uniform(-np.pi / 2, np.pi / 2, 4 * n), rng.normal(0.1, 0.01, 4 * n)
        total, difference = r * np.cos(a) + 0.25 - y[0], y[1] - r * np.sin(a)
        total = np.where(rng.random(4 * n) < 0.5, total, -total) * np.where(total >= 0, 1.0, np.nan)
        theta = np.stack([total - difference, total + difference], axis=1) / np.sqrt(2.0)
        rows = np.concatenate([rows, theta[(np.abs(theta) <= 1).all(axis=1)]])
    return rows[:n]


def timed(work):
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def brenier_fits(theta, x, bounds, threads):
    br.set_threads(threads)
    support = {f"theta_{j + 1}": f"interval({low},{high})" for j, (low, high) in enumerate(bounds)}
    for name, settings in (("brenier, PCP-Map (default)", {}), ("brenier, NPE", {"method": "npe"})):
        post, seconds = timed(lambda: br.fit(theta, x, support=support, seed=1, progress=False, **settings))  # noqa: B023
        yield name, seconds, lambda y, n: post.sample(y, n, seed=1).values, post.log_prob  # noqa: B023


def sbi_fits(theta, x, bounds, threads):
    import torch
    from sbi.inference import NPE
    from sbi.utils import BoxUniform

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    bounds = torch.tensor(bounds, dtype=torch.float32)
    prior = BoxUniform(bounds[:, 0], bounds[:, 1])
    rows = torch.tensor(theta, dtype=torch.float32), torch.tensor(x, dtype=torch.float32)
    for name, kind in (("sbi 0.27, MAF (default)", "maf"), ("sbi 0.27, NSF", "nsf")):
        trainer = NPE(prior=prior, density_estimator=kind, show_progress_bars=False)
        estimator, seconds = timed(lambda: trainer.append_simulations(*rows).train(show_train_summary=False))  # noqa: B023
        post = trainer.build_posterior(estimator)

        def sample(y, n, post=post):
            return post.sample((n,), x=torch.tensor(y, dtype=torch.float32), show_progress_bars=False).numpy()

        def log_prob(theta, x, estimator=estimator):
            with torch.no_grad():
                given = torch.tensor(x, dtype=torch.float32)
                return estimator.log_prob(torch.tensor(theta, dtype=torch.float32)[None], given)[0].numpy()

        yield name, seconds, sample, log_prob


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=["two-moons", "lotka-volterra"], default="two-moons")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=["brenier", "sbi"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    n = 2 if options.task == "two-moons" else 4
    held_out = OBSERVATIONS if options.task == "two-moons" else 2000
    table = br.simulate(options.task, n=options.rows + held_out, seed=7, progress=False).values
    theta, x = table[:, :n], table[:, n:]
    bounds = [(-1.0, 1.0)] * n if options.task == "two-moons" else [(-5.0, 2.0)] * n
    if options.task == "lotka-volterra":
        theta = np.log(theta)
    scales = theta[: options.rows].std(axis=0)
    new_theta, new_x = theta[options.rows :], x[options.rows :]
    theta, x = np.ascontiguousarray(theta[: options.rows]), np.ascontiguousarray(x[: options.rows])
    for package, fits in (("brenier", brenier_fits), ("sbi", sbi_fits)):
        if options.only not in (None, package):
            continue
        for name, seconds, sample, log_prob in fits(theta, x, bounds, options.threads):
            sample(new_x[0], 10)
            _, drawing = timed(lambda: sample(new_x[0], DRAWS))  # noqa: B023
            if options.task == "two-moons":
                rng = np.random.default_rng(3)
                found = [br.compare(sample(y, DRAWS), exact_two_moons(y, DRAWS, rng), seed=1).c2st for y in new_x]
                score = {"c2st": float(np.mean(found))}
            else:
                score = {"nll": float(-np.mean(log_prob(new_theta, new_x)) - np.log(scales).sum())}
            print(json.dumps({"task": options.task, "rows": options.rows, "fit": name, "train_s": round(seconds, 1), "draw_s": round(drawing, 3), **score}), flush=True)


if __name__ == "__main__":
    main()
