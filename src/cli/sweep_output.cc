#include "cli/sweep_output.h"

#include <fmt/format.h>

#include <algorithm>

namespace thalweg {
namespace {

// RFC 4180.
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

// Every value of a result by its path, lists of iterations left out: they differ in length.
void flatten(const Json& node, const std::string& path,
             std::vector<std::pair<std::string, Json>>& out) {
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

std::string number_at(const Json& result, std::string_view path, const char* format) {
  const Result<double> value = measure_of(result, path);
  return value.ok() ? fmt::format(fmt::runtime(format), *value) : "-";
}

}  // namespace

Json sweep_json(const std::vector<Axis>& axes, const std::vector<SweepPoint>& points,
                const std::vector<Json>& results) {
  Json names = Json::array();
  for (const Axis& axis : axes) names.push_back(axis.name);
  Json list = Json::array();
  for (std::size_t p = 0; p < points.size(); ++p) {
    Json at = Json::object();
    for (std::size_t a = 0; a < axes.size(); ++a) at[axes[a].name] = points[p].labels[a];
    list.push_back({{"at", at}, {"result", results[p]}});
  }
  return {{"axes", names}, {"points", list}};
}

std::string points_csv(const std::vector<Axis>& axes, const std::vector<SweepPoint>& points,
                       const std::vector<Json>& results) {
  // A column for every path that some point has, in the order they are met.
  std::vector<std::string> columns;
  std::vector<std::vector<std::pair<std::string, Json>>> rows(results.size());
  for (std::size_t p = 0; p < results.size(); ++p) {
    flatten(results[p], "", rows[p]);
    for (const auto& [path, value] : rows[p]) {
      if (std::ranges::find(columns, path) == columns.end()) columns.push_back(path);
    }
  }
  std::string text;
  std::vector<std::string> fields;
  for (const Axis& axis : axes) fields.push_back(axis.name);
  fields.insert(fields.end(), columns.begin(), columns.end());
  append_line(text, fields);
  for (std::size_t p = 0; p < results.size(); ++p) {
    fields = points[p].labels;
    for (const std::string& column : columns) {
      const auto found = std::ranges::find(rows[p], column, &std::pair<std::string, Json>::first);
      const bool there = found != rows[p].end() && !found->second.is_null();
      fields.push_back(!there                      ? ""
                       : found->second.is_string() ? found->second.get<std::string>()
                                                   : found->second.dump());
    }
    append_line(text, fields);
  }
  return text;
}

std::vector<std::vector<std::string>> sweep_table(const std::vector<Axis>& axes,
                                                  const std::vector<SweepPoint>& points,
                                                  const std::vector<Json>& results) {
  std::vector<std::vector<std::string>> rows(1);
  const bool jobs = std::ranges::any_of(results, [](const Json& r) { return !r["jobs"].empty(); });
  for (const Axis& axis : axes) rows[0].push_back(axis.name);
  if (jobs) rows[0].insert(rows[0].end(), {"iteration (ms)", "samples/s"});
  rows[0].insert(rows[0].end(), {"flows", "mean FCT (ms)", "p99 (ms)", "loss", "marks", "busiest"});
  for (std::size_t p = 0; p < points.size(); ++p) {
    const Json& r = results[p];
    std::vector<std::string> row = points[p].labels;
    if (jobs) {
      row.push_back(number_at(r, "jobs.0.mean_iteration_ms", "{:.3f}"));
      row.push_back(number_at(r, "jobs.0.samples_per_s", "{:.1f}"));
    }
    row.push_back(number_at(r, "flow_completion_ms.count", "{:.0f}"));
    row.push_back(number_at(r, "flow_completion_ms.mean", "{:.3f}"));
    row.push_back(number_at(r, "flow_completion_ms.p99", "{:.3f}"));
    row.push_back(number_at(r, "loss", "{:.5f}"));
    row.push_back(number_at(r, "marks", "{:.0f}"));
    row.push_back(number_at(r, "highest_utilisation", "{:.3f}"));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace thalweg
