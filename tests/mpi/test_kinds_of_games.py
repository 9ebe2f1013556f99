"""Whole runs of games of one player, with chance, and of three players."""

import json
from pathlib import Path

import numpy as np
import pytest
from jobs import SMALL, SMOKE, columns, records

pytestmark = pytest.mark.mpi
KINDS = Path(__file__).resolve().parents[1] / "unit" / "kinds.py"


@pytest.mark.parametrize("game", ["Rain", "Pig", "Trio"])
def test_any_number_of_ranks_plays_the_same_games_of_every_kind_and_trains_on_them(mpirun, tmp_path, game):
    config = json.loads(Path(SMOKE).read_text()) | {"game": f"{KINDS}:{game}"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    for ranks in (1, 2, 4):
        mpirun(
            ranks,
            "run_dist.py",
            *("--config_file", path, "--logdir", tmp_path / str(ranks)),
            *SMALL,
            *("--set", "network.engine=uniform"),
            *("--set", 'network.heads=["policy","value"]'),
            *("--num_games", 13),
        )
    alone = columns(tmp_path / "1")
    assert len(alone["games/id"]) == 26 and ("chance/outcome" in alone) == (game != "Trio")
    for ranks in (2, 4):
        rows = columns(tmp_path / str(ranks))
        for name in alone.keys() - {"games/rank"}:
            assert np.array_equal(rows[name], alone[name]), f"{name} on {ranks} ranks"
    for record in records(tmp_path / "2", "iteration"):
        assert record["value_loss"] > 0 and np.isfinite(record["policy_loss"])
