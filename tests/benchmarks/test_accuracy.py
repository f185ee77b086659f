import math

import numpy as np

from benchmarks.codecs.benchmark import max_error


def test_the_largest_difference_is_found_in_float64() -> None:
    a, b = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    b[1, 2] = 1 + 2**-23
    assert max_error(a, b) == 1 + 2**-23


def test_a_nan_that_was_not_there_is_an_infinite_error() -> None:
    assert max_error(np.zeros(2, np.float32), np.array([0, math.nan], np.float32)) == math.inf


def test_another_shape_is_an_infinite_error() -> None:
    assert max_error(np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)) == math.inf
