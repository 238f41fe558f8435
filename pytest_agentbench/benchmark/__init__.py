"""The Python API of datasets: load, evaluate predictions, save (seed 001)."""

from pytest_agentbench.benchmark.benchmark import Benchmark, BenchmarkWarning, create_benchmark
from pytest_agentbench.benchmark.results import EvaluationResult

__all__ = ["Benchmark", "BenchmarkWarning", "EvaluationResult", "create_benchmark"]
