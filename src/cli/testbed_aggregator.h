// A process that sums gradients at a switch of a testbed: `thalweg switch`, in the namespace of the
// host that with_aggregators() puts there. It ends with this object, and with the testbed's
// process, however that ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "cli/testbed/switchboard.h"
#include "cli/testbed_place.h"
#include "topology/topology.h"

namespace thalweg {

class AggregatorProcess final : public Restartable {
 public:
  // Returns when it can be reached. `space`: a namespace, which outlives it.
  [[nodiscard]] static Result<std::unique_ptr<AggregatorProcess>> start(
      const std::string& switch_name, const std::string& address, int space,
      const TestbedPlace& place);
  ~AggregatorProcess() override { stop(); }
  AggregatorProcess(const AggregatorProcess&) = delete;
  AggregatorProcess& operator=(const AggregatorProcess&) = delete;

  // All that it knew is lost. Does not wait until it can be reached.
  Status restart() override;

 private:
  AggregatorProcess(int space, std::string config, std::string log)
      : space_(space), config_(std::move(config)), log_(std::move(log)) {}
  Status begin();
  void stop();
  // The end of its log, as a part of an error.
  [[nodiscard]] std::string last_words() const;

  int space_;
  std::string config_;
  std::string log_;
  pid_t pid_ = 0;
};

}  // namespace thalweg
