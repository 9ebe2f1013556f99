"""What an iteration did: a record in metrics.jsonl and a line in the log."""

from az_mpi.core.processes import peak_bytes
from az_mpi.run.state import Run
from az_mpi.selfplay import ranked
from az_mpi.telemetry.summary import iteration_line, losses_text


def report(run: Run, num_steps: int) -> None:
    """Write the metrics and the log line of the iteration that has just ended. Collective."""
    counters = run.report.counters.take(run.world)
    values = _values(run, counters, num_steps)
    if values.get("num_truncated") and run.playing.player.max_plies == run.setup.game.max_plies:
        _say_once_that_games_are_cut(run, values["num_truncated"])
    run.report.status.staleness = values.get("mean_staleness")
    if not run.files.writes_no_more:  # else the iteration is not on disk, and will be done again
        run.report.metrics.write("iteration", run.progress.step, values)
    if run.world.is_root:
        run.setup.callbacks.iteration(values)
        run.report.logger.info(iteration_line(values))
    else:
        run.report.logger.info(_line_of_rank(run.world.rank, values, counters))


def _values(run, counters, num_steps):
    """Return what an iteration reports, by name. Collective. counters: {count: float64 [ranks]}."""
    learner = run.training.learner
    mine = (*run.playing.evaluate.take_counts(), peak_bytes(), *_of_trainer(learner))
    asked, evaluated, peaks, losses, waited = zip(*run.world.collect(mine))
    spent = run.report.timers.take()

    def total(name):
        return int(counters[name].sum())

    return {
        "iteration": run.progress.iteration,
        "num_games": total("num_games"),
        "num_positions": total("num_positions"),
        # Of the whole run: the counts above lack what an earlier start played.
        "num_games_stored": run.progress.num_games,
        "num_positions_stored": run.progress.num_positions,
        "num_games_asked": run.setup.config.selfplay.num_games,
        "num_steps": num_steps,
        **{name: sum(part.get(name, 0.0) for part in losses) for name in losses[0]},
        **_means_of_games(counters, run.setup.game.num_players),
        **ranked.figures(run.playing.threshold),
        **spent,
        "sums_s": round(sum(waited) / run.training.num_trainers, 4),  # of train_s: mean wait of trainers for gradients
        **_rates(counters, run.training.num_trainers, spent, sum(asked), sum(evaluated)),
        "num_bad_steps": int(counters["num_bad_steps"][0]),  # on root, as on every rank that trains
        "num_rollbacks": run.progress.rollbacks,
        "num_exchanges": int(counters["num_exchanges"][0]),
        "exchange_bytes": total("exchange_bytes"),
        "broadcast_bytes": total("broadcast_bytes"),
        **run.playing.engine.figures,  # root's
        "peak_resident_bytes": int(max(peaks)),  # of the largest rank since it started
        "games_by_rank": counters["num_games"].astype(int).tolist(),
        "positions_by_rank": counters["num_positions"].astype(int).tolist(),
        "playing_s_by_rank": counters["playing_s"].round(4).tolist(),
    }


def _of_trainer(learner):
    """Return (parts of the iteration's losses, seconds of waiting for sums of gradients) of this rank."""
    return (learner.iteration_losses(), learner.take_sums_s()) if learner else ({}, 0.0)


def _means_of_games(counters, num_players):
    """Return what the exchanged games were like; {} in an iteration that was resumed in its training."""
    values = {}
    num_games = counters["num_games"].sum()
    if num_games:
        values = {
            "mean_length": counters["num_positions"].sum() / num_games,
            "num_truncated": int(counters["num_truncated"].sum()),
            "mean_staleness": counters["staleness"].sum() / num_games,
            # By iterations: {"1": games whose weights were one iteration old, …}; the other games had the newest ones.
            "num_stale": {name: int(counters[f"num_stale_{name}"].sum()) for name in ("1", "2", "more")},
        }
        mean = counters["outcome"].sum() / num_games
        values |= {"mean_result": mean} if num_players == 1 else {"first_player_score": 0.5 + 0.5 * mean}
    if abandoned := counters["num_abandoned"].sum():
        values["num_abandoned"] = int(abandoned)
    if tested := counters["num_resign_tests"].sum():
        values["num_resign_tests"] = int(tested)
        values["false_resign_rate"] = counters["num_false_resigns"].sum() / tested
    return values


def _say_once_that_games_are_cut(run, num):
    game, report = run.setup.game, run.report
    if not report.said_cut:
        report.warn(
            "the rules of %s do not end a game at max_plies = %d: games that reach it, %d in this iteration, "
            "are draws\n  let `terminal` end the game there, or give the game a larger max_plies",
            game.name,
            game.max_plies,
            num,
        )
    report.said_cut = True


def _rates(counters, num_trainers, spent, num_asked, num_evaluated):
    """Return the rates of the iteration.

    counters: {count: float64 [ranks]}. num_trainers: the first ranks train. spent: {phase_s: seconds}. num_asked: the
    positions whose evaluation the searches asked for, of which the network evaluated num_evaluated."""
    play_s, train_s = spent.get("play_s", 0.0), spent["train_s"]
    whole_s = sum(value for name, value in spent.items() if "_idle_" not in name)
    values = {"overhead_share": 1 - (play_s + train_s) / whole_s}
    # Simulations of the ranks that do not train: while the others train, and in the self-play phase.
    meanwhile, alone = counters["num_meanwhile"].sum(), counters["num_played"][num_trainers:].sum()
    searching_s = play_s + (train_s if meanwhile else 0.0)
    if play_s:  # not in an iteration that was resumed in its training
        values["games_per_s"] = counters["num_games"].sum() / searching_s
        values["simulations_per_s"] = counters["num_played"].sum() / play_s
    if meanwhile:
        values["meanwhile_simulations_per_s"] = meanwhile / train_s
    if meanwhile and alone:
        values["meanwhile_share"] = meanwhile / train_s / (alone / play_s)
    if num_asked:
        values["cache_hit_rate"] = 1 - num_evaluated / num_asked
    if num_asked and searching_s:
        values["evaluations_per_s"] = num_evaluated / searching_s
    return values


def _line_of_rank(rank, values, counters):
    """Return the line for the log of a rank that is not root."""
    games, positions, played, meanwhile = (
        counters[f"num_{name}"][rank] for name in ("games", "positions", "played", "meanwhile")
    )
    text = (
        f"iteration {values['iteration']}: this rank gave {games:.0f} games, {positions:.0f} positions; "
        f"{played + meanwhile:.0f} simulations, {meanwhile:.0f} of them while others trained"
    )
    return "; ".join(filter(None, [text, losses_text(values)]))
