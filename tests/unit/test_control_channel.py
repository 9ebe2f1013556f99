"""The hours of a start end by root's clock, which counts from the start of the process."""

import math
import os
import subprocess
import sys
import time

import pytest

from az_mpi.core.signals import Requests, deadline
from az_mpi.mpi.control_channel import ControlChannel


def test_the_hours_count_from_the_start_of_the_process():
    program = "import time; time.sleep(0.5); from az_mpi.core.signals import deadline; print(deadline(2.0))"
    before = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    after, tick_s = time.monotonic(), 1 / os.sysconf("SC_CLK_TCK")
    found = float(process.communicate()[0]) - 0.99 * 7200
    assert before - tick_s <= found <= after + tick_s
    assert deadline(0.0) == math.inf


def test_a_deadline_stops_the_run_by_roots_clock_alone():
    over = Requests(time.monotonic() - 1)
    assert over.tell(is_root=False) == (False, False) and not over.stop
    assert over.tell(is_root=True) == (False, True) and over.stop
    assert Requests(time.monotonic() + 1000).tell(is_root=True) == (False, False)
    assert Requests().tell(is_root=True) == (False, False)


def test_ranks_hear_of_the_deadline_by_the_sums_that_they_exchange_anyway(world):
    requests = Requests(time.monotonic() - 1)
    in_step = ControlChannel(world, requests, every_s=0.0)
    in_step.poll()
    assert in_step.wait(lambda total: True).stop == 1
    late = ControlChannel(world, Requests(time.monotonic() - 1))
    assert late.wait(lambda total: total.stop, finished=3).finished == 3
    in_step = ControlChannel(world, Requests(time.monotonic() + 1000), every_s=0.0)
    in_step.poll()
    assert in_step.wait(lambda total: True).stop == 0


def test_an_interrupt_ends_the_process_only_after_a_first_one():
    """An interrupt is a first one where the run stops for another reason or another rank was interrupted before."""
    requests = Requests()
    requests.stop = True
    requests._interrupt()
    with pytest.raises(KeyboardInterrupt):
        requests._interrupt()
