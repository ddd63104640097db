#include "topology/probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace thalweg::topology {
namespace {

// A cut counts if what it separates is this many times as far apart as what it joins, and if hosts
// are this much nearer to their own region. Rates vary more than shortest round trips.
constexpr double kLeastJumpOfTimes = 1.5;
constexpr double kLeastJumpOfRates = 2;
constexpr double kLeastConfidence = 0.4;

// The index of row i, column j in a table with this many columns.
std::size_t place_of(int i, int j, int columns) {
  return static_cast<std::size_t>(i) * static_cast<std::size_t>(columns) +
         static_cast<std::size_t>(j);
}

// Symmetric distances between hosts.
class Matrix {
 public:
  explicit Matrix(int size) : size_(size), values_(place_of(size, 0, size), 0) {}
  [[nodiscard]] double at(int i, int j) const { return values_[place_of(i, j, size_)]; }
  void set(int i, int j, double value) {
    values_[place_of(i, j, size_)] = value;
    values_[place_of(j, i, size_)] = value;
  }
  [[nodiscard]] int size() const { return size_; }

 private:
  int size_;
  std::vector<double> values_;
};

struct Clustering {
  std::vector<int> cluster_of;
  int clusters = 1;
  double jump = 1;  // next distance to join divided by the last one joined
  double silhouette = 0;
};

double mean_distance(const Matrix& matrix, const std::vector<int>& a, const std::vector<int>& b) {
  double sum = 0;
  for (const int i : a) {
    for (const int j : b) sum += matrix.at(i, j);
  }
  return sum / static_cast<double>(a.size() * b.size());
}

double silhouette_of(const Matrix& matrix, const std::vector<std::vector<int>>& clusters) {
  double sum = 0;
  for (std::size_t c = 0; c < clusters.size(); ++c) {
    for (const int host : clusters[c]) {
      // A host that is alone in its region tells nothing.
      if (clusters[c].size() == 1) continue;
      double own = 0;
      for (const int other : clusters[c]) own += matrix.at(host, other);
      own /= static_cast<double>(clusters[c].size() - 1);
      double next = std::numeric_limits<double>::infinity();
      for (std::size_t d = 0; d < clusters.size(); ++d) {
        if (d != c) next = std::min(next, mean_distance(matrix, {host}, clusters[d]));
      }
      sum += (next - own) / std::max(next, own);
    }
  }
  return sum / matrix.size();
}

// Joins the nearest two until one is left, and keeps the state before the largest jump in distance.
Clustering cluster(const Matrix& matrix) {
  std::vector<std::vector<int>> clusters;
  for (int host = 0; host < matrix.size(); ++host) clusters.push_back({host});
  std::vector<std::vector<int>> best;
  double jump = 1;
  double last = 0;
  while (clusters.size() > 1) {
    std::size_t a = 0;
    std::size_t b = 1;
    double nearest = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < clusters.size(); ++i) {
      for (std::size_t j = i + 1; j < clusters.size(); ++j) {
        const double distance = mean_distance(matrix, clusters[i], clusters[j]);
        if (distance >= nearest) continue;
        nearest = distance;
        a = i;
        b = j;
      }
    }
    if (last > 0 && nearest / last > jump) {
      jump = nearest / last;
      best = clusters;
    }
    last = std::max(last, nearest);
    clusters[a].insert(clusters[a].end(), clusters[b].begin(), clusters[b].end());
    clusters.erase(clusters.begin() + static_cast<std::ptrdiff_t>(b));
  }
  Clustering result;
  result.cluster_of.assign(static_cast<std::size_t>(matrix.size()), 0);
  if (best.empty()) return result;
  // Regions are numbered by their first host.
  std::ranges::sort(best, {}, [](const auto& c) { return std::ranges::min(c); });
  result.clusters = static_cast<int>(best.size());
  result.jump = jump;
  result.silhouette = silhouette_of(matrix, best);
  for (std::size_t c = 0; c < best.size(); ++c) {
    for (const int host : best[c]) {
      result.cluster_of[static_cast<std::size_t>(host)] = static_cast<int>(c);
    }
  }
  return result;
}

Status check_samples(int hosts, const std::vector<ProbeSample>& samples) {
  std::vector<bool> seen(place_of(hosts, 0, hosts), false);
  for (const ProbeSample& s : samples) {
    if (s.from < 0 || s.from >= hosts || s.to < 0 || s.to >= hosts || s.from == s.to) {
      return Error(fmt::format("a sample from host {} to host {}, of {}", s.from, s.to, hosts));
    }
    if (s.round_trip <= Duration() || s.rate.bps() <= 0) {
      return Error(
          fmt::format("the sample from host {} to host {} has a round trip of {} and a "
                      "rate of {}; both must be above 0",
                      s.from, s.to, to_string(s.round_trip), to_string(s.rate)));
    }
    seen[place_of(s.from, s.to, hosts)] = true;
  }
  for (int i = 0; i < hosts; ++i) {
    for (int j = 0; j < hosts; ++j) {
      if (i != j && !seen[place_of(i, j, hosts)]) {
        return Error(fmt::format("there is no sample from host {} to host {}", i, j));
      }
    }
  }
  return ok_status();
}

// The rate that crosses each region's border in the round in which it is highest.
std::vector<double> uplinks(const std::vector<ProbeSample>& samples, const Clustering& c) {
  std::map<std::pair<int, int>, double> by_round;  // (round, region)
  std::vector<double> most(static_cast<std::size_t>(c.clusters), 0);
  for (const ProbeSample& s : samples) {
    const int from = c.cluster_of[static_cast<std::size_t>(s.from)];
    if (from == c.cluster_of[static_cast<std::size_t>(s.to)]) continue;
    double& sum = by_round[{s.round, from}];
    sum += static_cast<double>(s.rate.bps());
    most[static_cast<std::size_t>(from)] = std::max(most[static_cast<std::size_t>(from)], sum);
  }
  return most;
}

