// A Scheme turns a request into a Plan. One file a scheme; src/plan/scheme.cc lists them all.
//
// A user names a scheme and, after a colon, its parameters: "ring", "k-nomial:k=4",
// "ps:servers=2,placement=separate".
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/builder.h"
#include "plan/plan.h"
#include "topology/topology.h"

namespace thalweg {

struct ParameterSpec {
  std::string_view name;
  std::string_view default_value;
  std::string_view meaning;  // with what is allowed
};

// What a plan is wanted for. Rank i is host i of the topology.
struct PlanRequest {
  Collective collective = Collective::kAllreduce;
  const Topology& topology;
  std::int64_t elements = 0;
  int element_bytes = 4;
  Rank root{0};
  // Which tensor of a model it is, for schemes that treat tensors differently.
  std::uint64_t tensor = 0;
};

// The parameters of one use of a scheme, every one present, defaults filled in.
class Parameters {
 public:
  explicit Parameters(std::map<std::string, std::string, std::less<>> values)
      : values_(std::move(values)) {}

  [[nodiscard]] const std::string& text(std::string_view name) const;
  // An error names the parameter, its value and the range.
  [[nodiscard]] Result<int> integer(std::string_view name, int least, int most) const;
  // The error lists the choices.
  [[nodiscard]] Result<std::string> choice(std::string_view name,
                                           std::span<const std::string_view> allowed) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

struct Scheme {
  std::string_view name;
  std::string_view summary;  // one line
  std::vector<Collective> collectives;
  std::vector<ParameterSpec> parameters;
  Result<Plan> (*generate)(const PlanRequest& request, const Parameters& parameters);
};

// All schemes, in the order of the comparison tables.
std::span<const Scheme* const> all_schemes();
// The error lists the names.
Result<const Scheme*> find_scheme(std::string_view name);

// "key=value,key=value" over the defaults. Errors name the scheme and the parameter.
Result<Parameters> parse_parameters(std::string_view scheme, std::span<const ParameterSpec> specs,
                                    std::string_view text);

// Parses "name:key=value,…", generates, and records the text as the plan's scheme.
Result<Plan> make_plan(std::string_view spec, const PlanRequest& request);

// For generators: everything but chunks and transfers, one rank a host, all contributing.
Plan plan_header(const PlanRequest& request);
// The hosts in region order (depth first), so that neighbours in the order share regions.
std::vector<Rank> ranks_in_region_order(const Topology& topology);
// `count` of them, evenly spaced from the first on: in region order, spread over the regions.
// Requires 0 < count <= ranks.size().
std::vector<Rank> spread_over(std::span<const Rank> ranks, std::size_t count);
// The hosts of each innermost region that has any, in region order.
std::vector<std::vector<Rank>> innermost_groups(const Topology& topology);

}  // namespace thalweg
