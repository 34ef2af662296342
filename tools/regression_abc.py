#!/usr/bin/env python3
"""Posterior at one observation by rejection and by regression adjustment (Beaumont, Zhang, Balding 2002), beside what a map says.

usage: regression_abc.py TABLE.npy OBSERVED.csv --targets 4 [--scale PRIOR.npy] [--nearest 300,1000,3000,10000] [--log]
needs: pip install numpy

TABLE holds simulations, targets first; OBSERVED one row of the other columns, with a header. Distances are Euclidean, each
column divided by its standard deviation in PRIOR (default: in TABLE). The nearest simulations are taken as they are
(rejection), and then moved to the observation by a weighted regression of the targets on the outputs, linear and quadratic,
with Epanechnikov weights. As fewer simulations are taken, rejection narrows towards the posterior; the regressions should
already be there and agree. With --log the logarithms of the targets are shown.
"""
import argparse
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("regression_abc.py needs NumPy: pip install numpy")


def features(outputs, degree):
    """1, the outputs and, for degree 2, their products."""
    first, second = np.triu_indices(outputs.shape[1])
    products = [outputs[:, first] * outputs[:, second]] if degree == 2 else []
    return np.hstack([np.ones((len(outputs), 1)), outputs, *products])


def adjusted(targets, outputs, weights, degree):
    """Mean and standard deviation of the targets at outputs 0, or nothing where there are too few rows."""
    design = features(outputs, degree)
    if len(targets) < 5 * design.shape[1]:
        return None
    root = np.sqrt(weights)[:, None]
    coefficients = np.linalg.lstsq(design * root, targets * root, rcond=None)[0]
    rest = targets - design @ coefficients
    spread = np.sqrt((weights[:, None] * rest**2).sum(0) / weights.sum())
    return coefficients[0], spread


def show(name, mean, spread):
    print(f"{name:32}" + "  ".join(f"{m:8.3f} ({s:.3f})" for m, s in zip(mean, spread)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("observed")
    parser.add_argument("--targets", type=int, required=True)
    parser.add_argument("--scale")
    parser.add_argument("--nearest", default="300,1000,3000,10000")
    parser.add_argument("--log", action="store_true")
    options = parser.parse_args()
    table, n = np.load(options.table), options.targets
    observed = np.atleast_1d(np.loadtxt(options.observed, delimiter=",", skiprows=1))
    scale = (np.load(options.scale) if options.scale else table)[:, n:].std(0)
    outputs = (table[:, n:] - observed) / scale
    targets = np.log(table[:, :n]) if options.log else table[:, :n]
    distance = np.sqrt((outputs**2).sum(1))
    order = np.argsort(distance)
    for count in map(int, options.nearest.split(",")):
        near = order[:count]
        reach = distance[near[-1]]
        show(f"nearest {count}, within {reach:.3f}", targets[near].mean(0), targets[near].std(0))
        weights = 1.0 - (distance[near] / reach) ** 2
        for degree, name in ((1, "linear"), (2, "quadratic")):
            found = adjusted(targets[near], outputs[near], weights, degree)
            if found:
                show(f"  {name} regression", *found)


if __name__ == "__main__":
    main()
