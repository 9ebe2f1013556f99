"""Changes Horovod 0.28.1's sources, in the folder given, for what its last release lacks:

- torch 2.1 and later are C++17, Horovod asks for 14;
- where a rank dies while Horovod starts, the others' MPI calls fail. Horovod looks at none of these results and crashes
  all survivors with a segmentation fault. It shall say that it could not start, and be ready to start again.

Each place must be found exactly as often as it was in that release: another release is not changed by guesswork.
"""

import sys
from pathlib import Path

CONTEXT, HEADER = "horovod/common/mpi/mpi_context.cc", "horovod/common/mpi/mpi_context.h"
CONTROLLER, OPERATIONS = "horovod/common/mpi/mpi_controller.cc", "horovod/common/operations.cc"
CHECKED = """
namespace {

// Passes a new communicator on; there is none, or no usable one, where a rank has died.
void Make(int code, MPI_Comm& comm) {
  if (code != MPI_SUCCESS) {
    comm = MPI_COMM_NULL;
    throw std::runtime_error("MPI failed while Horovod started: " +
                             std::to_string(code));
  }
}

"""
CHECK = """namespace {

void Check(int code) {
  if (code != MPI_SUCCESS) {
    throw std::runtime_error("MPI failed while Horovod started: " +
                             std::to_string(code));
  }
}

} // namespace

"""
LOCAL = """  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, local_comm_ranks_.data(), 1,
                MPI_INT, mpi_ctx_.local_comm);
"""
START = """    global_mpi_context.Initialize(mpi_ctx_manager);
    if (state.control_operation == LibType::MPI) {
      // Initializes global controller
      state.process_set_table.Initialize(global_mpi_context);
    }
"""
GUARDED = f"""    try {{
{START}    }} catch (const std::exception& ex) {{
      LOG(ERROR) << "Horovod could not be initialized: " << ex.what();
      state.process_set_table.Finalize(global_mpi_context, SHUT_DOWN_ERROR);
      global_mpi_context.Finalize(mpi_ctx_manager);
      state.initialization_failed = true;
      return;
    }}
"""
# (file, what is there, what shall be there, how often it is there)
CHANGES = [
    ("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)", 1),
    ("horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)", 1),
    (CONTEXT, "#include <memory>\n", "#include <memory>\n#include <stdexcept>\n#include <string>\n", 1),
    (CONTEXT, "\nnamespace {\n\n", CHECKED, 1),
    (
        CONTEXT,
        "MPI_Comm_dup(MPI_COMM_WORLD, &global_comm);",
        "Make(MPI_Comm_dup(MPI_COMM_WORLD, &global_comm), global_comm);",
        1,
    ),
    (CONTEXT, "MPI_Comm_dup(global_comm, &(mpi_comm));", "Make(MPI_Comm_dup(global_comm, &mpi_comm), mpi_comm);", 2),
    (
        CONTEXT,
        "MPI_Comm_dup(global_context.global_comm, &global_comm);",
        "Make(MPI_Comm_dup(global_context.global_comm, &global_comm), global_comm);",
        1,
    ),
    (
        CONTEXT,
        "MPI_Comm_create_group(global_comm, work_group, 0, &(mpi_comm));",
        "Make(MPI_Comm_create_group(global_comm, work_group, 0, &mpi_comm), mpi_comm);",
        1,
    ),
    (
        CONTEXT,
        "  MPI_Comm_split_type(mpi_comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,\n                      &local_comm);",
        "  Make(MPI_Comm_split_type(mpi_comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,\n"
        "                           &local_comm), local_comm);",
        1,
    ),
    (
        CONTEXT,
        "MPI_Comm_split(mpi_comm, local_rank, all_rank, &cross_comm);",
        "Make(MPI_Comm_split(mpi_comm, local_rank, all_rank, &cross_comm), cross_comm);",
        1,
    ),
    (HEADER, "MPI_Datatype mpi_float16_t;", "MPI_Datatype mpi_float16_t = MPI_DATATYPE_NULL;", 1),
    *[
        (HEADER, f"MPI_Op mpi_float16_{name};", f"MPI_Op mpi_float16_{name} = MPI_OP_NULL;", 1)
        for name in ("sum", "min", "max", "prod")
    ],
    (CONTROLLER, LOCAL, "", 1),
    (
        CONTROLLER,
        """  MPI_Allgather(&local_size_, 1, MPI_INT, local_sizes.data(), 1, MPI_INT,
                mpi_ctx_.mpi_comm);
""",
        f"""  // The one of all ranks first: it fails on every rank where a rank of another host is lost.
  Check(MPI_Allgather(&local_size_, 1, MPI_INT, local_sizes.data(), 1, MPI_INT,
                      mpi_ctx_.mpi_comm));
  Check({LOCAL.strip().removesuffix(";")});
""",
        1,
    ),
    (CONTROLLER, "void MPIController::DoInitialization() {\n", CHECK + "void MPIController::DoInitialization() {\n", 1),
    (OPERATIONS, START, GUARDED, 1),
    (
        OPERATIONS,
        "    // Reset initialization flag\n    horovod_global.initialization_done = false;\n",
        "    // Reset initialization flags\n    horovod_global.initialization_done = false;\n"
        "    horovod_global.initialization_failed = false;\n",
        1,
    ),
    (
        OPERATIONS,
        "  MPI_Comm_dup(comm[0], &global_mpi_context.global_comm);\n",
        "  if (MPI_Comm_dup(comm[0], &global_mpi_context.global_comm) != MPI_SUCCESS) {\n"
        "    global_mpi_context.global_comm = MPI_COMM_NULL;\n    return false;\n  }\n",
        1,
    ),
]


def main(folder):
    for name, there, wanted, times in CHANGES:
        path = Path(folder, name)
        text = path.read_text()
        if text.count(there) != times:
            sys.exit(f"{path}: found {text.count(there)} times, expected {times}:\n{there}")
        path.write_text(text.replace(there, wanted))


if __name__ == "__main__":
    main(sys.argv[1])
