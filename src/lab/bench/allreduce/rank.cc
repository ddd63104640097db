#include "lab/bench/allreduce/rank.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "net/io/fd.h"
#include "net/io/system.h"

namespace thalweg::lab::allreduce {
namespace {

constexpr std::array kTypes = {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64};
constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax};

// The number of elements after which a contribution repeats. It is a prime, so that a chunk in the
// wrong place is noticed.
constexpr std::int64_t kPeriod = 1009;

template <class T, std::size_t N>
Result<T> find_named(const std::array<T, N>& all, const std::string& text) {
  std::string names;
  for (const T one : all) {
    if (text == name_of(one)) return one;
    names += (names.empty() ? "" : ", ") + std::string(name_of(one));
  }
  return Error(fmt::format("'{}' is unknown: write one of {}", text, names));
}

// The element that a rank contributes: 1 to 5, or for a product 1 or 2.
std::int64_t value_at(ReduceOp op, int rank, std::int64_t index) {
  const std::int64_t mixed = (index * 31 + rank * std::int64_t{17}) % kPeriod;
  return op == ReduceOp::kProduct ? 1 + mixed % 2 : 1 + mixed % 5;
}

std::int64_t reduced(ReduceOp op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      break;
  }
  return a + b;
}

template <class T>
void append_as(std::vector<std::byte>& bytes, std::int64_t value) {
  const auto typed = static_cast<T>(value);
  const auto* raw = reinterpret_cast<const std::byte*>(&typed);
  bytes.insert(bytes.end(), raw, raw + sizeof(typed));
}

void append(std::vector<std::byte>& bytes, DType type, std::int64_t value) {
  switch (type) {
    case DType::kFloat64:
      return append_as<double>(bytes, value);
    case DType::kInt32:
      return append_as<std::int32_t>(bytes, value);
    case DType::kInt64:
      return append_as<std::int64_t>(bytes, value);
    default:
      return append_as<float>(bytes, value);
  }
}

template <class T>
std::int64_t count_outside_as(const std::vector<std::byte>& tensor, int ranks) {
  constexpr double kRounding = 1e-5;
  std::vector<double> low;
  std::vector<double> high;
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    std::int64_t least = value_at(ReduceOp::kSum, 0, i);
    std::int64_t most = least;
    for (int rank = 1; rank < ranks; ++rank) {
      least = std::min(least, value_at(ReduceOp::kSum, rank, i));
      most = std::max(most, value_at(ReduceOp::kSum, rank, i));
    }
    low.push_back(static_cast<double>(ranks * least) * (1 - kRounding));
    high.push_back(static_cast<double>(ranks * most) * (1 + kRounding));
  }
  std::int64_t outside = 0;
  for (std::size_t i = 0; i < tensor.size() / sizeof(T); ++i) {
    T value = 0;
    std::memcpy(&value, &tensor[i * sizeof(T)], sizeof(T));
    const std::size_t place = i % low.size();
    if (!(value >= low[place] && value <= high[place])) ++outside;
  }
  return outside;
}

template <class ValueAt>
std::vector<std::byte> pattern_of(DType type, const ValueAt& value) {
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < kPeriod; ++i) append(bytes, type, value(i));
  return bytes;
}

// A pattern that the operation does not change, however many ranks contribute it.
std::vector<std::byte> neutral(DType type, ReduceOp op) {
  return pattern_of(type, [&](std::int64_t) { return op == ReduceOp::kSum ? 0 : 1; });
}

// Does what the benchmark says over the socket `control`.
class Server {
 public:
  Server(const Rank& rank, int control)
      : rank_(rank),
        control_(control),
        own_(contribution(rank.type, rank.op, rank.rank)),
        expected_(expectation(rank.type, rank.op, rank.ranks)),
        neutral_(neutral(rank.type, rank.op)) {}

