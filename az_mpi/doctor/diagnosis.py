"""Checks of MPI, mpirun, libraries and versions. Pure functions from the facts of all ranks, see `facts.gather`."""

import re
from typing import Any

from az_mpi.core.host_facts import SAME_PACKAGES
from az_mpi.core.printing import counted
from az_mpi.doctor.checks import OK, PROBLEM, WARNING, Check, Ranks, ranks_in_words

SLOW_IMPORT_S = 60.0
# A survivor that makes a communicator when it hears of a loss crashes in these versions: ompi_comm_revoke_local uses
# collectives (c_coll) that the communicator does not have yet. Other versions of 5.0 were not seen to crash.
CRASHING_OPEN_MPI = ("5.0.10", "5.0.11")
REQUIRED = ("numpy", "numba", "h5py", "pydantic", "safetensors", "psutil", "mpi4py", "torch")
CURES = {
    "mpi4py": "make setup, or pip install mpi4py with an MPI on PATH; `which python` should be that of .venv",
    "torch": "make setup installs the version of requirements.txt; the C library and the processor must fit it",
    "horovod": 'make setup builds it (INSTALL.md, By hand); without it train.backend "auto" takes torch.distributed',
}
MUST_AGREE = ("az_mpi", "sources", "python", "MPI", *SAME_PACKAGES)  # other differences are only reported


def same_mpi(vendor: str, version: str, words: str) -> bool | None:
    """Return whether a launcher whose --version prints `words` is of the MPI (vendor, version); None: unknown."""
    if found := re.search(r"\(Open MPI\) v?([\d.]+)", words):
        return vendor == "Open MPI" and _numbers(found[1]) == _numbers(version)
    if "Intel(R) MPI" in words:
        return vendor == "Intel MPI"
    if found := re.search(r"HYDRA.*?Version:\s*([\d.]+)", words):
        # Relatives of MPICH have version numbers of their own.
        if vendor == "MPICH":
            return _numbers(found[1]) == _numbers(version)
        return False if vendor == "Open MPI" else None
    return None


