"""Benchmarks of the Python package."""
