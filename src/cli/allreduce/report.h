// What `thalweg bench allreduce` has measured, and how it is shown.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "base/units.h"
#include "cli/allreduce/libraries.h"

namespace thalweg::allreduce {

// One library at one size.
struct Cell {
  Bytes size;
  std::int64_t elements = 0;
  Histogram us;  // of each call, the slowest rank
  std::int64_t wrong = 0;
  std::optional<double> simulated_us = {};  // what the simulator says of one call
};

struct Measured {
  std::string library;
  std::string transport;
  std::string scheme;  // of ours, where it was named
  std::string version;
  std::string settings;
  double idle_cpu = 0;  // processor seconds a second of a rank with nothing to do: the most of all
  Cell small;           // one element
  std::vector<Cell> cells;  // by size, the same for all libraries
};

struct Report {
  Work work;
  int turns = 1;
  std::string network;  // for the reader
  double rate_gbps = 0;
  double loss = 0;
  double bound = 0;                // of DLCP
  std::string congestion_control;  // of all TCP; empty: the system's
  // Of core_distance(), at the beginning of each turn and in the end; empty with one core.
  std::vector<double> core_to_core_ns = {};
  std::vector<Measured> measured;  // ours first

  [[nodiscard]] std::int64_t wrong() const;
};

// Of several that differ in nothing but the congestion control; at least one.
[[nodiscard]] nlohmann::ordered_json to_json(std::span<const Report> reports);
// In the form of nccl-tests: a block a library.
[[nodiscard]] std::string to_text(const Report& report);

}  // namespace thalweg::allreduce
