// Serves counters of this process's communicators over HTTP, in Prometheus' text format, from a
// thread of its own. It exists only if THALWEG_METRICS gives an address ("host:port"; ":9464"
// listens on the loopback address). Each process of a host listens at that port plus its local
// rank.
//
// A process has at most one Metrics object, shared by its communicators. Counters never decrease
// while a communicator lives.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

#include "net/group/operation/operation.h"
#include "net/io/fd.h"
#include "net/io/home_process.h"
#include "net/job/scrape_server.h"
#include "wire/authenticate.h"

namespace thalweg::net {

// What readers of a job with this key send: 32 hexadecimal digits, which say nothing of the key.
[[nodiscard]] std::string metrics_token(const wire::JobKey& key);

class Metrics : public std::enable_shared_from_this<Metrics> {
 public:
  // The Metrics of this process; the first call makes it. `setting`: the value of THALWEG_METRICS.
  // With a job key readers need metrics_token().
  static Result<std::shared_ptr<Metrics>> of_process(const std::string& setting, int rank,
                                                     int local_rank,
                                                     const std::optional<wire::JobKey>& key = {});
  ~Metrics() = default;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Counts the operation under this name when it is over. Requires that it has not started.
  void watch(Operation::State& op, std::string_view name, std::int64_t bytes);
  // Transport::kAuto has chosen a way for a kind of calls. Counts the decision, and notes the way.
  void note_choice(const std::string& kind, const std::string& way);
  // A frame on a stream of this rank changed on its way.
  void count_spoiled_frame();
  void count_moved_stream();
  // Returns the DLCP counters of one communicator. Called by one thread at a time, until the handle
  // that add() returned is destroyed.
  using Source = std::function<NetCounters()>;
  [[nodiscard]] std::shared_ptr<void> add(Source source);

  // The text that a reader gets.
  [[nodiscard]] std::string text();

 private:
  struct Counts {
    std::uint64_t operations = 0;
    std::uint64_t failures = 0;
    std::uint64_t bytes = 0;
  };
  Metrics(int rank, Fd listener, Fd stop, std::string token);
  void count(const std::string& name, std::int64_t bytes, bool failed);

  HomeProcess home_;
  int rank_;
  // Guards counts_ and what says so. It is taken while an engine's locks are held, so nothing may
  // be called while it is held.
  std::mutex mutex_;
  std::map<std::string, Counts> counts_;
  struct Choice {
    std::string way;
    std::uint64_t decisions = 0;
  };
  std::uint64_t spoiled_frames_ = 0;       // guarded by mutex_
  std::uint64_t moved_streams_ = 0;        // guarded by mutex_
  std::map<std::string, Choice> choices_;  // guarded by mutex_; [kind]
  std::mutex sources_mutex_;  // guards sources_ and ended_; held while a source is called
  std::list<Source> sources_;
  NetCounters ended_;    // sums over sources that are gone
  ScrapeServer server_;  // calls text(), so it is destroyed first
};

}  // namespace thalweg::net
