// One rank of `thalweg bench allreduce`, for any library: a process that the benchmark tells over a
// local socket what to measure. This is linked into `thalweg` and into the peers written in C++;
// bench/allreduce/gloo_rank.py does the same in Python.
//
// The socket keeps messages apart (SOCK_SEQPACKET). Each message is a line of text:
//
//   hello RANK VERSION              from the rank, when it is ready
//   measure ELEMENTS WARM_UP CALLS  to it; the answer is
//   measured WRONG NS NS …          how many elements were wrong, and the time of each call in ns
//   idle MILLISECONDS               to it: do nothing; the answer is
//   idle SHARE                      processor seconds per second
//   failed WHY                      from the rank, instead of any answer
//
// When the socket is closed, the rank ends.
//
// Results are checked before and after the calls that are timed. The timed calls work on values
// that the operation does not change, so that none overflows however often the buffer is reduced.
#pragma once

#include <sys/un.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <thalweg/result.h>
#include <thalweg/types.h>

namespace thalweg::lab::allreduce {

// The environment variable that holds the path of the socket.
inline constexpr const char* kControlVariable = "THALWEG_BENCH_CONTROL";
// The most calls in one message: the times of more would not fit.
inline constexpr int kMaxCalls = 4096;
inline constexpr std::size_t kMaxMessage = std::size_t{128} << 10;
// The most ranks. The product of so many contributions is still exact in every type.
inline constexpr int kMaxRanks = 30;

// The address of a local socket; an error if the path is too long.
Result<sockaddr_un> socket_name(const std::string& path);

// The type or operation of this name, if all libraries have it.
Result<DType> parse_type(const std::string& text);
Result<ReduceOp> parse_op(const std::string& text);

// What a rank contributes, and what must come out. Each is the bytes of a pattern of elements that
// repeats.
std::vector<std::byte> contribution(DType type, ReduceOp op, int rank);
std::vector<std::byte> expectation(DType type, ReduceOp op, int ranks);
// fill() fills `tensor` with the repeated pattern. count_wrong() counts the elements that differ
// from it.
void fill(std::vector<std::byte>& tensor, const std::vector<std::byte>& pattern);
std::int64_t count_wrong(const std::vector<std::byte>& tensor,
                         const std::vector<std::byte>& pattern, DType type);

// Counts the elements that cannot be right after a sum of floats over a transport that may lose:
// each must be the average over some of the contributions, times the number of ranks.
std::int64_t count_outside(const std::vector<std::byte>& tensor, DType type, int ranks);

struct Rank {
  int rank = 0;
  int ranks = 1;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool lossy = false;   // the transport may lose elements
  std::string version;  // of the library
  // Reduces in place, and returns when it is done.
  std::function<Status(void* data, std::int64_t elements)> allreduce;
};
// Does what the benchmark says until it closes the socket.
Status serve(const Rank& rank);

}  // namespace thalweg::lab::allreduce
