#!/usr/bin/env python3
"""Instructions of a training step, counted by valgrind and compared with the counts in tools/instruction_counts.json.

usage: instruction_counts.py [CONFIG ...] [--update] [--tolerance 3]
needs: valgrind, cargo
A count does not depend on what else a machine does, so a loop that became slower shows where timings are too noisy. valgrind knows no
AVX-512: the code for AVX2 is counted, on any machine that has it. Each configuration of the bench training_step takes 1 and 3 steps on one
thread; half of the difference is one step. Exit code 1 if a count has grown by more than the tolerance (percent). --update writes the
counts of this build; do so with the change that explains them, or with a new compiler.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = Path(__file__).with_suffix(".json")
CONFIGS = ["pcp_concrete", "pcp_lv", "pcp_joint", "cot_concrete", "npe_maf_50", "npe_nsf_50"]


def bench():
    """The path of the bench's program, built if need be."""
    command = ["cargo", "bench", "--bench", "training_step", "--no-run", "--message-format=json"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    built = [json.loads(line) for line in lines if line.startswith("{")]
    return next(item["executable"] for item in built if item.get("target", {}).get("name") == "training_step" and item.get("executable"))


def instructions(program, config, steps):
    """Instructions of the whole program."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", program, "--bench", config, "--only-steps", str(steps)]
        done = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if done.returncode or not found:
        sys.exit(f"error: valgrind ended with code {done.returncode} on {config}:\n{done.stderr[-2000:]}")
    return int(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", metavar="CONFIG", help=f"of {', '.join(CONFIGS)} [default: all]")
    parser.add_argument("--update", action="store_true", help="write the counts instead of comparing them")
    parser.add_argument("--tolerance", type=float, default=3.0, help="percent by which a count may grow [default: 3]")
    options = parser.parse_args()
    unknown = set(options.configs) - set(CONFIGS)
    if unknown:
        parser.error(f"there is no configuration {', '.join(sorted(unknown))}; there are {', '.join(CONFIGS)}")
    before = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    program, grown = bench(), []
    for config in options.configs or CONFIGS:
        step = (instructions(program, config, 3) - instructions(program, config, 1)) // 2
        known = before.get(config)
        change = 100.0 * (step / known - 1.0) if known else 0.0
        print(f"{config:14} {step / 1e6:10.3f} million instructions a step" + (f", {change:+.2f} %" if known else ", no count before"), flush=True)
        if change > options.tolerance:
            grown.append(config)
        if options.update:
            before[config] = step
            BASELINE.write_text(json.dumps(before, indent=2) + "\n")
    if grown and not options.update:
        sys.exit(f"error: more than {options.tolerance:g} % more instructions in {', '.join(grown)}; if that is meant, run with --update")


if __name__ == "__main__":
    main()
