#include "tune/switch_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/segment_tag.h"
#include "tensor/tags.h"

namespace thalweg::tune {
namespace {

using Json = nlohmann::ordered_json;

// The queue for traffic that is not ours: it is served last.
constexpr int kOtherTrafficQueue = 0;

int hardware_queue(std::uint8_t priority) { return kPriorityCount - 1 - priority; }

// The control priority, then those of the data queues.
std::vector<std::uint8_t> priorities_of(const SwitchSettings& settings) {
  std::vector<std::uint8_t> priorities{kControlPriority};
  for (const QueueSetting& queue : settings.queues) priorities.push_back(queue.priority);
  return priorities;
}

std::string text_of(std::int64_t number) { return std::to_string(number); }

}  // namespace

std::string to_scenario(const SwitchSettings& settings) {
  std::vector<std::string> thresholds;
  std::vector<std::string> limits;
  for (const QueueSetting& queue : settings.queues) {
    thresholds.push_back(to_string(queue.threshold));
    limits.push_back(to_string(queue.limit));
  }
  return fmt::format(
      "# {}\nnetwork:\n  discipline: strict-priority\n  port_buffer: {}\n"
      "  selective_thresholds: [{}]\n  queue_limits: [{}]\n",
      settings.title, to_string(settings.port_buffer), fmt::join(thresholds, ", "),
      fmt::join(limits, ", "));
}

std::string to_sonic(const SwitchSettings& settings) {
  constexpr const char* kName = "DLCP";
  constexpr const char* kScheduler = "scheduler.dlcp";
  const auto profile_name = [](std::uint8_t priority) { return fmt::format("DLCP_Q{}", priority); };
  Json dscp;
  for (int code = 0; code < tensor::kDscpCount; ++code) {
    dscp[text_of(code)] = text_of(kOtherTrafficQueue);
  }
  for (const std::uint8_t priority : priorities_of(settings)) {
    dscp[text_of(tensor::dscp_of(priority))] = text_of(hardware_queue(priority));
  }
  Json queues;
  for (int queue = 0; queue < kPriorityCount; ++queue) queues[text_of(queue)] = text_of(queue);
  Json json;
  json["DSCP_TO_TC_MAP"][kName] = std::move(dscp);
  json["TC_TO_QUEUE_MAP"][kName] = std::move(queues);
  json["SCHEDULER"][kScheduler]["type"] = "STRICT";
  for (const QueueSetting& queue : settings.queues) {
    json["WRED_PROFILE"][profile_name(queue.priority)] = {
        {"ecn", "ecn_green"},
        {"wred_green_enable", "true"},
        {"green_min_threshold", text_of(queue.threshold.count())},
        {"green_max_threshold", text_of(queue.threshold.count())},
        {"green_drop_probability", "100"}};
  }
  for (const std::string& port : settings.ports) {
    json["PORT_QOS_MAP"][port] = {{"dscp_to_tc_map", kName}, {"tc_to_queue_map", kName}};
  }
  for (const std::string& port : settings.ports) {
    for (const std::uint8_t priority : priorities_of(settings)) {
      Json entry{{"scheduler", kScheduler}};
      if (priority != kControlPriority) entry["wred_profile"] = profile_name(priority);
      json["QUEUE"][fmt::format("{}|{}", port, hardware_queue(priority))] = std::move(entry);
    }
  }
  return json.dump(2) + "\n";
}

std::string to_cumulus(const SwitchSettings& settings) {
  std::string text = fmt::format("# {}\n", settings.title);
  const auto line = [&]<class... T>(fmt::format_string<T...> format, T&&... values) {
    text += "nv set " + fmt::format(format, std::forward<T>(values)...) + "\n";
  };
  line("qos mapping default-global trust l3");
  for (const std::uint8_t priority : priorities_of(settings)) {
    line("qos mapping default-global dscp {} switch-priority {}", tensor::dscp_of(priority),
         hardware_queue(priority));
  }
  for (const std::uint8_t priority : priorities_of(settings)) {
    const int queue = hardware_queue(priority);
    line("qos egress-queue-mapping default-global switch-priority {} traffic-class {}", queue,
         queue);
  }
  line("qos egress-scheduler default-global traffic-class 0-{} mode strict", kPriorityCount - 1);
  for (const QueueSetting& setting : settings.queues) {
    const std::string to = fmt::format("qos congestion-control default-global traffic-class {}",
                                       hardware_queue(setting.priority));
    line("{} ecn enable", to);
    line("{} red enable", to);
    line("{} min-threshold {}", to, setting.threshold.count());
    line("{} max-threshold {}", to, setting.threshold.count() + 1);
    line("{} probability 100", to);
  }
  return text + "nv config apply\n";
}

std::string to_onyx(const SwitchSettings& settings) {
  constexpr std::int64_t kKilobyte = 1024;
  std::string text = fmt::format("## {}\n", settings.title);
  for (const std::string& port : settings.ports) {
    const auto line = [&]<class... T>(fmt::format_string<T...> format, T&&... values) {
      text += fmt::format("interface ethernet {} ", port) +
              fmt::format(format, std::forward<T>(values)...) + "\n";
    };
    line("qos trust L3");
    for (const std::uint8_t priority : priorities_of(settings)) {
      const int queue = hardware_queue(priority);
      line("qos map dscp {} to switch-priority {}", tensor::dscp_of(priority), queue);
      line("traffic-class {} bind switch-priority {}", queue, queue);
      line("traffic-class {} dcb ets strict", queue);
    }
    for (const QueueSetting& setting : settings.queues) {
      const std::int64_t kilobytes =
          std::max<std::int64_t>(1, setting.threshold.count() / kKilobyte);
      line("traffic-class {} congestion-control both minimum-absolute {} maximum-absolute {}",
           hardware_queue(setting.priority), kilobytes, kilobytes);
    }
  }
  return text;
}

}  // namespace thalweg::tune
