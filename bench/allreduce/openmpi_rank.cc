// A rank of `thalweg bench allreduce --against openmpi`: MPI_Allreduce, started by mpirun.
//   thalweg_openmpi_rank TYPE OP
#include <fmt/core.h>
#include <mpi.h>
#include <sys/prctl.h>

#include <array>
#include <csignal>
#include <cstdio>

#include "lab/bench/allreduce/rank.h"

namespace thalweg::lab::allreduce {
namespace {

MPI_Datatype mpi_type(DType type) {
  switch (type) {
    case DType::kFloat64:
      return MPI_DOUBLE;
    case DType::kInt32:
      return MPI_INT32_T;
    case DType::kInt64:
      return MPI_INT64_T;
    default:
      return MPI_FLOAT;
  }
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProduct:
      return MPI_PROD;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kMax:
      return MPI_MAX;
    default:
      return MPI_SUM;
  }
}

Status run(const char* type, const char* op) {
  Rank rank;
  THALWEG_TRY(rank.type, parse_type(type));
  THALWEG_TRY(rank.op, parse_op(op));
  MPI_Comm_rank(MPI_COMM_WORLD, &rank.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank.ranks);
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  rank.version = std::string(version.data());
  rank.version = rank.version.substr(0, rank.version.find(','));
  rank.allreduce = [type_there = mpi_type(rank.type), op_there = mpi_op(rank.op)](
                       void* data, std::int64_t elements) -> Status {
    const int code = MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(elements), type_there,
                                   op_there, MPI_COMM_WORLD);
    if (code == MPI_SUCCESS) return ok_status();
    return Error(fmt::format("MPI_Allreduce: error {}", code));
  };
  return serve(rank);
}

}  // namespace
}  // namespace thalweg::lab::allreduce

int main(int argc, char** argv) {
  // The parent is mpirun or one of its daemons. This rank must not outlive it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MPI_Init(&argc, &argv);
  if (argc != 3) {
    std::fputs("thalweg_openmpi_rank: write TYPE OP\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (const auto done = thalweg::lab::allreduce::run(argv[1], argv[2]); !done.ok()) {
    fmt::print(stderr, "thalweg_openmpi_rank: {}\n", done.error().message());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Finalize();
}
