# `make` lists what there is to do. NP, CONFIG and LOGDIR can be given: make train NP=4 CONFIG=configs/connect4.json
# PYTHON and MPI_HOME can be given to any target that sets up; tools/setup.sh says what they do.

NP ?= 2
CONFIG ?= configs/connect4_quick.json
LOGDIR ?= runs/$(notdir $(basename $(CONFIG)))
TESTS ?= tests
WORKERS ?= 2
BENCH_RUN ?=
HOURS ?= 8
ITERATIONS ?= 10000
FAULTS ?= 1000

# The set-up's python and mpirun come first, also for the tests, which call mpirun themselves.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Open MPI refuses to run as root unless told twice.
ifeq ($(shell id -u),0)
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
endif

.PHONY: help setup train test test-rest test-all test-long test-cluster test-mpich test-docker faults faults-long endurance bench lint clean

help: ## list the targets (this is the default)
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' Makefile

setup: ## make .venv: packages, MPI, Horovod (MPI_HOME=/path/to/mpi: with your site's MPI)
	@tools/setup.sh

train: setup ## set up and train with NP ranks on this machine (NP=2 CONFIG=... LOGDIR=...)
	mpirun -np $(NP) -H localhost:$(NP) python run_dist.py --config_file $(CONFIG) --logdir $(LOGDIR)

test: setup ## set up and run the quick tests: units, a run on 2 ranks, a resume, a lost rank (5 to 6 minutes on 2 cores)
	python -m pytest $(TESTS) -q -n $(WORKERS) -m "quick and not slow" --durations=10

# MPI jobs and tests on hosts of their own wait a good deal. Two at a time hardly slow each other down; .ci/run takes five
# (WORKERS=5), of which each is slower and all together are done sooner.
test-rest: setup ## the tests that `make test` leaves out: real processes, MPI jobs, faults, hosts, documents (20 to 25 minutes)
	python -m pytest $(TESTS) -q -n $(WORKERS) -m "not quick and not slow" --durations=25

test-all: test test-rest ## both

test-long: setup ## longer forms of those tests: all commands of the documents, more faults, what the configurations reach
	python -m pytest $(TESTS) -q -m slow

test-cluster: setup ## the tests on hosts and a Slurm of their own: root, and the Debian packages that .ci/run installs
	python -m pytest tests/cluster -q

test-mpich: setup ## the tests of worlds and backends under MPICH, from .venv-mpich (docs/site.md)
	tools/setup_mpich.sh
	.venv-mpich/bin/python -m pytest tests/mpi/test_world.py tests/mpi/test_backends.py -q

test-docker: ## build docker/Dockerfile and train on 2 ranks in it (docker, podman, or as root buildah; docs/site.md)
	tools/test_docker.sh

faults: setup ## ranks killed and stopped in a sample of trials (4 minutes; make test-rest has it too)
	python -m pytest tests/faults -q

faults-long: setup ## random trials for HOURS=8; their counts go to docs/fault_trials.csv, each result to faults.jsonl
	python tests/faults/long.py --hours $(HOURS)

endurance: setup ## one run of ITERATIONS=10000 with FAULTS=1000 in runs/endurance: memory, open files, nothing lost (2 hours)
	python tests/faults/endurance.py --iterations $(ITERATIONS) --faults $(FAULTS) --folder runs/endurance

bench: setup ## every benchmark (25 to 50 minutes); BENCH_RUN=RUN: self-play with that run's network
	python benchmarks/search.py
	python benchmarks/engines.py
	python benchmarks/blocks.py --seconds 10
	python benchmarks/selfplay.py $(if $(BENCH_RUN),--run $(BENCH_RUN))
	python benchmarks/one_game.py $(if $(BENCH_RUN),--run $(BENCH_RUN))
	python benchmarks/train.py
	python benchmarks/segments.py
	mpirun -np $(NP) -H localhost:$(NP) python benchmarks/exchange.py
	python benchmarks/weights.py --networks 5x64
	python benchmarks/memory.py --iterations 300
	python benchmarks/actions.py
	python benchmarks/rules.py --runs 1
	python benchmarks/startup.py --cold_runs 1
	python benchmarks/file_system.py --ranks 1,2
	python benchmarks/faults.py --iterations 5
	python benchmarks/copies.py
	python benchmarks/scaling.py --ranks 1,2,4,8

lint: setup ## check the style (ruff) and the types (mypy)
	ruff check .
	ruff format --check .
	mypy
	mypy --check-untyped-defs --follow-imports silent benchmarks

clean: ## remove .venv and caches; runs, and wheels already built, stay
	rm -rf .venv .venv-mpich .pytest_cache .ruff_cache .mypy_cache build *.egg-info
	find . -name __pycache__ -type d -not -path './runs/*' -prune -exec rm -rf {} +
