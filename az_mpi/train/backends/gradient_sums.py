"""Gradients that are summed over the trainers a few at a time, for any library that can sum a tensor."""

from collections.abc import Callable
from typing import Any

import torch

BUCKET_BYTES = 1 << 20  # gradients that are summed together while backward computes those of earlier layers


class GradientSums:
    """Sums gradients over ranks in buckets. A bucket's sum begins as soon as backward has made all of its gradients.

    begin_sum(bucket, number) begins to add up a bucket over the ranks, in place, and returns what has a `wait()`. The
    number is that of the bucket, the same on every rank."""

    def __init__(self, parameters: list[torch.nn.Parameter], begin_sum: Callable[[torch.Tensor, int], Any]):
        self._begin_sum, self._buckets, size = begin_sum, [[]], 0
        for parameter in reversed(parameters):  # about the order in which backward makes their gradients
            if size >= BUCKET_BYTES:
                self._buckets.append([])
                size = 0
            self._buckets[-1].append(parameter)
            size += parameter.nbytes
            parameter.register_post_accumulate_grad_hook(self._arrived)
        self._arrivals, self._under_way = set(), []

    def synchronize(self) -> None:
        """Wait until every gradient is the sum over ranks. A rank without a gradient adds zeros. Collective."""
        try:
            self._begin(len(self._buckets))
            for (work, total), bucket in zip(self._under_way, self._buckets, strict=True):
                work.wait()
                parts = total.split([parameter.numel() for parameter in bucket])
                for parameter, part in zip(bucket, parts):
                    parameter.grad = part.view_as(parameter)
        finally:
            self._arrivals, self._under_way = set(), []

    def _arrived(self, parameter):
        self._arrivals.add(parameter)
        ready = len(self._under_way)
        while ready < len(self._buckets) and self._arrivals.issuperset(self._buckets[ready]):
            ready += 1
        self._begin(ready)

    def _begin(self, end):
        """Begin the sums of all buckets before `end`, in the same order on every rank."""
        for number in range(len(self._under_way), end):
            bucket = self._buckets[number]
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
            total = torch.cat([part.reshape(-1) for part in parts])
            self._under_way.append((self._begin_sum(total, number), total))
