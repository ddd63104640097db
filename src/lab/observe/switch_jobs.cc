#include "lab/observe/switch_jobs.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "base/units.h"
#include "lab/console.h"
#include "lab/observe/reach.h"
#include "net/io/address.h"
#include "net/io/system.h"

namespace thalweg::lab {
namespace {

using nlohmann::json;

Result<json> ask_switch(const SwitchControl& control, json request) {
  const Time until = net::monotonic_now() + Duration::seconds(control.timeout_s);
  THALWEG_TRY_STATUS(check_listening(
      control.address, {.what = "switch", .usual_port = 7700, .hint = "thalweg switch starts one"},
      until));
  THALWEG_TRY(net::SwitchClient client,
              net::SwitchClient::connect(control.address, control.secrets, until));
  return client.ask(std::move(request), until);
}

// Replaces the names of hosts by their addresses. A switch takes no names, because it would have to
// wait for their addresses. `field` begins the error.
Status look_up(std::vector<std::string>& ends, const char* field) {
  for (std::string& end : ends) {
    const Result<net::SocketAddress> address = net::SocketAddress::resolve(end);
    if (!address.ok()) return address.error().within(field);
    end = address->to_string();
  }
  return ok_status();
}

}  // namespace

Result<net::JobGrant> create_switch_job(const SwitchControl& control, net::JobRequest wanted) {
  THALWEG_TRY_STATUS(look_up(wanted.workers, "--workers"));
  THALWEG_TRY_STATUS(look_up(wanted.servers, "--servers"));
  json request = net::to_json(wanted);
  request["op"] = "create";
  THALWEG_TRY(const json answer, ask_switch(control, std::move(request)));
  return net::job_grant_from(answer);
}

std::string job_grant_text(const net::JobGrant& grant) {
  std::string text = fmt::format("job {}\n", grant.id);
  if (!grant.key.empty()) text += fmt::format("key {}\n", grant.key);
  for (const std::string& address : grant.data) {
    text += fmt::format("data {}\n", printable(address));
  }
  return text;
}

Result<json> list_switch_jobs(const SwitchControl& control) {
  return ask_switch(control, {{"op", "list"}});
}

std::string switch_jobs_text(const json& answer) {
  std::vector<std::vector<std::string>> rows{{"job", "name", "workers", "servers", "limit"}};
  for (const json& job : answer.value("jobs", json::array())) {
    const auto limit = job.value("limit", 0U);
    rows.push_back({fmt::format("{}", job.value("job", 0U)), job.value("name", ""),
                    fmt::format("{}", job.value("workers", json::array()).size()),
                    fmt::format("{}", job.value("servers", json::array()).size()),
                    limit == 0 ? "none" : fmt::format("{}", limit)});
  }
  return format_table(rows);
}

Status remove_switch_job(const SwitchControl& control, std::uint32_t job) {
  THALWEG_TRY([[maybe_unused]] const json answer,
              ask_switch(control, {{"op", "remove"}, {"job", job}}));
  return ok_status();
}

Result<json> switch_job_stats(const SwitchControl& control, std::uint32_t job) {
  json request{{"op", "stats"}};
  if (job != 0) request["job"] = job;
  return ask_switch(control, std::move(request));
}

std::string switch_stats_text(const json& answer) {
  std::vector<std::vector<std::string>> rows{{"of", "counter", "count"}};
  const auto add = [&](const std::string& of, const json& counters) {
    for (const auto& [name, count] : counters.items()) {
      if (count.is_number()) rows.push_back({of, name, count.dump()});
    }
  };
  for (const json& job : answer.value("jobs", json::array())) {
    const std::string name = fmt::format("job {}", job.value("job", 0U));
    add(name, job.value("counters", json::object()));
    for (const json& port : job.value("ports", json::array())) {
      add(fmt::format("{} {}", name, port.value("address", "")), port);
    }
  }
  add("switch", answer.value("switch", json::object()));
  return format_table(rows);
}

}  // namespace thalweg::lab
