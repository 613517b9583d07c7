"""Measuring speed (`make bench`): figures and ratios taken in one run, as JSON, as text and as a plot.

Machines are shared and noisy: compare within a run, not between runs.
"""
