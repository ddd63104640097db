#include "sim/workload/flow_sizes.h"

#include <fmt/core.h>

#include <array>
#include <cmath>

namespace thalweg::sim {
namespace {

// The published distributions count packets of 1460 bytes.
constexpr std::int64_t kPacketBytes = 1460;

struct PacketPoint {
  std::int64_t packets;
  double probability;
};
constexpr std::array<PacketPoint, 12> kWebSearch{{{1, 0},
                                                  {6, 0.15},
                                                  {13, 0.2},
                                                  {19, 0.3},
                                                  {33, 0.4},
                                                  {53, 0.53},
                                                  {133, 0.6},
                                                  {667, 0.7},
                                                  {1'333, 0.8},
                                                  {3'333, 0.9},
                                                  {6'667, 0.97},
                                                  {20'000, 1}}};
constexpr std::array<PacketPoint, 8> kDataMining{{{1, 0.5},
                                                  {2, 0.6},
                                                  {3, 0.7},
                                                  {7, 0.8},
                                                  {267, 0.9},
                                                  {2'107, 0.95},
                                                  {66'667, 0.99},
                                                  {666'667, 1}}};

template <class Table>
std::vector<FlowSizes::Point> in_bytes(const Table& table) {
  std::vector<FlowSizes::Point> points;
  for (const PacketPoint& p : table) {
    points.push_back({Bytes(p.packets * kPacketBytes), p.probability});
  }
  return points;
}

}  // namespace

Result<FlowSizes> FlowSizes::from_points(std::vector<Point> points) {
  if (points.empty()) return Error("a distribution of sizes needs at least one point");
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Point& p = points[i];
    if (p.size < Bytes(1)) return Error("a flow has at least one byte");
    if (!(p.probability >= 0 && p.probability <= 1)) {
      return Error(
          fmt::format("the probability of {} is {}: 0 to 1", to_string(p.size), p.probability));
    }
    if (i > 0 && (p.size <= points[i - 1].size || p.probability < points[i - 1].probability)) {
      return Error(fmt::format("sizes and probabilities must rise: {} comes after {}",
                               to_string(p.size), to_string(points[i - 1].size)));
    }
  }
  if (points.back().probability != 1) {
    return Error(fmt::format("the last probability is {}: must be 1", points.back().probability));
  }
  return FlowSizes(std::move(points));
}

Result<FlowSizes> FlowSizes::by_name(std::string_view name) {
  if (name == "web-search") return from_points(in_bytes(kWebSearch));
  if (name == "data-mining") return from_points(in_bytes(kDataMining));
  return Error(fmt::format("'{}' is not a distribution of sizes: web-search, data-mining", name));
}

Bytes FlowSizes::draw(Prng& prng) const {
  const double u = prng.real();
  if (u < points_.front().probability) return points_.front().size;
  for (std::size_t i = 1; i < points_.size(); ++i) {
    const Point& a = points_[i - 1];
    const Point& b = points_[i];
    if (u >= b.probability) continue;
    const double part = (u - a.probability) / (b.probability - a.probability);
    const auto span = static_cast<double>((b.size - a.size).count());
    return a.size + Bytes(std::llround(part * span));
  }
  return points_.back().size;
}

double FlowSizes::mean_bytes() const {
  const auto bytes = [](const Point& p) { return static_cast<double>(p.size.count()); };
  double mean = points_.front().probability * bytes(points_.front());
  for (std::size_t i = 1; i < points_.size(); ++i) {
    const double part = points_[i].probability - points_[i - 1].probability;
    mean += part * (bytes(points_[i]) + bytes(points_[i - 1])) / 2;
  }
  return mean;
}

}  // namespace thalweg::sim
