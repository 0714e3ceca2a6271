"""How long does one check take? `python -m benchmarks.checks [--out FILE]` prints the median of each exercise.

The first call of a process also draws the inputs and asks the twin; what a learner waits for is told apart: `first`
is that call, `again` every later one, `wrong` a failing check with its diagnosis.
"""

import argparse
import datetime
import platform
import statistics
import time

import torch

from benchmarks.kept import keep
from utils.checks import EXERCISES, evaluate

RUNS = 7


def timed(name, obj):
    """Seconds of one evaluation."""
    start = time.perf_counter()
    evaluate(name, obj)
    return time.perf_counter() - start


def measure():
    """{exercise: {"first": s, "again": median s, "wrong": median s}}."""
    evaluate("causal_mask", EXERCISES["causal_mask"].expected)  # torch's own first-time costs belong to nobody
    table = {}
    for name, exercise in EXERCISES.items():
        mistake = next(iter(exercise.mistakes.values()))
        first = timed(name, exercise.expected)
        again = statistics.median(timed(name, exercise.expected) for _ in range(RUNS))
        wrong = statistics.median(timed(name, mistake) for _ in range(RUNS))
        table[name] = {"first": round(first, 4), "again": round(again, 4), "wrong": round(wrong, 4)}
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="also write the numbers there, as json")
    options = parser.parse_args()
    table = measure()
    for name, row in table.items():
        print(f"{name:22}" + "".join(f"{key} {seconds * 1000:6.0f} ms   " for key, seconds in row.items()))
    medians = {
        key: round(statistics.median(row[key] for row in table.values()), 4) for key in ("first", "again", "wrong")
    }
    print(f"{'median':22}" + "".join(f"{key} {seconds * 1000:6.0f} ms   " for key, seconds in medians.items()))
    keep(
        {
            "date": datetime.date.today().isoformat(),
            "device": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "seconds": table,
            "median": medians,
        },
        options.out,
    )


if __name__ == "__main__":
    main()
