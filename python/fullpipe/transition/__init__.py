"""Where a throughput profile turns from concave to convex: the transition RTT, and what is known of it.

Three views of the same runs: the papers' estimator (:func:`fit_dual_sigmoid`), a fit that assumes
nothing but the shape and says which transitions the runs cannot tell apart (:func:`fit_shape`), and the
curvature at each measured RTT without any fit (:func:`second_differences`).
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
