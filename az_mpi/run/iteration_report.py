"""What an iteration did: a record in metrics.jsonl and a line in the log."""

from typing import Any

from az_mpi.mpi import host_memory
from az_mpi.run.state import Run
from az_mpi.telemetry.summary import iteration_line, losses_text


def report(run: Run, steps_num: int) -> None:
    """Write the metrics and the log line of the iteration that has just ended. Collective."""
    learner, counters = run.training.learner, run.report.counters.take(run.world)
    mine = [
        *run.playing.evaluate.take_counts(),
        host_memory.peak_bytes(),
        learner.iteration_losses() if learner else {},
    ]
    asked, evaluated, peak, losses = zip(*run.world.collect(mine))
    games_num = int(counters["games_num"].sum())
    values: dict[str, Any] = {"iteration": run.progress.iteration, "games_num": games_num}
    values |= {"positions_num": int(counters["positions_num"].sum())}
    # Of the whole run: the counts above lack what an earlier start played.
    values |= {"games_stored_num": run.progress.games_num, "positions_stored_num": run.progress.positions_num}
    values |= {"games_asked_num": run.setup.config.selfplay.games_num}
    values |= {"steps_num": steps_num} | {name: sum(part.get(name, 0.0) for part in losses) for name in losses[0]}
    if games_num:  # not in an iteration that was resumed in its training
        values |= {
            "mean_length": counters["positions_num"].sum() / games_num,
            "truncated_num": int(counters["truncated_num"].sum()),
            "first_player_score": 0.5 + 0.5 * counters["outcome"].sum() / games_num,
            "mean_staleness": counters["staleness"].sum() / games_num,
        }
    if tested := counters["resign_tests_num"].sum():
        values |= {"resign_tests_num": int(tested), "false_resign_rate": counters["false_resigns_num"].sum() / tested}
    if values.get("truncated_num") and run.playing.player.max_plies == run.setup.game.max_plies:
        _say_once_that_games_are_cut(run, values["truncated_num"])
    run.report.status.staleness = values.get("mean_staleness")
    values |= (spent := run.report.timers.take())
    values |= _rates(run, counters, spent, games_num, sum(asked), sum(evaluated))
    values |= {"bad_steps_num": int(counters["bad_steps_num"][0]), "rollbacks_num": run.progress.rollbacks}
    values |= {"exchanges_num": int(counters["exchanges_num"][0])}
    values |= {f"{name}_bytes": int(counters[f"{name}_bytes"].sum()) for name in ("exchange", "broadcast")}
    values |= run.playing.engine.figures  # root's
    values |= {"peak_resident_bytes": int(max(peak))}  # of the largest rank since it started
    values |= {f"{name}_by_rank": counters[f"{name}_num"].astype(int).tolist() for name in ("games", "positions")}
    values["playing_s_by_rank"] = counters["playing_s"].round(4).tolist()
    if not run.files.writes_no_more:  # else the iteration is not on disk, and will be done again
        run.report.metrics.write("iteration", run.progress.step, values)
    if run.world.is_root:
        run.setup.callbacks.iteration(values)
        run.report.logger.info(iteration_line(values))
    else:
        run.report.logger.info(_line_of_rank(run.world.rank, values, counters))


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


def _rates(run, counters, spent, games_num, asked_num, evaluated_num):
    """Return the rates of the iteration. spent: {phase_s: seconds}; counters: {count: float64 [ranks]}."""
    play_s, train_s = spent.get("play_s", 0.0), spent["train_s"]
    whole_s = sum(value for name, value in spent.items() if "_idle_" not in name)
    values = {"overhead_share": 1 - (play_s + train_s) / whole_s}
    # Simulations of the ranks that do not train: while the others train, and in the self-play phase.
    meanwhile, alone = counters["meanwhile_num"].sum(), counters["played_num"][run.training.trainers_num :].sum()
    searching_s = play_s + (train_s if meanwhile else 0.0)
    if play_s:  # not in an iteration that was resumed in its training
        values |= {"games_per_s": games_num / searching_s, "simulations_per_s": counters["played_num"].sum() / play_s}
    if meanwhile:
        values["meanwhile_simulations_per_s"] = meanwhile / train_s
    if meanwhile and alone:
        values["meanwhile_share"] = meanwhile / train_s / (alone / play_s)
    if asked_num:
        values["cache_hit_rate"] = 1 - evaluated_num / asked_num
    if asked_num and searching_s:
        values["evaluations_per_s"] = evaluated_num / searching_s
    return values


def _line_of_rank(rank, values, counters):
    games, positions, played, meanwhile = (
        counters[f"{name}_num"][rank] for name in ("games", "positions", "played", "meanwhile")
    )
    text = (
        f"iteration {values['iteration']}: this rank gave {games:.0f} games, {positions:.0f} positions; "
        f"{played + meanwhile:.0f} simulations, {meanwhile:.0f} of them while others trained"
    )
    return "; ".join(filter(None, [text, losses_text(values)]))
