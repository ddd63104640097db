// A Scheme turns a request into a Plan. Each scheme has its own file; src/plan/scheme.cc lists them
// all.
//
// A user names a scheme and, after a colon, its parameters: "ring", "k-nomial:k=4",
// "ps:servers=2,placement=separate".
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/builder.h"
#include "plan/outline.h"
#include "plan/plan.h"
#include "topology/topology.h"

namespace thalweg::plan {

struct ParameterSpec {
  std::string_view name;
  std::string_view default_value;
  std::string_view meaning;  // includes which values are allowed
};

// What a plan is requested for. Rank i is host i of the topology.
struct PlanRequest {
  Collective collective = Collective::kAllreduce;
  const topology::Topology& topology;
  std::int64_t elements = 0;
  int element_bytes = 4;
  Rank root{0};
  // The number of the tensor in its model, for schemes that treat tensors differently.
  std::uint64_t tensor = 0;
};

// The parameters of one use of a scheme; all are present, with defaults filled in.
class Parameters {
 public:
  explicit Parameters(std::map<std::string, std::string, std::less<>> values)
      : values_(std::move(values)) {}

  [[nodiscard]] const std::string& text(std::string_view name) const;
  // An error names the parameter, its value and the range.
  [[nodiscard]] Result<int> integer(std::string_view name, int least, int most) const;
  // An error lists the choices.
  [[nodiscard]] Result<std::string> choice(std::string_view name,
                                           std::span<const std::string_view> allowed) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

struct Tree;  // schemes/parts.h
// Takes one tree of a plan and the bytes that it carries.
using TreeVisitor = std::function<Status(const Tree& tree, Bytes bytes)>;

struct Scheme {
  std::string_view name;
  std::string_view summary;  // one line
  std::vector<Collective> collectives;
  std::vector<ParameterSpec> parameters;
  Result<Plan> (*generate)(const PlanRequest& request, const Parameters& parameters);
  // What the scheme's allreduce sends in which round. Null: predicted from the plan.
  Result<Outline> (*outline)(const PlanRequest& request, const Parameters& parameters) = nullptr;
  // Makes the trees of the scheme's allreduce one after the other. Null: it is not made of trees.
  Status (*each_tree)(const PlanRequest& request, const Parameters& parameters,
                      const TreeVisitor& visit) = nullptr;
};

// All schemes, in the order of the comparison tables.
std::span<const Scheme* const> all_schemes();
// An error lists the names.
Result<const Scheme*> find_scheme(std::string_view name);

// Reads "key=value,key=value" over the defaults. Errors name the scheme and the parameter.
Result<Parameters> parse_parameters(std::string_view scheme, std::span<const ParameterSpec> specs,
                                    std::string_view text);

// Parses "name:key=value,…", generates, and records the text as the plan's scheme.
Result<Plan> make_plan(std::string_view spec, const PlanRequest& request);

// The outline of a spec's plan, without the plan where the scheme can tell; an error as
// make_plan().
Result<Outline> make_outline(std::string_view spec, const PlanRequest& request);

// Calls `visit` with each tree of the spec's allreduce, until it fails. An error if the scheme is
// not made of trees.
Status for_each_tree(std::string_view spec, const PlanRequest& request, const TreeVisitor& visit);

// For generators: a plan with one rank per host, all contributing, and no chunks or transfers yet.
Plan plan_header(const PlanRequest& request);
// The hosts in region order (depth first), so that neighbours in the order share regions.
std::vector<Rank> ranks_in_region_order(const topology::Topology& topology);
// `count` of the ranks, evenly spaced from the first on; in region order, they are spread over the
// regions. Requires 0 < count <= ranks.size().
std::vector<Rank> spread_over(std::span<const Rank> ranks, std::size_t count);
// The hosts of each innermost region that has any, in region order.
std::vector<std::vector<Rank>> innermost_groups(const topology::Topology& topology);

}  // namespace thalweg::plan
