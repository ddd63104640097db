#include "sim/scenario/fault_name.h"

#include <fmt/core.h>

namespace thalweg::sim {
namespace {

struct Namer {
  const topology::Topology& topology;

  [[nodiscard]] std::string link(topology::LinkId id) const {
    const topology::Link& ends = topology.links()[id.index()];
    return topology.node(ends.a).name + "–" + topology.node(ends.b).name;
  }
  [[nodiscard]] const std::string& host(Rank rank) const {
    return topology.node(topology.host(rank)).name;
  }

  std::string operator()(const LossFault& f) const {
    return fmt::format("{} loses {:g} %", link(f.link), 100 * f.probability);
  }
  std::string operator()(const BurstFault& f) const {
    return fmt::format("{} loses bursts", link(f.link));
  }
  std::string operator()(const LinkFault& f) const {
    return fmt::format("{} {}", link(f.link), f.up ? "up" : "down");
  }
  std::string operator()(const RateFault& f) const {
    return fmt::format("{} at {:g} of its rate", link(f.link), f.factor);
  }
  std::string operator()(const PauseFault& f) const {
    return fmt::format("{} {}", host(f.host), f.paused ? "pauses" : "resumes");
  }
  std::string operator()(const RestartFault& f) const {
    return fmt::format("{} restarts", topology.node(f.node).name);
  }
  std::string operator()(const RandomPauseFault& f) const {
    return fmt::format("{} hosts paused in turn", f.hosts);
  }
};

}  // namespace

std::string name_of(const ScenarioFault& fault, const topology::Topology& topology) {
  return std::visit(Namer{topology}, fault.what);
}

}  // namespace thalweg::sim
