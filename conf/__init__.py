"""Configuration as data: read with :mod:`importlib.resources`, also from an installed wheel. Holds no code."""
