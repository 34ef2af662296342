"""What the generators of golden values share: how fixtures are compared, and the command line."""
import argparse
import json
import math
import sys
from pathlib import Path

import torch

COMMITTED = Path(__file__).resolve().parent.parent / "crates/brenier/tests/fixtures"
TOLERANCE = 1e-10


def plain(value):
    """A tensor as nested lists."""
    return value.detach().tolist()


def difference(computed, stored):
    """The largest difference of two fixtures, each tensor's relative to its largest magnitude."""
    if isinstance(computed, dict):
        if computed.keys() != stored.keys():
            sys.exit(f"the names differ: {sorted(computed.keys() ^ stored.keys())}")
        return max((difference(computed[key], stored[key]) for key in computed), default=0.0)
    if isinstance(computed, str):
        return 0.0 if computed == stored else math.inf
    one, other = torch.tensor(computed), torch.tensor(stored)
    if one.shape != other.shape:
        return math.inf
    if one.numel() == 0:
        return 0.0
    return ((one - other).abs().max() / other.abs().max().clamp(min=1e-300)).item()


def main(description, names, compute):
    """The command of a generator, whose `compute(name, seed)` gives the fixture of a name."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where to write the fixtures")
    parser.add_argument("--check", action="store_true", help="compare the committed fixtures instead of writing")
    parser.add_argument("--seed", type=int, default=0, help="draw other parameters and points")
    options = parser.parse_args()
    if options.check == (options.folder is not None):
        parser.error("give either a folder to write to or --check")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for name in names:
        fixture = compute(name, options.seed)
        if options.check:
            worst = difference(fixture, json.loads((COMMITTED / f"{name}.json").read_text()))
            print(f"{name}: largest difference {worst:.1e}")
            if not worst <= TOLERANCE:
                sys.exit(f"{name}: values differ by more than {TOLERANCE:.0e}")
        else:
            options.folder.mkdir(parents=True, exist_ok=True)
            (options.folder / f"{name}.json").write_text(json.dumps(fixture))
            print(options.folder / f"{name}.json")
