#!/usr/bin/env python3
"""Counts the instructions of fixed pieces of work with callgrind and compares them with the committed counts.

Counts do not depend on what else runs on the machine, but on the compiler and on the instruction set: a baseline of
another rustc or other CPU features is refused. Valgrind has no AVX-512, so that machines with and without it agree.

usage: python3 tools/instructions.py [NAME ...]          compare with tools/instructions.json, exit code 1 if a count grew by more than 3 %
       python3 tools/instructions.py --update            write the counts of this machine there
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "tools" / "instructions.json"
TOLERANCE = 0.03


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def program():
    """Builds the bench and returns its path."""
    lines = output("cargo", "bench", "--workspace", "--bench", "instructions", "--no-run", "--message-format", "json")
    found = [json.loads(line) for line in lines.splitlines()]
    return next(line["executable"] for line in found if line.get("executable"))


def count(path, name):
    """Instructions of one piece of work, as counted between entering and leaving `measured`."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", "--collect-atstart=no"]
        command += ["--toggle-collect=instructions::measured", path, name]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"{name} failed under callgrind:\n{done.stdout}")
        total = re.search(r"^(?:summary|totals): (\d+)", Path(folder, "out").read_text(), re.MULTILINE)
        return int(total[1])


def machine(path):
    """What decides about the counts besides the code."""
    seen = output("valgrind", "-q", "--tool=none", path).splitlines()
    return {"rustc": output("rustc", "--version").strip(), "cpu": seen[0]}, seen[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="pieces of work; all without")
    parser.add_argument("--update", action="store_true", help="write the counts as the new baseline")
    arguments = parser.parse_args()
    path = program()
    here, names = machine(path)
    unknown = [name for name in arguments.names if name not in names]
    if unknown:
        sys.exit(f"no piece of work is called {unknown[0]}: choose among {', '.join(names)}")
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {"machine": here, "counts": {}}
    if not arguments.update and baseline["machine"] != here:
        there = baseline["machine"]
        sys.exit(
            f"{BASELINE.relative_to(ROOT)} was counted with {there['rustc']} on {there['cpu']}, this is {here['rustc']} on "
            f"{here['cpu']}: counts cannot be compared; make a baseline of the last commit with --update first"
        )
    counts = dict(baseline["counts"]) if baseline["machine"] == here else {}
    grown = []
    for name in arguments.names or names:
        found, before = count(path, name), baseline["counts"].get(name)
        change = found / before - 1 if before else 0.0
        print(f"{name:16}{found:>14,}" + (f"{before:>14,} {change:+7.2%}" if before else "    no baseline"))
        if before and change > TOLERANCE and not arguments.update:
            grown.append(name)
        counts[name] = found
    if arguments.update:
        BASELINE.write_text(json.dumps({"machine": here, "counts": counts}, indent=2) + "\n")
    if grown:
        sys.exit(f"more instructions than the baseline by over {TOLERANCE:.0%}: {', '.join(grown)}")


if __name__ == "__main__":
    main()
