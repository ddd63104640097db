// A crew is the processes of one library in `thalweg bench allreduce`. The benchmark starts them
// once; they are idle until they are told to measure (rank.h), and end with the Crew object.
//
// 1. Every wait has a limit. If a rank ends, fails or does not answer in time, the error names it
//    and holds what the processes have printed.
// 2. No process outlives the benchmark, however that ends.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "lab/emulation/emulated_network.h"
#include "launch/guardian.h"
#include "launch/memory_file.h"
#include "net/io/fd.h"
#include "net/store/store_server.h"

namespace thalweg::lab::allreduce {

// One process to start.
struct CrewProcess {
  std::vector<std::string> command;
  std::vector<std::string> environment = {};
  int host = 0;                 // of the emulated network to run on, if there is one
  std::vector<int> cores = {};  // to run on; empty: any
};
// How the ranks of a library are started.
struct CrewPlan {
  std::string library;
  std::string transport;
  std::string scheme = {};             // of our own library, if the user named one
  std::string settings;                // in words, for the report
  std::vector<CrewProcess> processes;  // one per rank, or one that starts all ranks
  // Where the ranks meet; it must live as long as they do. Null if the library has its own means.
  std::shared_ptr<net::StoreServer> store = {};
};

// What all crews share: the network, a folder, the signals and the guardian.
class Stage {
 public:
  // `network`: null if all ranks are on loopback. Blocks SIGINT, SIGTERM and SIGHUP in this process
  // and reads them from signals(). To be called before there are threads.
  [[nodiscard]] static Result<std::unique_ptr<Stage>> make(const EmulatedNetwork* network);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  [[nodiscard]] const EmulatedNetwork* network() const { return network_; }
  // A folder for files through which processes meet.
  [[nodiscard]] const std::string& folder() const { return folder_; }
  // To be called when all processes have met.
  void remove_folder() const;
  // Readable when the benchmark is told to stop.
  [[nodiscard]] int signals() const { return signals_.get(); }
  [[nodiscard]] launch::RunGuardian& guardian() const { return *guardian_; }

 private:
  Stage() = default;
  const EmulatedNetwork* network_ = nullptr;
  std::string folder_;
  net::Fd signals_;
  std::unique_ptr<launch::RunGuardian> guardian_;
};

class Crew {
 public:
  // Starts the processes and does not wait until they are ready. `stage` must outlive the crew.
  [[nodiscard]] static Result<std::unique_ptr<Crew>> start(const Stage& stage, CrewPlan plan,
                                                           int ranks);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Waits until every rank is ready.
  [[nodiscard]] Status meet(Duration limit);

  // tell() sends `message` to all ranks. hear() then collects their answers, by rank. The first
  // word of every answer must be `verb` and is left out.
  void tell(const std::string& message) const;
  [[nodiscard]] Result<std::vector<std::string>> hear(const std::string& verb, Duration limit);

  [[nodiscard]] const CrewPlan& plan() const { return plan_; }
  [[nodiscard]] const std::string& version() const { return version_; }

 private:
  explicit Crew(const Stage& stage, CrewPlan plan, int ranks);
  Status listen();
  Status spawn_all();
  // Waits a moment for a message on one of the sockets (-1: no socket), and returns which of them
  // have one. After the deadline it is an error, which names the ranks that are not in `heard`.
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
  net::Fd listener_;
  std::vector<net::Fd> ranks_;  // sockets, by rank
  std::vector<pid_t> processes_;
  launch::MemoryFile output_;
  bool healthy_ = true;  // false after an error: the processes are not given time to end
};

}  // namespace thalweg::lab::allreduce
