// Keeps a job at its switches: one connection to each, whose end is the job's end there. When a
// switch ends its connection, because its process died or was started again, the job is created
// there once more, under the same number, as soon as the switch answers. Until then the servers of
// the job add everything (proto/atp/paths.h).
//
// A thread watches the connections. Destroying the object ends the job at all switches.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "net/atp/job_message.h"
#include "net/atp/switch_client.h"

namespace thalweg::net {

struct AtpLease {
  std::string address;  // "host:port" of the switch's control socket
  JobRequest request;   // with the number that the switch has given
  JobGrant grant;
  std::unique_ptr<SwitchClient> client;  // null: the job is not at the switch
};

class AtpLeases {
 public:
  // `token`: of all switches; empty: none.
  AtpLeases(std::vector<AtpLease> leases, std::string token);
  ~AtpLeases();
  AtpLeases(const AtpLeases&) = delete;
  AtpLeases& operator=(const AtpLeases&) = delete;

 private:
  void watch();
  // Creates the job again. Returns false if the switch will not have it.
  bool renew(AtpLease& lease) const;

  std::vector<AtpLease> leases_;  // of the thread
  std::string token_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace thalweg::net
