// The processes of one library in `thalweg bench allreduce`, as the benchmark sees them: started
// once, idle until they are told to measure (rank.h), ended with this object.
//
// 1. Nothing waits without a limit. A rank that ends, fails or does not answer in time makes an
//    error that says which, with what its process has printed.
// 2. No process outlives the benchmark, however that ends.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "cli/emulated_network.h"
#include "cli/memory_file.h"
#include "cli/run_guardian.h"
#include "net/bootstrap/store_server.h"
#include "net/fd.h"

namespace thalweg::allreduce {

// How the ranks of a library are started.
struct CrewProcess {
  std::vector<std::string> command;
  std::vector<std::string> environment = {};
  int host = 0;  // of the emulated network, if there is one
};
struct CrewPlan {
  std::string library;
  std::string transport;
  std::string scheme = {};             // of ours, where it was named
  std::string settings;                // for the reader
  std::vector<CrewProcess> processes;  // one a rank, or one that starts them all
  // Where the ranks meet, open as long as they live; none: they have a way of their own.
  std::shared_ptr<StoreServer> store = {};
};

// What all crews share.
class Stage {
 public:
  // `network`: none if all ranks are on loopback. Takes SIGINT, SIGTERM and SIGHUP of this process;
  // to be called before there are threads.
  [[nodiscard]] static Result<std::unique_ptr<Stage>> make(const EmulatedNetwork* network);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  [[nodiscard]] const EmulatedNetwork* network() const { return network_; }
  // For files by which processes meet.
  [[nodiscard]] const std::string& folder() const { return folder_; }
  // Everybody has met.
  void remove_folder() const;
  // Readable when the benchmark is told to stop.
  [[nodiscard]] int signals() const { return signals_.get(); }
  [[nodiscard]] RunGuardian& guardian() const { return *guardian_; }

 private:
  Stage() = default;
  const EmulatedNetwork* network_ = nullptr;
  std::string folder_;
  Fd signals_;
  std::unique_ptr<RunGuardian> guardian_;
};

class Crew {
 public:
  // Starts the processes, and does not wait for them. `stage` must outlive the crew.
  [[nodiscard]] static Result<std::unique_ptr<Crew>> start(const Stage& stage, CrewPlan plan,
                                                           int ranks);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Until every rank is ready.
  [[nodiscard]] Status meet(Duration limit);

  // Sends `message` to all ranks; then, in a second step, collects their answers, by rank, without
  // the first word, which must be `verb`.
  void tell(const std::string& message) const;
  [[nodiscard]] Result<std::vector<std::string>> hear(const std::string& verb, Duration limit);

  [[nodiscard]] const CrewPlan& plan() const { return plan_; }
  [[nodiscard]] const std::string& version() const { return version_; }

 private:
  explicit Crew(const Stage& stage, CrewPlan plan, int ranks);
  Status listen();
  Status spawn_all();
  // Waits until one of the sockets (-1: none) has something to say, for at most a moment. At the
  // deadline the error names the ranks that we have nothing from.
  Result<std::vector<bool>> wait_for(const std::vector<int>& sockets, Time deadline,
                                     const std::vector<bool>& heard) const;
  Result<std::string> receive(int socket, const std::string& who) const;
  Status check_processes();
  Error failed(const std::string& why) const;

  const Stage& stage_;
  CrewPlan plan_;
  std::size_t size_;
  std::string version_;
  std::string path_;
  Fd listener_;
  std::vector<Fd> ranks_;  // their sockets, by rank
  std::vector<pid_t> processes_;
  MemoryFile output_;
  bool healthy_ = true;
};

}  // namespace thalweg::allreduce
