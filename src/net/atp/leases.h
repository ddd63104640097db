// Keeps a job at its switches: one connection to each, whose end is the job's end there. When a
// switch ends its connection, because its process died or was started again, the job is created
// there once more, under the same number, as soon as the switch answers. Until then the servers of
// the job add everything (proto/atp/paths.h).
//
// Where a switch could not take part, or will not have the job again, the job comes to it under
// another number: a new job is made at all switches (AtpReturns), which the ranks go over to.
//
// A thread watches the connections. Destroying the object ends the jobs at all switches.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "net/atp/job_message.h"
#include "net/atp/returns.h"
#include "net/atp/switch_client.h"

namespace thalweg::net {

struct AtpLease {
  std::string address;  // "host:port" of the switch's control socket
  JobRequest request;   // with the number that the switch has given
  JobGrant grant;
  std::unique_ptr<SwitchClient> client;  // null: the job is not at the switch
  // Was asked to create the job again, and has not answered yet. The request is not given up: a
  // switch that creates the job and is not heard has given the number away, and gives it once.
  std::unique_ptr<SwitchClient> asked = {};
};

class AtpLeases {
 public:
  // `secrets`: of all switches. `returns`: null if there is to be no other job.
  AtpLeases(std::vector<AtpLease> leases, SwitchSecrets secrets,
            std::unique_ptr<AtpReturns> returns = nullptr);
  ~AtpLeases();
  AtpLeases(const AtpLeases&) = delete;
  AtpLeases& operator=(const AtpLeases&) = delete;

  // All ranks have gone over to the last job: that before it ends.
  void end_earlier();

 private:
  void watch();
  // Creates the job again where it is missing, and removes switches that will not have it.
  void keep(std::vector<AtpLease>& leases);
  // Returns false if the switch will not have the job again.
  bool renew(AtpLease& lease) const;
  void find_better();

  // The thread's.
  std::vector<AtpLease> leases_;   // of the last job
  std::vector<AtpLease> earlier_;  // of the job before it, until all ranks have left that
  bool goes_over_ = false;         // some rank may not have left it
  SwitchSecrets secrets_;
  std::unique_ptr<AtpReturns> returns_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool ending_ = false;
  bool gone_over_ = false;  // end_earlier() was called
  std::thread thread_;
};

}  // namespace thalweg::net
