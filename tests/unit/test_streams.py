"""Random streams: known answers of SplitMix64, and the moments that distributions must have."""

import math

import numpy as np
import pytest

from az_mpi.search import streams

STEP = 0x9E3779B97F4A7C15
# The first outputs of SplitMix64 from state 0, as its reference implementation prints them.
SPLITMIX64 = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def uniforms(word, n):
    stream = np.array([word], np.uint64)
    return np.array([streams.uniform(stream, 0) for _ in range(n)])


def unmixed(word):
    """Return the word that `mix` turns into this one: each of its steps, undone from the last."""
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        undone = word
        for _ in range(64 // shift):
            undone = word ^ (undone >> shift)
        word = undone * pow(factor, -1, 2**64) % 2**64
    return word


def test_mix_gives_the_known_answers_of_splitmix64():
    states = [STEP * (k + 1) % 2**64 for k in range(3)]
    assert [int(streams.mix(np.uint64(state))) for state in states] == SPLITMIX64


def test_uniform_is_the_upper_53_bits_of_each_output():
    assert uniforms(0, 3).tolist() == [(word >> 11) / 2**53 for word in SPLITMIX64]


@pytest.mark.parametrize("output, number", [(2**64 - 1, 1 - 2**-53), (0, 0.0)])
def test_uniform_includes_0_and_leaves_1_out(output, number):
    word = (unmixed(output) - STEP) % 2**64
    assert uniforms(word, 1).tolist() == [number]


def test_uniform_is_uniform():
    """20,000 draws: mean and variance within 5 standard errors, the distribution by Kolmogorov and Smirnov's bound."""
    n = 20_000
    draws = np.sort(uniforms(streams.keyed(1, np.array([7], np.uint64))[0], n))
    assert abs(draws.mean() - 1 / 2) < 5 * math.sqrt(1 / 12 / n)
    assert abs(draws.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / n)  # the variance of (u - 1/2)^2 is 1/180
    assert np.abs(draws - (np.arange(n) + 0.5) / n).max() < 2 / math.sqrt(n)  # passed by chance once in 1500


def gamma(stream, shape):
    return math.exp(streams.scaled_log_gamma(stream, 0, shape) / shape)


@pytest.mark.parametrize("shape", [0.3, 1.0, 5.0])
def test_gamma_has_the_moments_of_its_shape(shape):
    """Mean k, variance k, third central moment 2 k, each within 5 standard errors of 40,000 draws."""
    n = 40_000
    stream = streams.keyed(2, np.array([3], np.uint64))
    draws = np.array([gamma(stream, shape) for _ in range(n)])
    assert (draws > 0).all()
    off = draws - shape
    # Central moments of Gamma(k, 1): 2 k, 3 k^2 + 6 k, … by its cumulants (m - 1)! k.
    fourth, sixth = 3 * shape**2 + 6 * shape, 15 * shape**3 + 130 * shape**2 + 120 * shape
    assert abs(off.mean()) < 5 * math.sqrt(shape / n)
    assert abs((off**2).mean() - shape) < 5 * math.sqrt((fourth - shape**2) / n)
    assert abs((off**3).mean() - 2 * shape) < 5 * math.sqrt((sixth - 4 * shape**2) / n)


@pytest.mark.parametrize("x", [0.05, 1.0, 3.0])
def test_gamma_of_shape_one_is_exponential(x):
    n = 10_000
    stream = streams.keyed(5, np.array([0], np.uint64))
    share = np.mean([gamma(stream, 1.0) > x for _ in range(n)])
    assert abs(share - math.exp(-x)) < 5 * math.sqrt(math.exp(-x) * (1 - math.exp(-x)) / n)


def test_gamma_is_finite_whatever_the_stream_gives():
    """This holds where the drawn numbers are exactly 0."""
    word = (unmixed(0) - STEP) % 2**64
    for shape in (0.01, 0.3, 1.0, 5.0):
        for skipped in range(4):
            stream = np.array([(word - skipped * STEP) % 2**64], np.uint64)
            assert 0 <= gamma(stream, shape) < 1000


def test_one_stream_for_each_key_whatever_other_keys_there_are():
    keys = np.array([5, 2**63 + 1, 0, 3], np.uint64)
    together = streams.keyed(9, keys)
    assert together.tolist() == [streams.keyed(9, keys[k : k + 1])[0] for k in range(4)]
    assert (streams.keyed(9, keys[::-1]) == together[::-1]).all()


def test_neighbouring_keys_and_seeds_make_unrelated_streams():
    words = np.stack([streams.keyed(seed, np.arange(10_000, dtype=np.uint64)) for seed in (3, 4)])
    assert len(np.unique(words[0])) == len(np.unique(words[1])) == 10_000 and (words[0] != words[1]).all()
    first = np.array([[streams.uniform(row, i) for i in range(0, 3_000)] for row in words])
    for one, other in ((first[0, :-1], first[0, 1:]), (first[0], first[1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(len(one))


def test_drawing_advances_one_stream_only():
    words = streams.keyed(1, np.arange(3, dtype=np.uint64))
    before = words.copy()
    streams.uniform(words, 1)
    assert int(words[1]) == (int(before[1]) + STEP) % 2**64
    assert words[[0, 2]].tolist() == before[[0, 2]].tolist()


def test_numbers_drawn_together_are_those_of_each_stream():
    together, alone = (streams.keyed(1, np.arange(4, dtype=np.uint64)) for _ in range(2))
    rows = np.array([3, 0, 2])
    assert streams.uniforms(together, rows).tolist() == [streams.uniform(alone, row) for row in rows]
    assert together.tolist() == alone.tolist()


def test_seed_and_key_are_not_interchangeable():
    def stream(seed, key):
        return streams.keyed(seed, np.array([key], np.uint64))[0]

    assert stream(1, 2) != stream(2, 1)
    assert stream(5, 5) != stream(6, 6)
