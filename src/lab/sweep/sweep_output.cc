#include "lab/sweep/sweep_output.h"

#include <fmt/core.h>

#include <algorithm>

namespace thalweg::lab {
namespace {

// A field of CSV by RFC 4180.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

void append_line(std::string& text, const std::vector<std::string>& fields) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) text += ',';
    text += csv_field(fields[i]);
  }
  text += '\n';
}

// Appends every value of a result with its path. Lists of iterations are left out, because their
// lengths differ.
void flatten(const sim::Json& node, const std::string& path,
             std::vector<std::pair<std::string, sim::Json>>& out) {
  if (path.ends_with("iterations_ms") && node.is_array()) return;
  if (node.is_object() || node.is_array()) {
    std::size_t index = 0;
    for (const auto& [key, value] : node.items()) {
      const std::string part = node.is_array() ? std::to_string(index++) : key;
      flatten(value, path.empty() ? part : path + "." + part, out);
    }
    return;
  }
  out.emplace_back(path, node);
}

std::string number_at(const sim::Json& result, std::string_view path, const char* format) {
  const Result<double> value = sim::measure_of(result, path);
  return value.ok() ? fmt::format(fmt::runtime(format), *value) : "-";
}

}  // namespace

sim::Json sweep_json(const std::vector<sim::Axis>& axes, const std::vector<sim::SweepPoint>& points,
                     const std::vector<sim::Json>& results) {
  sim::Json names = sim::Json::array();
  for (const sim::Axis& axis : axes) names.push_back(axis.name);
  sim::Json list = sim::Json::array();
  for (std::size_t p = 0; p < points.size(); ++p) {
    sim::Json at = sim::Json::object();
    for (std::size_t a = 0; a < axes.size(); ++a) at[axes[a].name] = points[p].labels[a];
    list.push_back({{"at", at}, {"result", results[p]}});
  }
  return {{"axes", names}, {"points", list}};
}

std::string points_csv(const std::vector<sim::Axis>& axes,
                       const std::vector<sim::SweepPoint>& points,
                       const std::vector<sim::Json>& results) {
  // One column for every path that some point has, in the order in which they are found.
  std::vector<std::string> columns;
  std::vector<std::vector<std::pair<std::string, sim::Json>>> rows(results.size());
  for (std::size_t p = 0; p < results.size(); ++p) {
    flatten(results[p], "", rows[p]);
    for (const auto& [path, value] : rows[p]) {
      if (std::ranges::find(columns, path) == columns.end()) columns.push_back(path);
    }
  }
  std::string text;
  std::vector<std::string> fields;
  for (const sim::Axis& axis : axes) fields.push_back(axis.name);
  fields.insert(fields.end(), columns.begin(), columns.end());
  append_line(text, fields);
  for (std::size_t p = 0; p < results.size(); ++p) {
    fields = points[p].labels;
    for (const std::string& column : columns) {
      const auto found =
          std::ranges::find(rows[p], column, &std::pair<std::string, sim::Json>::first);
      const bool there = found != rows[p].end() && !found->second.is_null();
      fields.push_back(!there                      ? ""
                       : found->second.is_string() ? found->second.get<std::string>()
                                                   : found->second.dump());
    }
    append_line(text, fields);
  }
  return text;
}

std::vector<std::vector<std::string>> sweep_table(const std::vector<sim::Axis>& axes,
                                                  const std::vector<sim::SweepPoint>& points,
                                                  const std::vector<sim::Json>& results) {
  std::vector<std::vector<std::string>> rows(1);
  const bool jobs =
      std::ranges::any_of(results, [](const sim::Json& r) { return !r["jobs"].empty(); });
  for (const sim::Axis& axis : axes) rows[0].push_back(axis.name);
  if (jobs) rows[0].insert(rows[0].end(), {"iteration (ms)", "samples/s"});
  rows[0].insert(rows[0].end(),
                 {"flows", "mean FCT (ms)", "p99 (ms)", "loss", "timeouts", "marks", "busiest"});
  for (std::size_t p = 0; p < points.size(); ++p) {
    const sim::Json& r = results[p];
    std::vector<std::string> row = points[p].labels;
    if (jobs) {
      row.push_back(number_at(r, "jobs.0.mean_iteration_ms", "{:.3f}"));
      row.push_back(number_at(r, "jobs.0.samples_per_s", "{:.1f}"));
    }
    row.push_back(number_at(r, "flow_completion_ms.count", "{:.0f}"));
    row.push_back(number_at(r, "flow_completion_ms.mean", "{:.3f}"));
    row.push_back(number_at(r, "flow_completion_ms.p99", "{:.3f}"));
    row.push_back(number_at(r, "loss", "{:.5f}"));
    row.push_back(number_at(r, "timeouts", "{:.0f}"));
    row.push_back(number_at(r, "marks", "{:.0f}"));
    row.push_back(number_at(r, "highest_utilisation", "{:.3f}"));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace thalweg::lab
