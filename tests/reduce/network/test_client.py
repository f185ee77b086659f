"""What a worker gets: the sum or the union over all, or an error that says who is to blame."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from laconic.errors import CommError, ConfigError
from laconic.reduce.network import InNetwork
from tests.reduce.network.conftest import JOB, free_address, together
from tests.reduce.network.packets import VALUES

MOST, LEAST = 2**31 - 1, -(2**31)


def random_arrays(workers, size, dtype=np.int32, seed=0):
    """As large as sums of so many can be."""
    generator = np.random.default_rng(seed)
    if dtype == np.uint32:
        return [generator.integers(0, 2**32, size, dtype=np.uint32) for _ in range(workers)]
    most = MOST // workers
    return [generator.integers(-most, most, size, dtype=np.int32, endpoint=True) for _ in range(workers)]


@pytest.mark.parametrize("size", [0, 1, VALUES - 1, VALUES, VALUES + 1, 256 * VALUES, 300_001])
def test_every_worker_gets_the_sum(aggregator, size):
    aggregator.register(JOB, 3)
    arrays = random_arrays(3, size)
    expected = np.sum(arrays, axis=0, dtype=np.int64)
    together([aggregator.address] * 3, arrays)
    for array in arrays:
        assert np.array_equal(array, expected)


@pytest.mark.parametrize("size", [0, 1, 1000, 100_003])
def test_every_worker_gets_the_union(aggregator, size):
    aggregator.register(JOB, 3)
    arrays = random_arrays(3, size, np.uint32)
    expected = np.bitwise_or.reduce(arrays)
    together([aggregator.address] * 3, arrays, operation="unite")
    for array in arrays:
        assert np.array_equal(array, expected)


@pytest.mark.parametrize("workers", [1, 2, 31, 32])
def test_a_job_has_up_to_32_workers(aggregator, workers):
    aggregator.register(JOB, workers)
    arrays = random_arrays(workers, 2000)
    expected = np.sum(arrays, axis=0, dtype=np.int64)
    together([aggregator.address] * workers, arrays)
    for array in arrays:
        assert np.array_equal(array, expected)


def test_rounds_follow_each_other_through_the_whole_pool_many_times(aggregator):
    """Blocks of 40 rounds use every entry of the pool five times; each doubles the values."""
    aggregator.register(JOB, 2)
    arrays = [np.arange(25_000, dtype=np.int32) % 7 for _ in range(2)]
    expected = (np.arange(25_000) % 7) << 20
    together([aggregator.address] * 2, arrays, rounds=20)
    for array in arrays:
        assert np.array_equal(array, expected)


def test_jobs_do_not_meet(aggregator):
    arrays = {job: random_arrays(2, 50_000, seed=job) for job in (1, 2, 3)}
    expected = {job: np.sum(found, axis=0, dtype=np.int64) for job, found in arrays.items()}
    for job in arrays:
        aggregator.register(job, 2)
    threads = [
        threading.Thread(target=together, args=([aggregator.address] * 2, found), kwargs={"job": job})
        for job, found in arrays.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job, found in arrays.items():
        assert all(np.array_equal(array, expected[job]) for array in found)


def test_a_matrix_is_summed_in_place(aggregator):
    aggregator.register(JOB, 1)
    matrix = np.arange(12, dtype=np.int32).reshape(3, 4)
    together([aggregator.address], [matrix])
    assert np.array_equal(matrix, np.arange(12).reshape(3, 4))


def test_bytes_are_those_of_the_link(aggregator):
    aggregator.register(JOB, 1)
    worker = together([aggregator.address], [np.zeros(VALUES + 10, dtype=np.int32)])[0]
    headers = 14 + 20 + 8 + 24
    assert worker.bytes_sent == worker.bytes_received == 2 * headers + 4 * (VALUES + 10)
    assert worker.packets_repeated == 0


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ([MOST, 0], True),
        ([MOST, 1], False),
        ([LEAST, 0], True),
        ([LEAST, -1], False),
        ([LEAST, LEAST], False),
        ([MOST, 1, -1], True),  # in any order of arrival
        ([MOST, MOST, LEAST, LEAST], True),
        ([MOST] * 32, False),
    ],
)
def test_a_sum_that_does_not_fit_is_an_error_on_every_worker_and_one_that_does_is_not(
    aggregator, values, fits
):
    aggregator.register(JOB, len(values))
    arrays = [np.full(5, value, dtype=np.int32) for value in values]
    outcomes = together([aggregator.address] * len(values), arrays)
    if fits:
        assert all((array == sum(values)).all() for array in arrays)
    else:
        most = MOST // len(values)
        for outcome in outcomes:
            assert isinstance(outcome, CommError)
            assert str(outcome) == (
                "in-network: round 0: expected sums that fit in int32, got larger ones;"
                f" keep every value within {most} for {len(values)} workers"
            )


def test_workers_go_on_after_an_overflow(aggregator):
    aggregator.register(JOB, 2)
    results = {}

    def work(worker):
        with InNetwork(str(aggregator.address), job=JOB, worker=worker, workers=2) as network:
            with pytest.raises(CommError, match="fit in int32"):
                network.add(np.full(1000, MOST, dtype=np.int32))
            values = np.full(1000, worker + 1, dtype=np.int32)
            network.add(values)
            results[worker] = values

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((results[worker] == 3).all() for worker in range(2))


@pytest.mark.parametrize("sizes", [(100, 101), (362, 363), (100, 40_000)])
def test_workers_with_arrays_of_different_length_are_out_of_step(aggregator, sizes):
    aggregator.register(JOB, 2)
    arrays = [np.ones(size, dtype=np.int32) for size in sizes]
    began = time.monotonic()
    outcomes = together([aggregator.address] * 2, arrays, rounds=2, timeout_s=15)
    assert time.monotonic() - began < 15
    assert all("the workers are out of step" in str(outcome) for outcome in outcomes), outcomes


def test_workers_with_different_operations_are_out_of_step(aggregator):
    aggregator.register(JOB, 2)
    outcomes = {}

    def work(worker, operation, dtype):
        with InNetwork(str(aggregator.address), job=JOB, worker=worker, workers=2) as network:
            try:
                getattr(network, operation)(np.ones(10, dtype=dtype))
            except CommError as error:
                outcomes[worker] = str(error)

    threads = [
        threading.Thread(target=work, args=(0, "add", np.int32)),
        threading.Thread(target=work, args=(1, "unite", np.uint32)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("out of step" in outcomes[worker] for worker in range(2))


def test_a_missing_worker_is_named(aggregator):
    aggregator.register(JOB, 4)
    with InNetwork(str(aggregator.address), job=JOB, worker=2, workers=4, timeout_s=0.3) as network:
        with pytest.raises(CommError) as raised:
            network.add(np.ones(10_000, dtype=np.int32))
        assert str(raised.value) == (
            "in-network: round 0: expected all 4 workers, got nothing from worker 0, 1, 3 within 0.3 s;"
            " it is gone or late, see its own error, or raise timeout_s"
        )
        with pytest.raises(CommError, match="in step, got one that is out of step after an error"):
            network.add(np.ones(10, dtype=np.int32))


def test_waiting_for_a_late_worker_costs_few_packets(aggregator):
    aggregator.register(JOB, 2)
    with InNetwork(str(aggregator.address), job=JOB, worker=0, workers=2, timeout_s=1) as network:
        with pytest.raises(CommError):
            network.add(np.ones(256 * VALUES, dtype=np.int32))
        assert 1 <= network.packets_repeated < 20


@pytest.mark.parametrize("known", [True, False])
def test_an_aggregator_that_does_not_answer_is_named(aggregator, known):
    address = str(aggregator.address) if known else free_address()
    with (
        InNetwork(address, job=0xABC, worker=0, workers=2, timeout_s=0.2) as network,
        pytest.raises(CommError) as raised,
    ):
        network.add(np.ones(3, dtype=np.int32))
    assert str(raised.value) == (
        f"in-network: round 0: expected an answer of the aggregator {address}, got none within 0.2 s;"
        " check that it runs, that it knows job 0000000000000abc, and the link"
    )


def test_an_aggregator_that_ends_on_the_way_is_not_taken_for_a_missing_worker(aggregator):
    aggregator.register(JOB, 1)
    with InNetwork(str(aggregator.address), job=JOB, worker=0, workers=1, timeout_s=0.3) as network:

        def add_on_and_on():
            while True:
                network.add(np.ones(300_000, dtype=np.int32))

        threading.Timer(0.2, aggregator.close).start()
        with pytest.raises(CommError, match="expected an answer of the aggregator"):
            add_on_and_on()


def test_an_interrupt_ends_the_wait(aggregator):
    aggregator.register(JOB, 2)
    with InNetwork(str(aggregator.address), job=JOB, worker=0, workers=2, timeout_s=60) as network:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            network.add(np.ones(3, dtype=np.int32))
        with pytest.raises(CommError, match="got one that is interrupted; start the job again"):
            network.add(np.ones(3, dtype=np.int32))


@pytest.mark.parametrize(
    ("values", "got"),
    [
        (np.ones(3, dtype=np.int64), r"int64 of strides \(8,\)"),
        (np.ones(6, dtype=np.int32)[::2], r"int32 of strides \(8,\)"),
        (np.ones(3, dtype=np.uint32), "uint32"),
        ([1, 2], "list"),
    ],
)
def test_an_array_that_cannot_be_filled_in_place_is_refused(aggregator, values, got):
    with (
        InNetwork(str(aggregator.address), job=JOB, worker=0, workers=1) as network,
        pytest.raises(ConfigError, match=f"expected a contiguous, writable array of int32, got {got}"),
    ):
        network.add(values)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"worker": 2}, "in-network: worker: expected 0 to 1, got 2"),
        ({"worker": -1}, "in-network: worker: expected 0 to 1, got -1"),
        ({"workers": 33}, "aggregator: workers: expected 1 to 32, got 33"),
        ({"workers": 0}, "aggregator: workers: expected 1 to 32, got 0"),
        ({"job": 1 << 64}, f"aggregator: job: expected a number of 64 bits, got {1 << 64}"),
        ({"timeout_s": 0}, "in-network: timeout_s: expected more than 0, got 0"),
        ({"address": "10.0.0.1:0"}, "aggregator: address: expected a port from 1 to 65535, got '10.0.0.1:0'"),
        ({"address": ""}, "aggregator: address: expected an IPv4 address or a known name, got ''"),
    ],
)
def test_settings_out_of_range_are_refused(settings, text):
    given = {"address": "127.0.0.1", "job": JOB, "worker": 0, "workers": 2, **settings}
    with pytest.raises(ConfigError) as raised:
        InNetwork(given.pop("address"), **given)
    assert str(raised.value).startswith(text)


def test_the_environment_of_a_lab_is_enough(aggregator):
    aggregator.register(JOB, 1)
    environment = {
        "LACONIC_AGGREGATOR": str(aggregator.address),
        "LACONIC_AGGREGATION_JOB": f"{JOB:016x}",
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    with InNetwork.from_environment(environment=environment) as network:
        values = np.array([4, 5], dtype=np.int32)
        network.add(values)
    assert values.tolist() == [4, 5]
    del environment["LACONIC_AGGREGATOR"]
    with pytest.raises(ConfigError, match="got no LACONIC_AGGREGATOR; run the job by 'laconic lab"):
        InNetwork.from_environment(environment=environment)