  Status run() {
    say(fmt::format("hello {} {}", rank_.rank, rank_.version));
    std::vector<char> message(kMaxMessage);
    for (;;) {
      const ssize_t got = recv(control_, message.data(), message.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return ok_status();
      const Status done = obey({message.data(), static_cast<std::size_t>(got)});
      if (done.ok()) continue;
      say("failed " + done.error().message());
      return done;
    }
  }

 private:
  void say(const std::string& text) const {
    // A benchmark that is gone is noticed by the next recv(), which ends this rank.
    [[maybe_unused]] const ssize_t sent = send(control_, text.data(), text.size(), MSG_NOSIGNAL);
  }

  Status obey(const std::string& message) {
    std::istringstream words(message);
    std::string verb;
    std::int64_t first = 0;
    int warm_up = 0;
    int calls = 0;
    words >> verb >> first;
    if (verb == "idle") {
      idle(std::chrono::milliseconds(first));
      return ok_status();
    }
    if (verb == "measure" && words >> warm_up >> calls && first > 0 && calls <= kMaxCalls) {
      return measure(first, warm_up, calls);
    }
    return Error(fmt::format("no such message: {}", message));
  }

  void idle(std::chrono::milliseconds time) const {
    const double before = net::processor_seconds_of_process();
    std::this_thread::sleep_for(time);
    const double used = net::processor_seconds_of_process() - before;
    say(fmt::format("idle {:.6f}", used / std::chrono::duration<double>(time).count()));
  }

  // Makes one call and counts the elements of its result that are wrong.
  Result<std::int64_t> check(std::int64_t elements) {
    fill(tensor_, own_);
    THALWEG_TRY_STATUS(rank_.allreduce(tensor_.data(), elements));
    if (rank_.lossy) return count_outside(tensor_, rank_.type, rank_.ranks);
    return count_wrong(tensor_, expected_, rank_.type);
  }

  Status measure(std::int64_t elements, int warm_up, int calls) {
    tensor_.resize(static_cast<std::size_t>(elements) * size_of(rank_.type));
    THALWEG_TRY(std::int64_t wrong, check(elements));
    fill(tensor_, neutral_);
    for (int i = 0; i < warm_up; ++i) {
      THALWEG_TRY_STATUS(rank_.allreduce(tensor_.data(), elements));
    }
    std::vector<std::int64_t> times(static_cast<std::size_t>(calls));
    for (std::int64_t& ns : times) {
      const auto start = std::chrono::steady_clock::now();
      THALWEG_TRY_STATUS(rank_.allreduce(tensor_.data(), elements));
      ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    }
    wrong += count_wrong(tensor_, neutral_, rank_.type);
    THALWEG_TRY(const std::int64_t wrong_after, check(elements));
    std::string answer = fmt::format("measured {}", wrong + wrong_after);
    for (const std::int64_t ns : times) answer += fmt::format(" {}", ns);
    say(answer);
    return ok_status();
  }

  const Rank& rank_;
  int control_;
  std::vector<std::byte> own_;
  std::vector<std::byte> expected_;
  std::vector<std::byte> neutral_;
  std::vector<std::byte> tensor_;
};

Result<net::Fd> connect_to_benchmark() {
  const char* path = std::getenv(kControlVariable);  // NOLINT(concurrency-mt-unsafe): none is set
  if (path == nullptr) {
    return Error(fmt::format("{} is not set: `thalweg bench allreduce` starts this program",
                             kControlVariable));
  }
  THALWEG_TRY(const sockaddr_un address, socket_name(path));
  net::Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid() ||
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return net::system_error(fmt::format("cannot connect to {}", path), errno);
  }
  return fd;
}

}  // namespace

Result<sockaddr_un> socket_name(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(fmt::format("{} is too long for the name of a socket: set TMPDIR", path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<DType> parse_type(const std::string& text) { return find_named(kTypes, text); }
Result<ReduceOp> parse_op(const std::string& text) { return find_named(kOps, text); }

std::vector<std::byte> contribution(DType type, ReduceOp op, int rank) {
  return pattern_of(type, [&](std::int64_t i) { return value_at(op, rank, i); });
}

std::vector<std::byte> expectation(DType type, ReduceOp op, int ranks) {
  return pattern_of(type, [&](std::int64_t i) {
    std::int64_t value = value_at(op, 0, i);
    for (int rank = 1; rank < ranks; ++rank) value = reduced(op, value, value_at(op, rank, i));
    return value;
  });
}

void fill(std::vector<std::byte>& tensor, const std::vector<std::byte>& pattern) {
  for (std::size_t at = 0; at < tensor.size(); at += pattern.size()) {
    std::memcpy(&tensor[at], pattern.data(), std::min(pattern.size(), tensor.size() - at));
  }
}

std::int64_t count_wrong(const std::vector<std::byte>& tensor,
                         const std::vector<std::byte>& pattern, DType type) {
  const std::size_t element = size_of(type);
  std::int64_t wrong = 0;
  for (std::size_t at = 0; at < tensor.size(); at += pattern.size()) {
    const std::size_t size = std::min(pattern.size(), tensor.size() - at);
    if (std::memcmp(&tensor[at], pattern.data(), size) == 0) continue;
    for (std::size_t i = 0; i < size; i += element) {
      if (std::memcmp(&tensor[at + i], &pattern[i], element) != 0) ++wrong;
    }
  }
  return wrong;
}

std::int64_t count_outside(const std::vector<std::byte>& tensor, DType type, int ranks) {
  return type == DType::kFloat64 ? count_outside_as<double>(tensor, ranks)
                                 : count_outside_as<float>(tensor, ranks);
}

Status serve(const Rank& rank) {
  THALWEG_TRY(const net::Fd control, connect_to_benchmark());
  return Server(rank, control.get()).run();
}

}  // namespace thalweg::lab::allreduce
