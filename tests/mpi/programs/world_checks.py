"""Each collective of World against its definition, in rounds of a few bytes and of the usual size."""

import sys

import numpy as np

from az_mpi.core.problems import NotNow, Refusal
from az_mpi.mpi.world import World, wait

ROW = np.dtype([("id", "<u8"), ("x", "<f4", (3,))])


def rows_of(rank, n):
    rows = np.zeros(n, ROW)
    rows["id"], rows["x"] = rank * 1000 + np.arange(n), rank + 0.5
    return rows


def check_gather(world, compress):
    size = world.size
    for counts in ([50 * (r + 1) for r in range(size)], [0] * size, [7 * (r % 2) for r in range(size)]):
        whole = world.gather(rows_of(world.rank, counts[world.rank]), compress)
        if world.is_root:
            assert (whole == np.concatenate([rows_of(r, n) for r, n in enumerate(counts)])).all()
            assert len(whole) == sum(counts)
        else:
            assert whole is None


def check_exchange(world, compress):
    size = world.size
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 60, size)
    destinations = [rng.integers(0, size, n) for n in counts]
    got = world.exchange(rows_of(world.rank, counts[world.rank]), destinations[world.rank], compress)
    expected = [rows_of(r, counts[r])[destinations[r] == world.rank] for r in range(size)]
    assert (got == np.concatenate(expected)).all() and len(got) == sum(map(len, expected))
    everything_to_last = world.exchange(rows_of(world.rank, 30), np.full(30, size - 1), compress)
    assert len(everything_to_last) == (30 * size if world.rank == size - 1 else 0)
    assert len(world.exchange(rows_of(0, 0), np.zeros(0, int), compress)) == 0


def check_small(world):
    size, rank = world.size, world.rank
    assert world.collect({"rank": rank, "text": "x" * rank}) == [{"rank": r, "text": "x" * r} for r in range(size)]
    assert world.share([rank, "root"]) == [0, "root"]
    assert (world.sum(np.array([rank, 1.5])) == [size * (size - 1) / 2, 1.5 * size]).all()
    for array in (np.arange(997.0), np.zeros((3, 0), np.int32), np.arange(6, dtype=np.uint8).reshape(2, 3)):
        copy = world.broadcast(array if world.is_root else None)
        assert (copy == array).all() and copy.shape == array.shape and copy.dtype == array.dtype


def check_pending_sums(world):
    """Every rank sees the same totals in the same order although ranks ask at different times."""
    totals = []
    for turn in range(20):
        pending = world.start_sum([world.rank + turn, 2**40, 0])
        if (turn + world.rank) % 3 == 0:
            wait(pending.finished)
        if turn % 4 == 0:  # other collectives may be called meanwhile
            assert world.share(turn) == turn
        totals.append(pending.total)
    n = world.size
    assert totals == [[n * (n - 1) // 2 + turn * n, n * 2**40, 0] for turn in range(20)]


def check_reorder(world):
    """The chosen come first, all else stays in order."""
    chosen = [rank % 3 == 1 for rank in range(world.size)]
    expected = sorted(range(world.size), key=lambda rank: not chosen[rank])
    other = world.reorder(chosen[world.rank])
    assert other.collect(world.rank) == expected and other.size == world.size
    assert other.local_rank == other.rank  # one host here


def check_sent_bytes(world):
    """Bytes that leave this rank are counted, those that stay are not; what compresses well sends fewer."""
    rows, rank, size = np.zeros(1000, ROW), world.rank, world.size
    before = World.sent_bytes
    world.gather(rows)
    world.exchange(rows, np.full(1000, 0))
    assert World.sent_bytes - before == (2 * rows.nbytes if rank else 0)
    world.broadcast(rows)
    assert World.sent_bytes - before == (2 * rows.nbytes if rank else rows.nbytes * (size - 1))
    before = World.sent_bytes
    world.gather(rows, True)
    assert (0 < World.sent_bytes - before < 200) == (rank > 0)


def check_from_root(world):
    calls = []
    assert world.from_root(lambda: calls.append(1) or {"answer": 42}) == {"answer": 42}
    thing = world.on_root(lambda: calls.append(2) or calls)  # of any type, and not sent
    assert thing is (calls if world.is_root else None) and calls == ([1, 2] if world.is_root else [])

    for kind in (Refusal, NotNow):

        def refuse(kind=kind):
            error = kind("root says no")
            error.status = 9
            raise error

        def later(kind=kind):
            raise kind("root says no")

        for call in (world.from_root, world.on_root):
            for make, expected, status in ((later, kind, kind.status), (refuse, Refusal, 9)):
                try:
                    call(make)
                except Refusal as error:
                    assert (str(error), type(error), error.status) == ("root says no", expected, status)
                else:
                    raise AssertionError("a refusal on root was not raised")


def check_split(world):
    members = world.split(world.rank % 2 == 0)
    assert (members is None) == (world.rank % 2 == 1)
    if members:
        assert members.size == (world.size + 1) // 2 and members.rank == world.rank // 2
        assert members.collect(world.rank) == list(range(0, world.size, 2))


def main(chunk_bytes):
    world = World.start()
    for chunk in (chunk_bytes, 1 << 28):
        world.chunk_bytes = chunk
        for compress in (False, True):
            check_gather(world, compress)
            check_exchange(world, compress)
        check_small(world)
    check_pending_sums(world)
    check_reorder(world)
    check_sent_bytes(world)
    check_from_root(world)
    check_split(world)
    assert world.local_rank == world.rank  # one host
    world.barrier()
    print("all checks passed")


main(int(sys.argv[1]))