def _numbers(version):
    """Return the numbers of a version without zeros at its end: 4.0 and 4.0.0 are the same."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def mpi(ranks: Ranks, why_alone: str | None) -> list[Check]:
    """Check MPI itself. why_alone: why no MPI job could be joined, or None."""
    if why_alone:
        cure = CURES["mpi4py"] if "error" in ranks[0]["libraries"]["mpi4py"] else "start it with the mpirun of that MPI"
        return [Check("mpi", PROBLEM, why_alone, cure)]
    facts = [rank["libraries"]["mpi4py"] for rank in ranks]
    if broken := [k for k, one in enumerate(facts) if "error" in one]:
        return [Check("mpi", PROBLEM, f"{ranks_in_words(broken)}: {facts[broken[0]]['error']}", CURES["mpi4py"])]
    first = facts[0]
    num_hosts = len({rank["host"] for rank in ranks})
    found = [
        Check(
            "mpi",
            OK,
            f"{first['vendor']} {first['mpi_version']} (MPI {first['standard']}), mpi4py "
            f"{first['version']}: {counted(len(ranks), 'rank')} on "
            f"{counted(num_hosts, 'host')}; {', '.join(first['libraries']) or 'its library cannot be seen'}",
        )
    ]
    if low := [k for k, one in enumerate(facts) if one["thread_level"] != "THREAD_MULTIPLE"]:
        found.append(
            Check(
                "thread_level",
                PROBLEM,
                f"MPI offers {ranks_in_words(low)} only "
                f"{facts[low[0]]['thread_level']}; the run's threads need THREAD_MULTIPLE",
                "unset MPI4PY_RC_THREAD_LEVEL, or an MPI that was built with it",
            )
        )
    else:
        found.append(Check("thread_level", OK, "THREAD_MULTIPLE, which the run's threads need"))
    crashing = [one["mpi_version"] for one in facts if one["mpi_version"] in CRASHING_OPEN_MPI]
    if all(one["ulfm_on"] for one in facts) and crashing:
        return [
            *found,
            Check(
                "ulfm",
                WARNING,
                f"ULFM is on, but Open MPI {crashing[0]} can itself crash in the "
                "survivors where a rank is lost while they make a communicator: the job ends then",
                "Open MPI 5.0.9, which make setup installs; or let launch start the job again",
            ),
        ]
    if not all(one["ulfm"] for one in facts):
        words = "no ULFM in this MPI: a lost rank ends the job, which then resumes from its checkpoint"
    elif all(one["ulfm_on"] for one in facts):
        words = "ULFM is on: survivors can continue when a rank is lost"
    else:
        words = "ULFM is available but off: with mpirun --with-ft ulfm survivors can continue when a rank is lost"
    return [*found, Check("ulfm", OK, words)]


def launcher(ranks: Ranks, started_by: str | None) -> list[Check]:
    """Check what can start ranks. started_by: the launcher that started this job, or None."""
    tool = ranks[0]["mpirun"]
    found = Check(
        "started_by",
        OK,
        f"this job was started by {started_by}"
        if started_by
        else "started alone, without a launcher: a job of one rank",
    )
    if not tool and started_by == "srun":
        return [found]
    return [found, _mpirun(tool, ranks[0]["libraries"]["mpi4py"], started_by)]


def _mpirun(tool, mpi4py, started_by):
    """Check the mpirun on PATH; it need not be the one that started this job."""
    bad = WARNING if started_by else PROBLEM
    if tool is None:
        return Check("mpirun", WARNING, "mpirun is not on PATH", "source .venv/bin/activate, or load your MPI's module")
    if "error" in tool:
        return Check(
            "mpirun",
            bad,
            f"{tool['path']} does not start: {tool['error']}",
            "unload the module that is in its way, or use another mpirun",
        )
    name = tool["version"].partition(" Report")[0][:60]
    if "error" in mpi4py:
        return Check("mpirun", OK, f"{tool['path']}: {name}")
    own = f"{mpi4py['vendor']} {mpi4py['mpi_version']}"
    same = same_mpi(mpi4py["vendor"], mpi4py["mpi_version"], tool["version"])
    if same is False:
        kin = mpi4py["vendor"] in tool["version"]  # another version often works; a job that it has started shows that
        return Check(
            "mpirun",
            WARNING if kin else bad,
            f"{tool['path']} is not of mpi4py's MPI, {own}: {name}; it "
            f"{'may' if kin else 'would'} start N jobs of one rank each",
            "put the mpirun of mpi4py's MPI first on PATH (source .venv/bin/activate)",
        )
    known = f"of mpi4py's MPI, {own}" if same else f"it is unknown whether it is of mpi4py's MPI, {own}"
    return Check("mpirun", OK, f"{tool['path']}: {known}")


def libraries(ranks: Ranks, backend: str) -> list[Check]:
    """Check what could be imported. backend: the key `train.backend`; a library of that name is needed."""
    found = []
    for name in ("numpy", *[name for name in ranks[0]["libraries"] if name != "numpy"]):
        facts = [rank["libraries"][name] for rank in ranks]
        broken = [k for k, one in enumerate(facts) if "error" in one]
        needed = name in REQUIRED or name == backend
        if broken:
            found.append(
                Check(
                    name,
                    PROBLEM if needed else OK if name == "openvino" else WARNING,
                    f"{name} cannot be imported on {ranks_in_words(broken)} "
                    f"({ranks[broken[0]]['executable']}): {facts[broken[0]]['error']}",
                    CURES.get(name, "make setup installs it"),
                )
            )
        slow = [k for k, one in enumerate(facts) if one.get("import_s", 0) > SLOW_IMPORT_S]
        if slow:
            found.append(
                Check(
                    f"{name}_import",
                    WARNING,
                    f"importing {name} took {facts[slow[0]]['import_s']:.0f} s "
                    f"on {ranks_in_words(slow)}: many small files from a slow file system",
                    "keep the environment in a container or on each host's own disk",
                )
            )
    whole = [name for name in ranks[0]["libraries"] if not any("error" in rank["libraries"][name] for rank in ranks)]
    names = [f"{name} {ranks[0]['libraries'][name]['version']}" for name in whole]
    return [Check("libraries", OK, f"imported: {', '.join(names) or 'nothing'}"), *found]


def horovod(ranks: Ranks, backend: str) -> list[Check]:
    """Check what Horovod reduces with, and whether its MPI is mpi4py's."""
    facts = [rank["libraries"]["horovod"] for rank in ranks]
    if any("error" in one for one in facts):
        return []  # reported by `libraries`
    bad = PROBLEM if backend == "horovod" else WARNING
    built = facts[0]["built"]
    if without := [k for k, one in enumerate(facts) if "mpi" not in one["built"]]:
        found = [
            Check(
                "horovod_build",
                bad,
                f"Horovod on {ranks_in_words(without)} was built without MPI (it has "
                f"{', '.join(facts[without[0]]['built']) or 'nothing'})",
                "HOROVOD_WITH_MPI=1, as make setup builds it",
            )
        ]
    else:
        gpus = "NCCL" if "nccl" in built else "MPI" if "cuda" in built else "nothing (it was built without CUDA)"
        found = [
            Check(
                "horovod_build",
                OK,
                f"Horovod {facts[0]['version']} reduces tensors of processors with MPI, of GPUs with {gpus}",
            )
        ]
    if mixed := [k for k, one in enumerate(facts) if len(one["libraries"]) > 1]:
        found.append(
            Check(
                "horovod_mpi",
                bad,
                f"Horovod and mpi4py use different MPI libraries on "
                f"{ranks_in_words(mixed)}: {', '.join(facts[mixed[0]]['libraries'])}",
                "build both against one MPI: make setup MPI_HOME=/path/to/mpi; look at LD_LIBRARY_PATH",
            )
        )
    elif not without:
        found.append(
            Check(
                "horovod_mpi",
                OK,
                "Horovod's MPI is mpi4py's: one library is mapped, "
                f"{', '.join(facts[0]['libraries']) or 'of unknown name'}",
            )
        )
    return found


