#!/usr/bin/env python3
"""What br.simulate adds to a Python simulator of 50 µs: its rate beside that of a bare loop, one JSON line each.

usage: simulate_overhead.py [--rows 50000] [--microseconds 50] [--repeats 3]
needs: pip install brenier

The bare loop calls the simulator on parameters and seeds that are there already and keeps what it returns. br.simulate draws them, calls
it in this process, in worker processes (executor="processes", one for each core) and on ProcessPoolExecutor(2), and makes a table. The
simulator does a fixed amount of arithmetic, measured at the start to take the time that is asked for. "share" is the rate over that of
the bare loop, for workers over as many times that rate; the loop and each way take turns, and the best of the repeats counts. On busy
cores the figures of workers mean little.
"""
import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import brenier as br

PRIOR = br.Prior(rate=br.log_uniform(0.1, 10), shift=br.normal(0, 2))


def simulator(theta, seed, turns):
    """So many steps of a random walk's arithmetic, in plain Python."""
    state, total = seed % 2147483647, theta["shift"]
    for _ in range(turns):
        state = state * 16807 % 2147483647
        total += theta["rate"] * state
    return {"total": total, "last": float(state)}


def turns_for(seconds):
    """Turns of the loop that take so long, by the fastest of some calls."""
    turns, least = 1000, float("inf")
    for _ in range(200):
        started = time.perf_counter()
        simulator({"rate": 1.0, "shift": 0.0}, 12345, turns)
        least = min(least, time.perf_counter() - started)
    return max(1, round(turns * seconds / least))


def timed(work):
    """Seconds of the clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--microseconds", type=float, default=50.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows, cores = options.rows, os.cpu_count() or 1
    work = partial(simulator, turns=turns_for(1e-6 * options.microseconds))
    drawn = br.simulate(lambda theta, seed: float(seed % 2**31), PRIOR, n=rows, seed=1, progress=False).values
    thetas = [dict(zip(PRIOR.names, row)) for row in drawn[:, :2].tolist()]
    seeds = [int(seed) for seed in drawn[:, 2]]

    with ProcessPoolExecutor(2) as pool:
        list(pool.map(abs, range(4)))  # its workers have started
        ways = {
            "bare loop": (1, lambda: [work(theta, seed) for theta, seed in zip(thetas, seeds)]),
            "in process": (1, lambda: br.simulate(work, PRIOR, n=rows, seed=1, progress=False)),
            'executor="processes"': (cores, lambda: br.simulate(work, PRIOR, n=rows, seed=1, executor="processes", progress=False)),
            "ProcessPoolExecutor(2)": (2, lambda: br.simulate(work, PRIOR, n=rows, seed=1, executor=pool, progress=False)),
        }
        best = {name: float("inf") for name in ways}
        for _ in range(options.repeats):
            for name, (_, way) in ways.items():
                best[name] = min(best[name], timed(way))
    for name, (workers, _) in ways.items():
        share = best["bare loop"] / best[name] / workers
        line = {"way": name, "rows": rows, "workers": workers, "rows_per_second": round(rows / best[name]), "share": round(share, 3)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
