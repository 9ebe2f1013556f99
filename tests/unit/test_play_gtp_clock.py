"""python -m az_mpi gtp: the time that it takes for a move, by a clock of the test's own."""

from gtp_channel import Channel

from az_mpi.player.limits import Limit


def slow_channel(clock):
    return Channel(limit=Limit(), on_batch=clock.batches(0.01))


def test_thinking_uses_the_time_of_the_clock_and_never_more(clock):
    channel = slow_channel(clock)
    channel.good("reg_genmove b")
    assert channel.session.simulations == 50  # as in self-play, by default
    for settings, budget_s in (("0 1 5", 0.2), ("20 0 0", 20 / 12), ("0 4 10", 0.4), ("0 60 4", 15)):
        channel.good("clear_board")
        channel.good(f"time_settings {settings}")
        begun = clock.now
        channel.good("genmove b")
        assert 0.75 * budget_s < clock.now - begun <= budget_s
    channel.good("time_settings 100 0 0")
    for command, budget_s in (("time_left w 1 4", 0.25), ("time_left w 0 0", 0.021), ("time_left w -3 0", 0.021)):
        channel.good(command)
        begun = clock.now
        channel.good("reg_genmove w")
        assert clock.now - begun <= budget_s
    channel.good("time_settings 0 1 0")  # no limit
    channel.good("clear_board")
    channel.good("reg_genmove b")
    assert channel.session.simulations == 50


def test_on_a_busy_machine_thinking_leaves_time_for_a_wait_as_long_as_the_last_one(clock):
    waits = [0.001] * 20 + [0.06]

    def take_time():
        clock.now += waits.pop(0) if waits else 0.001

    channel, used = Channel(limit=Limit(), on_batch=take_time), []
    channel.good("time_settings 0 0.2 1")
    for _ in range(100):
        if channel.session.over:
            channel.good("clear_board")
        begun = clock.now
        channel.good(f"genmove {'bw'[channel.session.to_play]}")
        used.append(clock.now - begun)
    assert max(used) <= 0.2 - 0.02 + 1e-9
    assert 0.05 < max(used[1:5]) <= 0.2 - 2 * 0.05  # the last step and the answer may each wait as long
    assert max(used[-20:]) > 0.17  # long ago


def test_a_game_by_absolute_time_is_never_lost_on_time(clock):
    channel = slow_channel(clock)
    channel.good("time_settings 10 0 0")
    used, player = [0.0, 0.0], 0
    while not channel.session.over:
        begun = clock.now
        channel.good(f"genmove {'bw'[player]}")
        used[player] += clock.now - begun
        player = 1 - player
    assert 3 < max(used) < 10, used


def test_the_gtp_engine_counts_its_own_time(clock):
    """Programs need not send time_left."""
    channel = slow_channel(clock)
    channel.good("time_settings 10 0 0")
    spent = []
    for _ in range(8):
        begun = clock.now
        channel.good("genmove b")
        spent.append(clock.now - begun)
    assert spent[-1] < 0.8 * spent[0]
