"""Estimates the transition RTT, at which a throughput profile turns from concave to convex.

There are three methods: the papers' estimator (:func:`fit_dual_sigmoid`), a fit that assumes only the shape
and gives all transitions that the runs allow (:func:`fit_shape`), and the curvature at each measured RTT
without any fit (:func:`second_differences`).
"""

from fullpipe.transition.differences import SecondDifferences, second_differences
from fullpipe.transition.shape import Shape, ShapeFit, Split, fit_shape
from fullpipe.transition.sigmoid import DualSigmoid, Sigmoid, SigmoidParams, fit_dual_sigmoid

__all__ = [
    "DualSigmoid",
    "SecondDifferences",
    "Shape",
    "ShapeFit",
    "Sigmoid",
    "SigmoidParams",
    "Split",
    "fit_dual_sigmoid",
    "fit_shape",
    "second_differences",
]
