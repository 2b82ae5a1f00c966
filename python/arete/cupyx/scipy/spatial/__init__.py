"""Distances between points, under the names of scipy.spatial."""
from . import distance
from .distance import distance_matrix

__all__ = ["distance", "distance_matrix"]
