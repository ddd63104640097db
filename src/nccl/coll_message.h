// What the ranks of a CollNet communicator tell each other. Every rank has one stream to rank 0
// (rendezvous.h), on which both send JSON objects, one per line:
//
//   is        from       fields
//   member    rank r     rank, ranks, address: where the rank's ATP node receives packets
//   job       rank 0     job: what the ranks of an ATP job must agree on (net/atp/job_message.h);
//                        members: the addresses of all ranks
//   report    rank r     posted, finished: calls so far; calls: a number made of all posted ones
//   finished  rank 0     count: calls that all ranks have finished
//   failure   rank 0     error, code: why the communicator is broken
//   bye       both       finished: the rank closes the communicator after so many calls
//
// The first line of a rank is a member, and the first of rank 0 a job or a failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <thalweg/result.h>

#include "net/atp/job_message.h"

namespace thalweg::nccl {

// A longer line is an error.
inline constexpr std::size_t kMaxCollLine = std::size_t{1} << 16;

struct CollMember {
  int rank = 0;
  int ranks = 0;
  std::string address;  // numeric "host:port"
  bool operator==(const CollMember&) const = default;
};
struct CollJob {
  net::AtpJob job;
  std::vector<std::string> members;  // numeric "host:port", by rank; at least 1
  bool operator==(const CollJob&) const = default;
};
struct CollReport {
  std::uint64_t posted = 0;
  std::uint64_t finished = 0;
  std::uint64_t calls = 0;
  bool operator==(const CollReport&) const = default;
};
struct CollFinished {
  std::uint64_t count = 0;
  bool operator==(const CollFinished&) const = default;
};
struct CollFailure {
  ErrorCode code = ErrorCode::kInternal;
  std::string error;
  bool operator==(const CollFailure&) const = default;
};
struct CollBye {
  std::uint64_t finished = 0;
  bool operator==(const CollBye&) const = default;
};
using CollMessage =
    std::variant<CollMember, CollJob, CollReport, CollFinished, CollFailure, CollBye>;

// With its newline.
[[nodiscard]] std::string coll_line_of(const CollMessage& message);
// `line`: without its newline. Errors name the field, its value and what is allowed.
[[nodiscard]] Result<CollMessage> coll_message_from(std::string_view line);

}  // namespace thalweg::nccl
