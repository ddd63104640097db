#include "plan/scheme.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/number.h"
#include "base/suggest.h"
#include "plan/schemes/schemes.h"

namespace thalweg::plan {
namespace {

constexpr std::array kSchemes{
    &kPs,          &kRing,  &kButterfly, &kHalvingDoubling, &kKNomial, &kDoubleTree, &kHierarchical,
    &kBlueConnect, &kPLink, &kRat,       &kRatWeighted,     &kGossip,  &kDirect,
};

std::string parameter_list(std::span<const ParameterSpec> specs) {
  if (specs.empty()) return "it takes none";
  std::vector<std::string> entries;
  entries.reserve(specs.size());
  for (const ParameterSpec& spec : specs) {
    entries.push_back(fmt::format("{} ({})", spec.name, spec.meaning));
  }
  return fmt::format("it takes {}", fmt::join(entries, ", "));
}

Status check_request(const Scheme& scheme, const PlanRequest& request) {
  const std::vector<Collective>& can = scheme.collectives;
  if (std::find(can.begin(), can.end(), request.collective) == can.end()) {
    std::vector<std::string_view> names;
    names.reserve(can.size());
    for (const Collective collective : can) names.emplace_back(name_of(collective));
    return Error(fmt::format("scheme '{}' cannot do '{}': it does {}", scheme.name,
                             name_of(request.collective), fmt::join(names, ", ")));
  }
  const int hosts = request.topology.host_count();
  if (hosts > kMaxPlanRanks) {
    return Error(fmt::format("a plan for {} hosts: at most {} are allowed", hosts, kMaxPlanRanks));
  }
  if (has_root(request.collective) && (!request.root.valid() || request.root.value() >= hosts)) {
    return Error(
        fmt::format("root {} is not a rank: 0 to {} are", request.root.value(), hosts - 1));
  }
  return ok_status();
}

// A scheme with the parameters of one use.
struct UsedScheme {
  const Scheme* scheme;
  Parameters parameters;
};

Result<UsedScheme> parse_spec(std::string_view spec, const PlanRequest& request) {
  const std::size_t colon = spec.find(':');
  THALWEG_TRY(const Scheme* scheme, find_scheme(spec.substr(0, colon)));
  THALWEG_TRY_STATUS(check_request(*scheme, request));
  const bool has_parameters = colon != std::string_view::npos;
  if (has_parameters && colon + 1 == spec.size()) {
    return Error(fmt::format("scheme '{}': nothing after ':'", scheme->name));
  }
  THALWEG_TRY(Parameters parameters,
              parse_parameters(scheme->name, scheme->parameters,
                               has_parameters ? spec.substr(colon + 1) : ""));
  return UsedScheme{.scheme = scheme, .parameters = std::move(parameters)};
}

void append_groups(const topology::Topology& topology, topology::RegionId id,
                   std::vector<std::vector<Rank>>& groups) {
  std::vector<Rank> direct;
  for (const Rank rank : topology.region(id).hosts) {
    if (topology.region_of(rank) == id) direct.push_back(rank);
  }
  if (!direct.empty()) groups.push_back(std::move(direct));
  for (const topology::RegionId child : topology.region(id).children)
    append_groups(topology, child, groups);
}

}  // namespace

const std::string& Parameters::text(std::string_view name) const {
  const auto found = values_.find(name);
  CHECK(found != values_.end(), "no parameter '{}'", name);
  return found->second;
}

Result<int> Parameters::integer(std::string_view name, int least, int most) const {
  const std::string& value = text(name);
  const std::optional<int> number = number_in<int>(value);
  if (!number || *number < least || *number > most) {
    return Error(fmt::format("parameter {}: '{}' is not allowed: a whole number from {} to {}",
                             name, value, least, most));
  }
  return *number;
}

Result<std::string> Parameters::choice(std::string_view name,
                                       std::span<const std::string_view> allowed) const {
  const std::string& value = text(name);
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    return Error(fmt::format("parameter {}: '{}' is not allowed: {}{}", name, value,
                             fmt::join(allowed, " or "), did_you_mean(value, allowed)));
  }
  return value;
}

std::span<const Scheme* const> all_schemes() { return kSchemes; }

