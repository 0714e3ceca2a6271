"""What the course costs, measured: `python -m benchmarks.checks` and others print and keep json in results/."""
