import math

import numpy as np
import pytest
import torch

from benchmarks.codecs.cases import ABSOLUTE, Case, ideal_ratio, normal_table, quantize, total_bits


def case_of(rows: list[list[float]], bound: float = 0.5) -> Case:
    return Case("x", torch.tensor(rows), bound, ABSOLUTE, bound)


def test_repeated_rows_cost_a_reference() -> None:
    # Bound 0.5: codes are the integers. Rows A A A B, A = 0 0 1 1, B = 2 2 3 3.
    # Eight codes of two distinct rows, four equally likely: 16 bits.
    # Four references, 3:1: 4 * 0.8113 = 3.245 bits. Otherwise 16 codes 6:6:2:2: 28.98 bits.
    a, b = [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]
    references = -3 * math.log2(3 / 4) - math.log2(1 / 4)
    assert ideal_ratio(case_of([a, a, a, b])) == pytest.approx(4 * 4 * 32 / (16 + references))


def test_rows_that_do_not_repeat_cost_the_entropy_of_their_codes() -> None:
    # Codes 0 1 2 3 1 0 3 2: two bits each, and no reference.
    assert ideal_ratio(case_of([[0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 3.0, 2.0]])) == pytest.approx(32 / 2)


def test_de_duplication_is_not_charged_where_it_does_not_pay() -> None:
    # Sixteen rows of one binary value take one bit each; references take as much, and codes on top.
    assert ideal_ratio(case_of([[float(i % 2)] for i in range(16)])) == pytest.approx(32)


def test_rows_are_compared_after_quantizing() -> None:
    assert ideal_ratio(case_of([[0.0, 1.0], [0.1, 1.1], [0.2, 0.9], [0.0, 1.2]])) == pytest.approx(8 * 32 / 2)


def test_a_single_code_needs_nothing() -> None:
    assert ideal_ratio(case_of([[0.1, 0.2], [0.0, -0.1]])) == math.inf


def test_normal_values_approach_the_entropy_of_a_normal() -> None:
    # Differential entropy of a standard normal, log2(sqrt(2 pi e)), less log2 of the step.
    bits = math.log2(math.sqrt(2 * math.pi * math.e)) - math.log2(0.04)
    assert ideal_ratio(normal_table(4096)) == pytest.approx(32 / bits, rel=1e-3)


def test_codes_of_any_size_are_counted() -> None:
    codes = quantize(np.array([[0.0, 3e6], [3e6, 1e5]], np.float32), 0.5)
    assert codes.tolist() == [[0, 3_000_000], [3_000_000, 100_000]]
    assert ideal_ratio(case_of([[0.0, 3e6], [3e6, 1e5]])) == pytest.approx(32 / 1.5)


def test_entropy_of_nothing_is_nothing() -> None:
    assert total_bits(np.array([7])) == 0
    assert total_bits(np.array([1, 1, 0, 2])) == pytest.approx(6)
