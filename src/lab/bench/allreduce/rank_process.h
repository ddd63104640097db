// The process of one rank that `thalweg bench allreduce` starts from this program: a rank of
// Thalweg, or one of plain sockets (bare.h).
#pragma once

#include <string>

#include <thalweg/result.h>

namespace thalweg::lab::allreduce {

// The arguments of the process, as the benchmark gives them (libraries.cc).
struct RankArguments {
  std::string type;
  std::string op;
  std::string transport = "tcp";  // tcp, shm or dlcp
  std::string scheme;             // empty: chosen by size
  std::string topology;           // what the planner is to know of the network
  double bound = 0;               // of DLCP's loss
  double rate_gbps = 0;           // of the links, where it is known
  bool bare = false;              // plain sockets; the arguments after `op` do not matter then
};

// Meets the other ranks, and does what the benchmark says (rank.h) until it ends the connection.
[[nodiscard]] Status serve_rank(const RankArguments& arguments);

}  // namespace thalweg::lab::allreduce
