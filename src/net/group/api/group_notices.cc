#include "net/group/api/group_notices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error_code.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

// How long to wait for the store, which answers at once if it is there.
constexpr Duration kPatience = Duration::milliseconds(500);
// The most attempts to gather survivors. An attempt fails if a rank dies during it.
constexpr int kMostAttempts = 4;
constexpr const char* kVoid = "void";

std::vector<int> numbers_in(const std::string& list) {
  std::vector<int> numbers;
  const char* const end = list.data() + list.size();
  for (const char* at = list.data(); at < end;) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return {};
    numbers.push_back(number);
    at = next + 1;
  }
  return numbers;
}

struct Call {
  std::uint32_t number = 0;
  std::uint64_t signature = 0;
  int rank = 0;
  std::string text;
};

// Reads a line of numbers and a text, each followed by a space. False: it is no such line.
template <class... Numbers>
bool read_line(const std::string& line, std::string& text, Numbers&... numbers) {
  const char* at = line.data();
  const char* const end = at + line.size();
  const auto read = [&](auto& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || next == end || *next != ' ') return false;
    at = next + 1;
    return true;
  };
  if (!(read(numbers) && ...)) return false;
  text.assign(at, end);
  return true;
}

// "number signature rank text".
std::optional<Call> call_in(const std::string& line) {
  Call call;
  if (!read_line(line, call.text, call.number, call.signature, call.rank)) return std::nullopt;
  return call;
}

// "code rank text"; the rank is -1 if none is to blame.
std::string line_of(const Error& why) {
  return fmt::format("{} {} {}", static_cast<int>(why.code()), why.rank().value_or(-1),
                     why.message());
}

Error failure_in(const std::string& line) {
  std::uint32_t code = 0;
  int rank = 0;
  std::string text;
  if (!read_line(line, text, code, rank)) return {ErrorCode::kInternal, line};
  return {error_code_of(code), text, rank < 0 ? std::nullopt : std::optional(rank)};
}

}  // namespace

Status GroupNotices::connect(Time until) {
  if (client_) return ok_status();
  THALWEG_TRY(client_, open_(until));
  return ok_status();
}

std::optional<Error> GroupNotices::announced() {
  const Result<std::string> broken = client_->get(key("broken"), monotonic_now());
  return broken.ok() ? std::optional(failure_in(*broken)) : std::nullopt;
}

std::optional<Error> GroupNotices::failure() {
  const std::lock_guard lock(mutex_);
  return connect(monotonic_now() + kPatience).ok() ? announced() : std::nullopt;
}

std::optional<Error> GroupNotices::compare_calls(std::uint32_t number, std::uint64_t signature,
                                                 const std::string& text) {
  const std::lock_guard lock(mutex_);
  const Time until = monotonic_now() + kPatience;
  if (!connect(until).ok()) return std::nullopt;
  if (std::optional<Error> failure = announced()) return failure;
  // One entry serves all operations. It holds the latest call that a rank waits for.
  const Result<std::string> said = client_->get(key("call"), monotonic_now());
  const std::optional<Call> other = said.ok() ? call_in(*said) : std::nullopt;
  if (!other || other->number < number) {
    static_cast<void>(client_->compare_and_set(
        key("call"), said.ok() ? std::optional(*said) : std::nullopt,
        fmt::format("{} {} {} {}", number, signature, rank_, text), until));
    return std::nullopt;
  }
  if (other->number != number || other->signature == signature) return std::nullopt;
  return Error(
      ErrorCode::kMismatch,
      fmt::format(
          "the ranks do not call the same: as operation {}, rank {} calls {}, rank {} calls {}",
          number, other->rank, other->text, rank_, text));
}

void GroupNotices::announce_failure(const Error& why) {
  const std::lock_guard lock(mutex_);
  const Time until = monotonic_now() + kPatience;
  if (!connect(until).ok()) return;
  // The first announcement counts. Without a store there is no rank to tell.
  static_cast<void>(client_->compare_and_set(key("broken"), std::nullopt, line_of(why), until));
}

Result<std::vector<int>> GroupNotices::gather_survivors(int size, Duration window) {
  const std::lock_guard lock(mutex_);
  THALWEG_TRY_STATUS(connect(monotonic_now() + window));
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    THALWEG_TRY(std::optional<std::vector<int>> here, try_gather(attempt, size, window));
    if (!here) continue;
    if (std::ranges::find(*here, rank_) != here->end()) return std::move(*here);
    return Error(ErrorCode::kTimeout,
                 fmt::format("this rank came too late; ranks {} went on without it",
                             fmt::join(*here, ", ")));
  }
  return Error(ErrorCode::kPeerLost,
               fmt::format("ranks died in each of {} attempts to find who is left", kMostAttempts));
}

// Every survivor publishes that it is there. The lowest of those that did within the window makes
// the list, unless another rank was faster, and all read it. If there is no list, because that rank
// died, a rank declares the attempt void. The list and the declaration have one key, and only the
// first to be written counts, so the attempt is void for all or for none.
Result<std::optional<std::vector<int>>> GroupNotices::try_gather(int attempt, int size,
                                                                 Duration window) {
  const std::string prefix = key(fmt::format("survivors/{}/", attempt));
  const std::string list_key = prefix + "list";
  const Time gathered = monotonic_now() + window;
  const Time until = gathered + window;
  THALWEG_TRY_STATUS(client_->set(fmt::format("{}{}", prefix, rank_), "here", until));
  std::vector<int> here;
  for (int r = 0; r < size; ++r) {
    const std::string name = fmt::format("{}{}", prefix, r);
    if (r == rank_ || client_->wait(name, gathered).ok()) here.push_back(r);
  }
  if (here.front() == rank_) {
    THALWEG_TRY([[maybe_unused]] const bool first,
                client_->compare_and_set(list_key, std::nullopt,
                                         fmt::format("{}", fmt::join(here, " ")), until));
  }
  if (!client_->wait(list_key, until).ok()) {
    THALWEG_TRY([[maybe_unused]] const bool first,
                client_->compare_and_set(list_key, std::nullopt, kVoid, until + kPatience));
  }
  THALWEG_TRY(const std::string list, client_->get(list_key, until + kPatience));
  std::vector<int> numbers = numbers_in(list);
  if (numbers.empty()) return std::optional<std::vector<int>>();
  return std::optional(std::move(numbers));
}

}  // namespace thalweg::net