def versions(ranks: Ranks, backend: str) -> tuple[list[Check], list[tuple]]:
    """Check whether the versions of all ranks agree; return (checks, rows of a table, the heading first).

    backend: the key `train.backend`. Unless it asks for Horovod, some ranks may lack that."""
    all_rows = [version_rows(rank) for rank in ranks]
    kinds: list[dict[str, str]] = []  # rows that differ from each other
    for rows in all_rows:
        if rows not in kinds:
            kinds.append(rows)
    alike = [[k for k, rows in enumerate(all_rows) if rows == kind] for kind in kinds]  # ranks with equal rows
    differing = [name for name in kinds[0] if len({kind[name] for kind in kinds}) > 1]
    table: list[tuple] = [("", *map(ranks_in_words, alike))]
    table += [(f"{'!' if name in differing else ' '} {name}", *[kind[name] for kind in kinds]) for name in kinds[0]]
    fatal = [
        name
        for name in differing
        if name in MUST_AGREE
        and not (name == "horovod" and backend != name and "missing" in [kind[name] for kind in kinds])
    ]
    if fatal:
        cure = "the same checkout and the same .venv under the same path on every host; mpirun -x PATH -x PYTHONPATH"
        return [Check("versions", PROBLEM, f"ranks differ in {', '.join(fatal)} (marked ! below)", cure)], table
    if differing:
        return [
            Check(
                "versions",
                WARNING,
                f"ranks differ in {', '.join(differing)} (marked ! below)",
                "harmless if intended, as with hosts of two kinds",
            )
        ], table
    return [Check("versions", OK, "every rank has the same" if len(ranks) > 1 else "one rank")], table


def version_rows(rank: dict[str, Any]) -> dict[str, str]:
    """Return {what: version} of a rank."""
    libraries = rank["libraries"]
    mpi4py = libraries["mpi4py"]
    rows = {name: rank[name] for name in ("az_mpi", "sources", "python")}
    rows["MPI"] = "missing" if "error" in mpi4py else f"{mpi4py['vendor']} {mpi4py['mpi_version']}"
    rows |= {name: facts.get("version", "missing") for name, facts in libraries.items()}
    return rows | {name: rank[name] for name in ("libc", "kernel", "processor")}
