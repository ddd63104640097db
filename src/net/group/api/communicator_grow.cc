// Newcomers. Each takes a number from a counter in the store, and waits for a word under that
// number. The first rank of a communicator that grows writes it for those that it has not admitted
// before.
#include <fmt/core.h>

#include <charconv>
#include <utility>

#include "net/group/api/communicator_core.h"

namespace thalweg {
namespace {

std::string waiting_key(const std::string& group) { return fmt::format("join/{}/waiting", group); }
std::string admitted_key(const std::string& group) {
  return fmt::format("join/{}/admitted", group);
}
std::string word_key(const std::string& group, std::int64_t newcomer) {
  return fmt::format("join/{}/{}", group, newcomer);
}

}  // namespace

// The word that a newcomer waits for is "rank size group".
Result<Communicator::Core::Members> Communicator::Core::join(net::Job& job,
                                                             const std::string& group, Time until) {
  const std::lock_guard lock(job.mutex);
  THALWEG_TRY(const std::int64_t newcomer, job.client->add(waiting_key(group), 1, until));
  const Result<std::string> word = job.client->get(word_key(group, newcomer), until);
  if (!word.ok()) {
    return word.error().within(fmt::format("nobody has let this newcomer into '{}'", group));
  }
  Members members;
  int size = 0;
  const char* const end = word->data() + word->size();
  const auto rank = std::from_chars(word->data(), end, members.rank);
  const auto count = std::from_chars(std::min(rank.ptr + 1, end), end, size);
  if (count.ptr >= end || size < 1 || members.rank < 0 || members.rank >= size) {
    return Error(ErrorCode::kInternal,
                 fmt::format("the word to newcomers of '{}' makes no sense: '{}'", group, *word));
  }
  members.group.assign(count.ptr + 1, end);
  for (int r = 0; r < size; ++r) members.ranks.push_back(r);
  return members;
}

Result<std::int64_t> Communicator::Core::newcomers(Time until) {
  if (!job_->client) return Error("grow: the process is alone, and has no store to meet others");
  const std::lock_guard lock(job_->mutex);
  THALWEG_TRY(const std::int64_t waiting, job_->client->add(waiting_key(options_.group), 0, until));
  THALWEG_TRY(const std::int64_t admitted,
              job_->client->add(admitted_key(options_.group), 0, until));
  return waiting - admitted;
}

Result<std::unique_ptr<Communicator::Core>> Communicator::Core::grow(std::int64_t newcomers,
                                                                     Time until) {
  Members members = members_;
  members.group = fmt::format("{}+{}", members_.group, ++parts_);
  const int size = size_ + static_cast<int>(newcomers);
  for (int r = size_; r < size; ++r) members.ranks.push_back(r);
  if (rank_ == 0) {
    const std::lock_guard lock(job_->mutex);
    THALWEG_TRY(const std::int64_t admitted,
                job_->client->add(admitted_key(options_.group), newcomers, until));
    for (int r = size_; r < size; ++r) {
      const std::int64_t newcomer = admitted - newcomers + (r - size_) + 1;
      THALWEG_TRY_STATUS(job_->client->set(word_key(options_.group, newcomer),
                                           fmt::format("{} {} {}", r, size, members.group), until));
    }
  }
  CommunicatorOptions options = options_;
  options.topology.clear();
  return make(options, job_, std::move(members), until);
}

}  // namespace thalweg