Result<const Scheme*> find_scheme(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Scheme* scheme : all_schemes()) {
    if (scheme->name == name) return scheme;
    names.push_back(scheme->name);
  }
  return Error(fmt::format("'{}' is not a scheme: {}{}", name, fmt::join(names, ", "),
                           did_you_mean(name, names)));
}

Result<Parameters> parse_parameters(std::string_view scheme, std::span<const ParameterSpec> specs,
                                    std::string_view text) {
  std::map<std::string, std::string, std::less<>> values;
  for (const ParameterSpec& spec : specs) values.emplace(spec.name, spec.default_value);
  std::vector<std::string_view> seen;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(entry.size());
    if (text == ",") return Error(fmt::format("scheme '{}': nothing after ','", scheme));
    if (!text.empty()) text.remove_prefix(1);
    const std::size_t equals = entry.find('=');
    const std::string_view key = entry.substr(0, equals);
    const auto known = values.find(key);
    if (known == values.end()) {
      std::vector<std::string_view> names;
      for (const ParameterSpec& spec : specs) names.push_back(spec.name);
      return Error(fmt::format("scheme '{}' has no parameter '{}': {}{}", scheme, key,
                               parameter_list(specs), did_you_mean(key, names)));
    }
    if (equals == std::string_view::npos || equals + 1 == entry.size()) {
      return Error(fmt::format("scheme '{}': parameter '{}' needs a value, as in {}={}", scheme,
                               key, key, known->second));
    }
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
      return Error(fmt::format("scheme '{}': parameter '{}' is given twice", scheme, key));
    }
    seen.push_back(key);
    known->second = entry.substr(equals + 1);
  }
  return Parameters(std::move(values));
}

Result<Plan> make_plan(std::string_view spec, const PlanRequest& request) {
  THALWEG_TRY(const UsedScheme used, parse_spec(spec, request));
  Result<Plan> plan = used.scheme->generate(request, used.parameters);
  if (!plan.ok()) return plan.error().within(fmt::format("scheme '{}'", used.scheme->name));
  plan->scheme = spec;
  return plan;
}

Result<Outline> make_outline(std::string_view spec, const PlanRequest& request) {
  THALWEG_TRY(const UsedScheme used, parse_spec(spec, request));
  if (used.scheme->outline != nullptr && request.collective == Collective::kAllreduce) {
    Result<Outline> outline = used.scheme->outline(request, used.parameters);
    if (!outline.ok()) return outline.error().within(fmt::format("scheme '{}'", used.scheme->name));
    return outline;
  }
  THALWEG_TRY(const Plan plan, make_plan(spec, request));
  THALWEG_TRY(const PlanProof proof, verify(plan));
  return outline_of(plan, proof);
}

Status for_each_tree(std::string_view spec, const PlanRequest& request, const TreeVisitor& visit) {
  THALWEG_TRY(const UsedScheme used, parse_spec(spec, request));
  if (used.scheme->each_tree == nullptr || request.collective != Collective::kAllreduce) {
    return Error(fmt::format("{} by scheme '{}' is not made of trees", name_of(request.collective),
                             used.scheme->name));
  }
  return used.scheme->each_tree(request, used.parameters, visit);
}

Plan plan_header(const PlanRequest& request) {
  Plan plan;
  plan.collective = request.collective;
  plan.ranks = request.topology.host_count();
  plan.contributors = plan.ranks;
  if (has_root(request.collective)) plan.root = request.root;
  plan.elements = request.elements;
  plan.element_bytes = request.element_bytes;
  return plan;
}

std::vector<Rank> ranks_in_region_order(const topology::Topology& topology) {
  std::vector<Rank> order;
  for (const std::vector<Rank>& group : innermost_groups(topology)) {
    order.insert(order.end(), group.begin(), group.end());
  }
  return order;
}

std::vector<Rank> spread_over(std::span<const Rank> ranks, std::size_t count) {
  CHECK(count > 0 && count <= ranks.size());
  std::vector<Rank> chosen;
  chosen.reserve(count);
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(ranks[i * ranks.size() / count]);
  return chosen;
}

std::vector<std::vector<Rank>> innermost_groups(const topology::Topology& topology) {
  std::vector<std::vector<Rank>> groups;
  append_groups(topology, topology::kWholeNetwork, groups);
  return groups;
}

}  // namespace thalweg::plan
