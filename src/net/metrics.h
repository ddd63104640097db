// Metrics: what the communicators of this process have done, in Prometheus' text, over HTTP. A
// thread answers; nothing of it exists unless THALWEG_METRICS says where ("host:port"; ":9464" is
// this host alone). Processes of one host listen at that port plus their local rank.
//
// Counters never go down while a communicator lives, and there is one such object in a process: the
// place is the process', not a communicator's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

#include "net/collective/operation.h"
#include "net/fd.h"
#include "net/tcp_listener.h"

namespace thalweg {

class Metrics : public std::enable_shared_from_this<Metrics> {
 public:
  // That of the process, which the first communicator makes.
  static Result<std::shared_ptr<Metrics>> of_process(const std::string& setting, int rank,
                                                     int local_rank);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Before the operation starts: it counts, under this name, when it is over.
  void watch(Operation::State& op, std::string_view name, std::int64_t bytes);
  // DLCP's counters of one communicator, asked for by one thread at a time until the handle is
  // gone.
  using Source = std::function<NetCounters()>;
  [[nodiscard]] std::shared_ptr<void> add(Source source);

  // What a reader gets.
  [[nodiscard]] std::string text();

 private:
  struct Counts {
    std::uint64_t operations = 0;
    std::uint64_t failures = 0;
    std::uint64_t bytes = 0;
  };
  Metrics(int rank, Fd listener, Fd stop);
  void serve();
  void answer(Fd client);
  void count(const std::string& name, std::int64_t bytes, bool failed);

  int rank_;
  TcpListener listener_;
  Fd stop_;  // an eventfd
  // Guards counts_. Taken with an engine's locks held, so nothing is called with it.
  std::mutex mutex_;
  std::map<std::string, Counts> counts_;
  std::mutex sources_mutex_;  // guards what follows, and is held while a source is asked
  std::list<Source> sources_;
  NetCounters ended_;  // of sources that are gone
  std::thread thread_;
};

}  // namespace thalweg
