#!/bin/sh
# From a program in Python to a posterior: simulate, fit, sample, and ABC for comparison. Needs brenier and python3.
set -eu
cd "$(dirname "$0")"
brenier simulate --command 'python3 sim.py' --prior prior.toml -n 5000 --timeout 10 --out simulations.csv
brenier fit simulations.csv --target contact,duration --given attack_rate..last_day \
    --support 'contact=log-interval(0.1,2)' --support 'duration=interval(1.5,10)' --out model.brenier
brenier sample model.brenier --observed observed.csv -n 2000 --out posterior.csv
brenier abc --command 'python3 sim.py' --prior prior.toml --observed observed.csv \
    --particles 200 --pilot 500 --tolerance 0.5 --out particles.csv
