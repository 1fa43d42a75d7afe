"""Percentiles of run times from a histogram: inside the bucket, monotone, and exact at its ends."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.store.columns import BUCKETS
from towline.store.stats import percentile

HISTOGRAMS = st.lists(st.integers(0, 1000), min_size=8, max_size=8)
SHARES = st.floats(0, 1)
ENDS = (0, *BUCKETS, BUCKETS[-1])


def bucket_of(histogram: list[int], share: float) -> int:
    """The first bucket with which this share of all is reached."""
    seen = 0
    for number, jobs in enumerate(histogram):
        seen += jobs
        if jobs and seen >= share * sum(histogram):
            return number
    raise AssertionError


@given(HISTOGRAMS, SHARES)
def test_it_lies_within_its_bucket(histogram: list[int], share: float) -> None:
    found = percentile(histogram, share)
    if not any(histogram):
        assert found is None
        return
    assert found is not None
    number = bucket_of(histogram, share)
    assert ENDS[number] <= found <= ENDS[number + 1]


@given(HISTOGRAMS, SHARES, SHARES)
def test_more_of_them_take_longer(histogram: list[int], one: float, other: float) -> None:
    if any(histogram):
        low, high = (percentile(histogram, share) for share in sorted((one, other)))
        assert low is not None
        assert high is not None
        assert low <= high


@pytest.mark.parametrize(
    ("histogram", "share", "expected"),
    [
        ([0] * 8, 0.5, None),
        ([4, 0, 0, 0, 0, 0, 0, 0], 0.5, 500),
        ([0, 4, 0, 0, 0, 0, 0, 0], 0, 1_000),
        ([0, 4, 0, 0, 0, 0, 0, 0], 0.5, 3_162),
        ([0, 4, 0, 0, 0, 0, 0, 0], 1, 10_000),
        ([1, 1, 0, 0, 0, 0, 0, 0], 0.5, 1_000),
        ([0, 0, 0, 0, 0, 0, 0, 3], 0.99, 1_000_000_000),
        ([99, 0, 0, 0, 0, 0, 0, 1], 0.99, 1_000),
    ],
)
def test_known_ones(histogram: list[int], share: float, expected: int | None) -> None:
    assert percentile(histogram, share) == expected


TIMES = st.lists(st.integers(0, 10**9 - 1), min_size=1, max_size=30)


@given(TIMES, SHARES, SHARES)
def test_nothing_is_longer_than_what_is_left_of_the_sum(
    times: list[int], one: float, other: float
) -> None:
    histogram = [0] * 8
    for time in times:
        histogram[bisect_right(BUCKETS, time)] += 1
    low, high = (percentile(histogram, share, sum(times)) for share in sorted((one, other)))
    assert low is not None
    assert high is not None
    assert low <= high <= sum(times)
    assert ENDS[bucket_of(histogram, max(one, other))] <= high


def test_one_that_took_long_among_short_ones_is_known_well() -> None:
    histogram = [20, 0, 0, 0, 0, 1, 0, 0]
    assert percentile(histogram, 0.99) == 61_659_500
    assert percentile(histogram, 0.99, 12_004_000) == 12_004_000
