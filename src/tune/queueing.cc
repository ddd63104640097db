#include "tune/queueing.h"

#include <cmath>
#include <limits>

#include "base/check.h"

namespace thalweg::tune {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// ln(u) and ln(1 − ρ/u), as in the comment of the header.
struct Terms {
  double log_u = 0;
  double log_rest = 0;
};

// Computed as 1 − ρ/u = 1 − ρ^(m+1), which keeps its digits if ρ is close to 1.
Terms terms_of(double utilization, double room) {
  const double log_utilization = std::log(utilization);
  return {.log_u = -room * log_utilization,
          .log_rest = std::log(-std::expm1((room + 1) * log_utilization))};
}

}  // namespace

double log_loss(double utilization, double room) {
  CHECK(utilization >= 0 && utilization < 1 && room >= 0, "ρ = {}, m = {}", utilization, room);
  if (utilization == 0) return room > 0 ? kNothing : 0;
  const Terms terms = terms_of(utilization, room);
  return std::log1p(-utilization) - terms.log_u - terms.log_rest;
}

double log_loss_slope(double utilization, double room) {
  CHECK(utilization >= 0 && utilization < 1 && room >= 0, "ρ = {}, m = {}", utilization, room);
  if (utilization == 0) return kNothing;
  const Terms terms = terms_of(utilization, room);
  return std::log1p(-utilization) + std::log(-std::log(utilization)) - terms.log_u -
         2 * terms.log_rest;
}

std::vector<double> queue_utilizations(std::span<const double> shares, double load) {
  CHECK(load > 0 && load < 1, "load {}", load);
  std::vector<double> utilizations;
  utilizations.reserve(shares.size());
  double left = 1;  // μ_i / μ
  for (const double share : shares) {
    const double arrivals = load * share;
    utilizations.push_back(arrivals / left);
    left -= arrivals;
  }
  return utilizations;
}

}  // namespace thalweg::tune
