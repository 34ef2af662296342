#!/usr/bin/env python3
"""An epidemic in a village of 200, as a program that `brenier simulate` talks to over standard input and output.

Every day each healthy person is infected with probability 1 - (1 - contact/200)^infected, and each infected one
recovers with probability 1/duration. Outputs: the share of the village that fell ill, the day with the most
infected, their number, and the day of the last infection. An outbreak that stops below five cases is never
noticed, so such a run is abandoned and drawn again.

Only the standard library is needed. Any other language does as well: read a line, answer with a line, flush.
"""

import random
import sys

VILLAGE = 200
DAYS = 120


def simulate(contact, duration, rng):
    healthy, infected = VILLAGE - 1, 1
    cases, peak, peak_day, last_day = 1, 1, 0, 0
    for day in range(1, DAYS + 1):
        risk = 1 - (1 - min(contact / VILLAGE, 1)) ** infected
        new = sum(rng.random() < risk for _ in range(healthy))
        recovered = sum(rng.random() < 1 / duration for _ in range(infected))
        healthy -= new
        infected += new - recovered
        cases += new
        if new:
            last_day = day
        if infected > peak:
            peak, peak_day = infected, day
        if infected == 0:
            break
    if cases < 5:
        return None
    return cases / VILLAGE, peak_day, peak, last_day


def main():
    for line in sys.stdin:
        word, *fields = line.split()
        if word == "brenier":
            # "brenier 1 contact duration": version of the protocol, then the parameters in their order.
            assert fields == ["1", "contact", "duration"], fields
            answer = "outputs attack_rate peak_day peak last_day"
        elif word == "run":
            rng = random.Random(int(fields[0]))
            outputs = simulate(*map(float, fields[1:]), rng)
            answer = "abandon" if outputs is None else "done " + " ".join(map(repr, outputs))
        else:
            answer = "fail unknown request " + word
        print(answer, flush=True)


if __name__ == "__main__":
    main()