// Rounds to three digits: no measurement has more.
double rounded(double value) {
  const double scale = std::pow(10, std::floor(std::log10(std::max(value, 1.0))) - 2);
  return scale <= 1 ? std::max(value, 1.0) : std::round(value / scale) * scale;
}

Bandwidth to_rate(double bits) {
  return Bandwidth::bits_per_second(static_cast<std::int64_t>(rounded(bits)));
}

Duration to_delay(Duration delay) {
  return Duration::nanoseconds(
      std::max<std::int64_t>(1, static_cast<std::int64_t>(rounded(delay.us() * 1000))));
}

Result<Topology> build(int hosts, const std::vector<ProbeSample>& samples, const Clustering& c) {
  std::vector<double> fastest(static_cast<std::size_t>(hosts), 0);
  Duration within = Duration::seconds(3600);
  Duration across = within;
  for (const ProbeSample& s : samples) {
    double& rate = fastest[static_cast<std::size_t>(s.from)];
    rate = std::max(rate, static_cast<double>(s.rate.bps()));
    const bool same = c.cluster_of[static_cast<std::size_t>(s.from)] ==
                      c.cluster_of[static_cast<std::size_t>(s.to)];
    Duration& least = same ? within : across;
    least = std::min(least, s.round_trip);
  }
  if (samples.empty()) {
    fastest.assign(fastest.size(), 1e9);
    within = Duration::microseconds(4);
  }
  // A round trip within a region is four hops over host links; across, four more over uplinks.
  const bool any_within = within < Duration::seconds(3600);
  const Duration host_delay = to_delay(any_within ? within / 4 : across / 8);
  const Duration uplink_delay = to_delay(std::max((across - host_delay * 4) / 4, Duration()));

  TopologyBuilder builder("probed");
  const RegionId whole = kWholeNetwork;
  const std::vector<double> up = uplinks(samples, c);
  NodeId core;
  if (c.clusters > 1) {
    THALWEG_TRY(core, builder.add_switch("core", whole));
  }
  std::vector<NodeId> switches;
  std::vector<RegionId> regions;
  for (int r = 0; r < c.clusters; ++r) {
    RegionId region = whole;
    if (c.clusters > 1) {
      THALWEG_TRY(region, builder.add_region(fmt::format("region{}", r), whole));
    }
    regions.push_back(region);
    THALWEG_TRY(const NodeId node, builder.add_switch(fmt::format("switch{}", r), region));
    switches.push_back(node);
    if (c.clusters > 1) {
      THALWEG_TRY([[maybe_unused]] const LinkId link,
                  builder.add_link(node, core,
                                   {to_rate(up[static_cast<std::size_t>(r)]), uplink_delay, {}}));
    }
  }
  for (int h = 0; h < hosts; ++h) {
    const auto region = static_cast<std::size_t>(c.cluster_of[static_cast<std::size_t>(h)]);
    THALWEG_TRY(const NodeId node, builder.add_host(fmt::format("host{}", h), regions[region]));
    THALWEG_TRY([[maybe_unused]] const LinkId link,
                builder.add_link(node, switches[region],
                                 {to_rate(fastest[static_cast<std::size_t>(h)]), host_delay, {}}));
  }
  return std::move(builder).build();
}

}  // namespace

Result<ProbedTopology> topology_from_probe(int hosts, const std::vector<ProbeSample>& samples) {
  if (hosts < 1) return Error(fmt::format("{} hosts; at least one is needed", hosts));
  THALWEG_TRY_STATUS(check_samples(hosts, samples));
  Matrix by_time(hosts);
  Matrix by_rate(hosts);
  for (const ProbeSample& s : samples) {
    const double time = s.round_trip.us();
    const double slowness = 1e9 / static_cast<double>(s.rate.bps());
    const double known = by_time.at(s.from, s.to);
    by_time.set(s.from, s.to, known == 0 ? time : std::min(known, time));
    by_rate.set(s.from, s.to, std::max(by_rate.at(s.from, s.to), slowness));
  }
  const Clustering time = cluster(by_time);
  const Clustering rate = cluster(by_rate);
  const bool use_time = time.silhouette >= rate.silhouette;
  Clustering chosen = use_time ? time : rate;
  const double least_jump = use_time ? kLeastJumpOfTimes : kLeastJumpOfRates;
  const bool convincing = chosen.jump >= least_jump && chosen.silhouette >= kLeastConfidence;
  std::string by = use_time ? "round trips" : "rates";
  std::string reason;
  double confidence = chosen.silhouette;
  if (convincing) {
    reason =
        fmt::format("{} regions by {}: the next two are {:.2f} times as far apart as any joined",
                    chosen.clusters, by, chosen.jump);
  } else {
    reason = chosen.clusters == 1
                 ? "one region: all hosts are alike"
                 : fmt::format(
                       "one region: the best cut, by {}, joins the next two at {:.2f} times "
                       "the distance (at least {} is believed)",
                       by, chosen.jump, least_jump);
    confidence = 1 - std::clamp(chosen.silhouette, 0.0, 1.0);
    chosen = Clustering();
    chosen.cluster_of.assign(static_cast<std::size_t>(hosts), 0);
    by.clear();
  }
  THALWEG_TRY(Topology topology, build(hosts, samples, chosen));
  return ProbedTopology{
      std::move(topology), chosen.cluster_of, chosen.clusters, by, confidence, reason};
}

}  // namespace thalweg::topology
