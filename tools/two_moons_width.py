#!/usr/bin/env python3
"""Prints how wide the crescents of two-moons draws are, beside the truth.

With u = (x1 + x2)/sqrt(2) and v = (x2 - x1)/sqrt(2), the point p = y - (0.25 - |u|, v) has the length r ~ N(0.1, 0.01^2) and an angle
uniform on (-pi/2, pi/2) under the posterior, because the prior is flat and (u, v) is a rotation of x. So draws of an exact map
have a standard deviation of 0.01 across the crescents, and r is 0.1 in the mean.

usage: two_moons_width.py OBSERVED.csv DRAWS.csv   (DRAWS as `brenier sample MODEL --observed OBSERVED.csv --out DRAWS.csv` writes them)
"""

import argparse
import csv
import sys

import numpy as np


def read(path, names):
    """The named columns of a table, one row each."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    missing = [name for name in names if rows and name not in rows[0]]
    if not rows or missing:
        sys.exit(f"error: {path} has no {', '.join(missing) or 'rows'}")
    return np.array([[float(row[name]) for name in names] for row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("observed", metavar="OBSERVED.csv")
    parser.add_argument("draws", metavar="DRAWS.csv")
    arguments = parser.parse_args()
    observed = read(arguments.observed, ["y_1", "y_2"])
    columns = ["theta_1", "theta_2"]
    if len(observed) > 1:
        columns = ["observation", *columns]
    draws = read(arguments.draws, columns)
    number = draws[:, 0].astype(int) if len(observed) > 1 else np.ones(len(draws), dtype=int)
    x = draws[:, -2:]
    u, v = (x[:, 0] + x[:, 1]) / np.sqrt(2), (x[:, 1] - x[:, 0]) / np.sqrt(2)
    y = observed[number - number.min()]
    r = np.hypot(y[:, 0] - 0.25 + np.abs(u), y[:, 1] - v)
    print("observation     mean r   sd of r   its middle half / 1.349   farther than 5 sd")
    widths = []
    for one in np.unique(number):
        own = r[number == one]
        low, high = np.quantile(own, [0.25, 0.75])
        near = own[np.abs(own - 0.1) < 0.05]
        widths.append(near.std())
        print(f"{one:11d}   {own.mean():8.5f}  {near.std():8.5f}   {(high - low) / 1.349:23.5f}   {1 - len(near) / len(own):.4f}")
    print(f"mean sd of r {np.mean(widths):.5f}, truth 0.01000")


if __name__ == "__main__":
    main()
