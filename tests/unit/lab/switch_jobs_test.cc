// Tables about a switch's jobs hold what clients of the switch wrote.
#include "lab/observe/switch_jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace thalweg::lab {
namespace {

using nlohmann::json;

// Moves to the terminal's first line, erases it and sets the window's title.
constexpr const char* kHostile = "\x1b[1;1H\x1b[2K\x1b]0;owned\a\njob 2";
constexpr const char* kEscaped = "\\x1b[1;1H\\x1b[2K\\x1b]0;owned\\x07\\x0ajob 2";

void expect_escaped(const std::string& text, std::size_t lines) {
  EXPECT_NE(text.find(kEscaped), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')), lines) << text;
}

TEST(SwitchJobs, switch_jobs_text__a_name_cannot_steer_the_terminal) {
  expect_escaped(switch_jobs_text({{"jobs", {{{"job", 1U}, {"name", kHostile}}}}}), 2);
}

TEST(SwitchJobs, switch_stats_text__addresses_and_counters_cannot_steer_the_terminal) {
  const json port = {{"address", kHostile}, {"packets_in", 1U}};
  const json job = {{"job", 1U}, {"ports", json::array({port})}};
  expect_escaped(switch_stats_text({{"jobs", json::array({job})}}), 2);
  expect_escaped(switch_stats_text({{"switch", {{kHostile, 1U}}}}), 2);
}

TEST(SwitchJobs, job_grant_text__addresses_cannot_steer_the_terminal) {
  net::JobGrant grant;
  grant.data = {kHostile};
  expect_escaped(job_grant_text(grant), 2);
}

}  // namespace
}  // namespace thalweg::lab
