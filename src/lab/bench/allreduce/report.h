// The results of `thalweg bench allreduce`, and their reports.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "base/units.h"
#include "lab/bench/allreduce/libraries.h"

namespace thalweg::lab::allreduce {

// One library at one size.
struct Cell {
  Bytes size;
  std::int64_t elements = 0;
  Histogram us;                             // time of the slowest rank in each call
  std::int64_t wrong = 0;                   // elements
  std::optional<double> simulated_us = {};  // the time of one call that the simulator predicts
};

// One library at all sizes.
struct Measured {
  std::string library;
  std::string transport;
  std::string scheme;  // of our own library, if the user named one
  std::string version;
  std::string settings;
  // Processor seconds per second of the rank that takes most while it has nothing to do.
  double idle_cpu = 0;
  Cell small;               // one element
  std::vector<Cell> cells;  // by size, the same for all libraries
};

struct Report {
  Work work;
  int turns = 1;
  std::string network;             // in words
  double rate_gbps = 0;            // of the slowest link; 0: none
  double loss = 0;                 // of every packet that arrives at a host
  double bound = 0;                // of DLCP's loss
  std::string congestion_control;  // of all TCP; empty: the system's
  // core_distance() at the beginning of each turn and at the end; empty if there is only one core.
  std::vector<double> core_to_core_ns = {};
  std::vector<Measured> measured;  // our own library first

  // Wrong elements of all libraries and sizes.
  [[nodiscard]] std::int64_t wrong() const;
};

// One object for all reports, which differ only in the congestion control. Requires at least one.
[[nodiscard]] nlohmann::ordered_json to_json(std::span<const Report> reports);
// A block of lines per library, in the form of nccl-tests.
[[nodiscard]] std::string to_text(const Report& report);

}  // namespace thalweg::lab::allreduce
