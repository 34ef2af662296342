#!/usr/bin/env python3
"""Brenier and sbi on the same simulations and cores: time to train, time for 10 000 draws, and how good the draws are.

usage: against_sbi.py [CASE ...] [--threads 1] [--only brenier|sbi] [--flows maf,nsf] [--epochs N]
needs: pip install brenier sbi torch
A case is a task and its pairs: two-moons:10000, two-moons:100000 and lotka-volterra:50000 are run if none is named.

Two moons: C2ST of 10 000 draws against draws from the exact posterior, the mean over three observations from the prior predictive; 0.5 is
best. Lotka-Volterra: mean negative log-likelihood of 2000 held-out pairs, of the logarithms of the four rates in units of their
standard deviations; sbi's density is divided by its mass inside the prior, as its own log_prob does. All fits learn from the same rows, in
one process one after the other, with the settings that their names say; "brenier (default)" is br.fit with none, where trials choose a
method and whether an ensemble of it is trained, and its seconds are those of trials and training. Seconds are processor time; those of the clock follow as "wall",
and mean something on idle cores only. --flows says which flows of sbi are trained, maf being its default; --epochs bounds their
training, which then reports that it was cut.
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
    """The result with seconds of processor and clock."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, time.process_time() - processor, time.perf_counter() - wall


def brenier_fits(theta, x, bounds, options):
    br.set_threads(options.threads)
    support = {f"theta_{j + 1}": f"interval({low},{high})" for j, (low, high) in enumerate(bounds)}
    for name, settings in (
        ("brenier (default)", {}),
        ("brenier, PCP-Map", {"quick": True}),
        ("brenier, NPE (splines)", {"method": "npe"}),
    ):
        post, *seconds = timed(lambda: br.fit(theta, x, support=support, seed=1, progress=False, **settings))  # noqa: B023
        # Those of the first member, where it is an ensemble.
        epochs, members = post.history["epoch"], len(post.header.get("members", [])) or 1
        note = {"method": post.method, "members": members, "ended": post.training["stop"]}
        if len(epochs):
            note["epochs"] = round(float(epochs[-1]), 1)

        def sample(y, n, post=post):
            return post.sample(y, n, seed=1).values

        yield name, seconds, note, sample, post.log_prob


def sbi_fits(theta, x, bounds, options):
    import torch
    from sbi.inference import NPE
    from sbi.utils import BoxUniform

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    bounds = torch.tensor(bounds, dtype=torch.float32)
    prior = BoxUniform(bounds[:, 0], bounds[:, 1])
    single = lambda values: torch.tensor(values, dtype=torch.float32)  # noqa: E731
    rows = single(theta), single(x)
    epochs = options.epochs
    for flow in options.flows.split(","):
        name = "sbi, MAF (default)" if flow == "maf" else f"sbi, {flow.upper()}"
        trainer = NPE(prior=prior, density_estimator=flow, show_progress_bars=False)
        trainer.append_simulations(*rows)
        bound = {} if epochs is None else {"max_num_epochs": epochs}
        estimator, *seconds = timed(lambda: trainer.train(show_train_summary=False, **bound))  # noqa: B023
        done = int(trainer.summary["epochs_trained"][-1])
        note = {"epochs": done, "ended": "cut" if epochs is not None and done >= epochs else "converged"}
        post = trainer.build_posterior(estimator)

        def sample(y, n, post=post):
            return post.sample((n,), x=single(y), show_progress_bars=False).numpy()

        @torch.no_grad()
        def log_prob(theta, x, estimator=estimator):
            density = estimator.log_prob(single(theta)[None], single(x))[0]
            # The mass inside the prior, by 200 draws for each observation.
            inside = [prior.support.check(estimator.sample((200,), part)).double().mean(0) for part in single(x).split(100)]
            return (density - torch.cat(inside).log()).numpy()

        yield name, seconds, note, sample, log_prob


def run(task, count, options):
    """Prints a line of JSON for each fit."""
    n = 2 if task == "two-moons" else 4
    held_out = OBSERVATIONS if task == "two-moons" else 2000
    table = br.simulate(task, n=count + held_out, seed=7, progress=False).values
    theta, x = table[:, :n], table[:, n:]
    bounds = [(-1.0, 1.0)] * n if task == "two-moons" else [(-5.0, 2.0)] * n
    if task == "lotka-volterra":
        theta = np.log(theta)
    scales = theta[:count].std(axis=0)
    new_theta, new_x = theta[count:], x[count:]
    theta, x = np.ascontiguousarray(theta[:count]), np.ascontiguousarray(x[:count])
    for package, fits in (("brenier", brenier_fits), ("sbi", sbi_fits)):
        if options.only not in (None, package):
            continue
        for name, (train, train_wall), note, sample, log_prob in fits(theta, x, bounds, options):
            sample(new_x[0], 10)
            _, draw, draw_wall = timed(lambda: sample(new_x[0], DRAWS))  # noqa: B023
            if task == "two-moons":
                rng = np.random.default_rng(3)
                found = [br.compare(sample(y, DRAWS), exact_two_moons(y, DRAWS, rng), seed=1).c2st for y in new_x]
                score = {"c2st": round(float(np.mean(found)), 4)}
            else:
                score = {"nll": round(float(-np.mean(log_prob(new_theta, new_x)) - np.log(scales).sum()), 4)}
            times = {"train": round(train, 1), "train_wall": round(train_wall, 1), "draw": round(draw, 3), "draw_wall": round(draw_wall, 3)}
            print(json.dumps({"task": task, "rows": count, "fit": name, **times, **note, **score}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=["two-moons:10000", "two-moons:100000", "lotka-volterra:50000"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=["brenier", "sbi"])
    parser.add_argument("--flows", default="maf")
    parser.add_argument("--epochs", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for case in options.cases:
        task, _, count = case.partition(":")
        if task not in ("two-moons", "lotka-volterra") or not count.isdigit():
            parser.error(f"{case}: expected two-moons:PAIRS or lotka-volterra:PAIRS")
        run(task, int(count), options)


if __name__ == "__main__":
    main()
