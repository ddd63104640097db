// One rank of `thalweg bench allreduce`, whatever the library: a process that the benchmark tells
// over a local socket what to measure. Linked into `thalweg` and into the peers written in C++;
// bench/allreduce/gloo_rank.py says the same in Python.
//
// The socket keeps messages apart (SOCK_SEQPACKET); each is a line of text:
//
//   hello RANK VERSION              from the rank, when it is ready
//   measure ELEMENTS WARM_UP CALLS  to it; the answer is
//   measured WRONG NS NS …          elements that were wrong, and the time of each call
//   idle MILLISECONDS               to it: do nothing; the answer is
//   idle SHARE                      processor seconds a second
//   failed WHY                      from the rank, instead of any answer
//
// The end of the socket is the end of the rank.
//
// Results are checked before and after the calls that count. Those work on values that the
// operation leaves as they are, so that none overflows however often the same buffer is reduced.
#pragma once

#include <sys/un.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <thalweg/result.h>
#include <thalweg/types.h>

namespace thalweg::allreduce {

// The environment variable that holds the path of the socket.
inline constexpr const char* kControlVariable = "THALWEG_BENCH_CONTROL";
// A message with the times of more calls would not fit.
inline constexpr int kMaxCalls = 4096;
inline constexpr std::size_t kMaxMessage = std::size_t{128} << 10;
// Small numbers stay exact in every type, also as the product of so many.
inline constexpr int kMaxRanks = 30;

// A local socket's name; an error if it is too long.
Result<sockaddr_un> socket_name(const std::string& path);

// Types and operations that all libraries have.
Result<DType> parse_type(const std::string& text);
Result<ReduceOp> parse_op(const std::string& text);

// What a rank contributes, and what must come out, as bytes of some elements that repeat.
std::vector<std::byte> contribution(DType type, ReduceOp op, int rank);
std::vector<std::byte> expectation(DType type, ReduceOp op, int ranks);
// Fills `tensor` with a pattern, and counts the elements that differ from it.
void fill(std::vector<std::byte>& tensor, const std::vector<std::byte>& pattern);
std::int64_t count_wrong(const std::vector<std::byte>& tensor,
                         const std::vector<std::byte>& pattern, DType type);

// The same where each element may be the average over any of the contributions, times their number:
// a sum of floats over a transport that may lose.
std::int64_t count_outside(const std::vector<std::byte>& tensor, DType type, int ranks);

struct Rank {
  int rank = 0;
  int ranks = 1;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool lossy = false;
  std::string version;  // of the library
  // In place, until it is done.
  std::function<Status(void* data, std::int64_t elements)> allreduce;
};
// Does what it is told until the socket ends.
Status serve(const Rank& rank);

}  // namespace thalweg::allreduce
