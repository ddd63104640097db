#include "net/collective/blackboard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "net/system.h"

namespace thalweg {
namespace {

// The store answers at once, or it is not there.
constexpr Duration kPatience = Duration::milliseconds(500);
// Of gathering survivors: each ends by another death in the midst of it.
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

// "number signature rank text".
std::optional<Call> call_in(const std::string& line) {
  Call call;
  const char* at = line.data();
  const char* const end = at + line.size();
  const auto read = [&](auto& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || next == end || *next != ' ') return false;
    at = next + 1;
    return true;
  };
  if (!read(call.number) || !read(call.signature) || !read(call.rank)) return std::nullopt;
  call.text.assign(at, end);
  return call;
}

}  // namespace

Status Blackboard::connect(Time until) {
  if (client_) return ok_status();
  THALWEG_TRY(client_, open_(until));
  return ok_status();
}

std::optional<std::string> Blackboard::compare_calls(std::uint32_t number, std::uint64_t signature,
                                                     const std::string& text) {
  const std::lock_guard lock(mutex_);
  const Time until = monotonic_now() + kPatience;
  if (!connect(until).ok()) return std::nullopt;
  if (Result<std::string> broken = client_->get(key("broken"), monotonic_now()); broken.ok()) {
    return std::move(*broken);
  }
  // One entry for all operations: of the latest that a rank waits for.
  const Result<std::string> said = client_->get(key("call"), monotonic_now());
  const std::optional<Call> other = said.ok() ? call_in(*said) : std::nullopt;
  if (!other || other->number < number) {
    static_cast<void>(client_->compare_and_set(
        key("call"), said.ok() ? std::optional(*said) : std::nullopt,
        fmt::format("{} {} {} {}", number, signature, rank_, text), until));
    return std::nullopt;
  }
  if (other->number != number || other->signature == signature) return std::nullopt;
  return fmt::format(
      "the ranks do not call the same: as operation {}, rank {} calls {}, rank {} calls {}", number,
      other->rank, other->text, rank_, text);
}

void Blackboard::announce_failure(const std::string& text) {
  const std::lock_guard lock(mutex_);
  const Time until = monotonic_now() + kPatience;
  if (!connect(until).ok()) return;
  // The first one counts; without a store there is nobody to tell.
  static_cast<void>(client_->compare_and_set(key("broken"), std::nullopt, text, until));
}

Result<std::vector<int>> Blackboard::gather_survivors(int size, Duration window) {
  const std::lock_guard lock(mutex_);
  THALWEG_TRY_STATUS(connect(monotonic_now() + window));
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    THALWEG_TRY(std::optional<std::vector<int>> here, try_gather(attempt, size, window));
    if (!here) continue;
    if (std::ranges::find(*here, rank_) != here->end()) return std::move(*here);
    return Error(fmt::format("this rank came too late; ranks {} went on without it",
                             fmt::join(*here, ", ")));
  }
  return Error(fmt::format("ranks died in each of {} attempts to find who is left", kMostAttempts));
}

// Every survivor says that it is there. The lowest of those that did within the window makes the
// list, unless another was faster; all read it. If it does not come, because that rank died, the
// attempt is void for all: of the list and the word that it is void, only the first is written.
Result<std::optional<std::vector<int>>> Blackboard::try_gather(int attempt, int size,
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

}  // namespace thalweg
