"""Benchmarks of the head: `pytest bench --benchmark-only` per operation, `python bench/report.py` for the bars."""
