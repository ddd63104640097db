// A process that sums gradients at a switch of a testbed. It is `thalweg switch`, in the namespace
// of the host that with_aggregators() adds to the switch. It ends with this object, and with the
// testbed's process, however that ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "lab/testbed/place.h"
#include "lab/testbed/switchboard.h"
#include "topology/topology.h"

namespace thalweg::lab {

class AggregatorProcess final : public Restartable {
 public:
  // Starts the process and returns when it can be reached at `address`. `space`: a descriptor of
  // the host's network namespace, which must outlive this object. `token`: its secret.
  [[nodiscard]] static Result<std::unique_ptr<AggregatorProcess>> start(
      const std::string& switch_name, const std::string& address, int space,
      const TestbedPlace& place, const std::string& token);
  ~AggregatorProcess() override { stop(); }
  AggregatorProcess(const AggregatorProcess&) = delete;
  AggregatorProcess& operator=(const AggregatorProcess&) = delete;

  // Ends the process, whose memory is lost, and starts another. Does not wait until it can be
  // reached.
  Status restart() override;

 private:
  AggregatorProcess(int space, std::string config, std::string log)
      : space_(space), config_(std::move(config)), log_(std::move(log)) {}
  Status begin();
  void stop();
  // The end of its log, to be added to an error.
  [[nodiscard]] std::string last_words() const;

  int space_;
  std::string config_;
  std::string log_;
  pid_t pid_ = 0;
};

}  // namespace thalweg::lab
