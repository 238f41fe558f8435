"""The Python API of datasets: load, evaluate predictions, save (seed 001).

Others use: benchmark, results
"""
