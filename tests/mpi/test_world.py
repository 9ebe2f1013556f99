"""Collectives, sharing and waiting on real ranks."""

import pytest
from marks import slow

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_collectives_do_what_their_definitions_say(program, ranks):
    program(ranks, "world_checks", 2048)


def test_messages_of_many_rounds_arrive_whole(program):
    program(3, "world_checks", 7)  # bytes a round: less than one row


def test_waiting_ranks_leave_their_cores_to_others(program):
    program(2, "threads_checks")


@pytest.mark.parametrize("ranks", [1, slow(2), 3])
def test_positions_are_dealt_by_their_index(program, ranks):
    program(ranks, "deal_checks")
