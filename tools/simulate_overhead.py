#!/usr/bin/env python3
"""What br.simulate adds to a Python simulator of 50 µs: its rate beside that of a bare loop, one JSON line each.

usage: simulate_overhead.py [--rows 20000] [--microseconds 50] [--repeats 12]
needs: pip install brenier

The bare loop calls the simulator on parameters and seeds that are there already and keeps what it returns. br.simulate draws them, calls
it in this process, in worker processes (executor="processes", one for each core) and on ProcessPoolExecutor(2), and makes a table. The
simulator does a fixed amount of arithmetic, measured at the start to take the time that is asked for. "share" is the rate over that of
the bare loop in as many forked processes, each with its part of the rows. All take turns, and the best of the repeats counts; on busy
cores a share still says something, a rate does not.
"""
import argparse
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import brenier as br

PRIOR = br.Prior(rate=br.log_uniform(0.1, 10), shift=br.normal(0, 2))


def simulator(theta, seed, turns):
    """`turns` steps of a random walk's arithmetic, in plain Python."""
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


def loop(work, rows):
    """The bare loop."""
    return [work(theta, seed) for theta, seed in rows]


def loops(work, rows, workers):
    """Bare loops side by side; they start by fork, so that nothing travels."""
    context = multiprocessing.get_context("fork")
    each = [context.Process(target=loop, args=(work, rows[part::workers])) for part in range(workers)]
    for process in each:
        process.start()
    for process in each:
        process.join()


def timed(work):
    """Seconds of the clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--microseconds", type=float, default=50.0)
    parser.add_argument("--repeats", type=int, default=12)
    options = parser.parse_args()
    rows, cores = options.rows, os.cpu_count() or 1
    work = partial(simulator, turns=turns_for(1e-6 * options.microseconds))
    drawn = br.simulate(lambda theta, seed: float(seed % 2**31), PRIOR, n=rows, seed=1, progress=False).values
    pairs = [(dict(zip(PRIOR.names, row)), int(seed)) for *row, seed in drawn.tolist()]
    simulate = partial(br.simulate, work, PRIOR, n=rows, seed=1, progress=False)

    with ProcessPoolExecutor(2) as pool:
        list(pool.map(abs, range(4)))  # its workers have started
        bare = {workers: (f"bare loop, {workers} at once", partial(loops, work, pairs, workers)) for workers in {2, cores} - {1}}
        bare[1] = ("bare loop", partial(loop, work, pairs))
        ways = [(name, workers, way) for workers, (name, way) in sorted(bare.items())]
        ways += [
            ("in process", 1, simulate),
            ('executor="processes"', cores, partial(simulate, executor="processes")),
            ("ProcessPoolExecutor(2)", 2, partial(simulate, executor=pool)),
        ]
        best = {name: float("inf") for name, *_ in ways}
        for _ in range(options.repeats):
            for name, _, way in ways:
                best[name] = min(best[name], timed(way))
    for name, workers, _ in ways:
        share = best[bare[workers][0]] / best[name]
        line = {"way": name, "rows": rows, "workers": workers, "rows_per_second": round(rows / best[name]), "share": round(share, 3)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
