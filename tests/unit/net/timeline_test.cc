// The timeline of a process, and the debug log.
#include "net/job/timeline.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "net/job/debug_log.h"
#include "net/job/environment.h"

namespace thalweg::net {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

class TimelineFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "timeline-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

TEST(TimelinePath, names_the_rank) {
  EXPECT_EQ(*timeline_path("run.json", 3), "run.3.json");
  EXPECT_EQ(*timeline_path("run", 3), "run.3");
  EXPECT_EQ(*timeline_path("/a.b/run", 12), "/a.b/run.12");
  EXPECT_EQ(*timeline_path("/a/.run", 1), "/a/.run.1");
  EXPECT_EQ(*timeline_path("%r/run-%r.json", 3), "3/run-3.json");
  for (const char* bad : {"run-%h.json", "run%"}) {
    const auto path = timeline_path(bad, 0);
    ASSERT_FALSE(path.ok());
    EXPECT_NE(path.error().message().find("only %r, the rank, is known"), std::string::npos);
  }
}

TEST_F(TimelineFiles, of_process__a_file_that_cannot_be_written_is_an_error) {
  const auto made = Timeline::of_process(at("none/run.json"), 0, 1);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message().find("THALWEG_TIMELINE: cannot write"), std::string::npos);
  EXPECT_NE(made.error().message().find("none/run.0.json"), std::string::npos);
}

TEST_F(TimelineFiles, end_iteration__is_a_mark_of_the_rank) {
  EXPECT_EQ(Timeline::existing(), nullptr);
  auto timeline = *Timeline::of_process(at("run.json"), 1, 2);
  EXPECT_EQ(Timeline::existing(), timeline);
  timeline->end_iteration();
  Timeline::existing()->end_iteration();
  timeline.reset();
  EXPECT_EQ(Timeline::existing(), nullptr);
  EXPECT_EQ(count_of(content_of(at("run.1.json")), "\"what\":\"iteration\""), 2U);
}

TEST_F(TimelineFiles, watch__calls_are_written_when_the_last_owner_is_gone) {
  auto timeline = *Timeline::of_process(at("run.json"), 1, 2);
  ASSERT_EQ(timeline, *Timeline::of_process(at("other.json"), 1, 2));  // one for a process
  bool told = false;
  {
    Operation::State first;
    Operation::State second;
    first.on_over = [&] { told = true; };
    timeline->watch(first, {.name = "allreduce",
                            .group = "world",
                            .scheme = "ring",
                            .transport = "tcp",
                            .size = Bytes(4000),
                            .number = 7});
    timeline->watch(second, {.name = "send", .group = "world", .transport = "tcp"});
    first.end(ok_status());
    second.end(ok_status());
  }
  EXPECT_TRUE(told);
  EXPECT_EQ(content_of(at("run.1.json")), "");
  timeline.reset();
  const std::string text = content_of(at("run.1.json"));
  EXPECT_EQ(count_of(text, "\"ph\":\"X\""), 2U);
  for (const char* part :
       {"\"name\":\"allreduce\"", "\"bytes\":4000", "\"scheme\":\"ring\"", "\"transport\":\"tcp\"",
        "\"group\":\"world\"", "\"number\":7", "\"outcome\":\"ok\"", "\"rank\":1", "\"size\":2",
        "\"left_out\":0", "\"realtime_us\":", "\"boot\":"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_FALSE(std::filesystem::exists(at("other.1.json")));
  // Both were in flight at once, so they have rows of their own.
  EXPECT_NE(text.find("\"lane\":1"), std::string::npos);
}

TEST_F(TimelineFiles, watch__a_failure_is_written_at_once) {
  auto timeline = *Timeline::of_process(at("run-%r.json"), 0, 2);
  Operation::State op;
  timeline->watch(op, {.name = "barrier", .group = "world", .transport = "tcp", .number = 0});
  op.end(Error(ErrorCode::kPeerLost, "rank 1 is gone", 1));
  EXPECT_NE(content_of(at("run-0.json")).find("\"outcome\":\"failed\""), std::string::npos);
}

TEST_F(TimelineFiles, watch__is_bounded) {
  auto timeline = *Timeline::of_process(at("run.json"), 0, 1);
  for (std::size_t i = 0; i < Timeline::kMostCalls + 5; ++i) {
    Operation::State op;
    timeline->watch(op, {.name = "barrier", .group = "world", .transport = "tcp"});
    op.end(ok_status());
  }
  timeline.reset();
  const std::string text = content_of(at("run.0.json"));
  EXPECT_EQ(count_of(text, "\"ph\":\"X\""), Timeline::kMostCalls);
  EXPECT_NE(text.find("\"left_out\":5"), std::string::npos);
}

TEST(DebugLog, level__is_one_of_three) {
  EXPECT_EQ(*parse_debug_level("WARN"), DebugLevel::kWarn);
  EXPECT_EQ(*parse_debug_level("INFO"), DebugLevel::kInfo);
  EXPECT_EQ(*parse_debug_level("TRACE"), DebugLevel::kTrace);
  const auto bad = environment_from([](const std::string& name) -> std::optional<std::string> {
    return name == "THALWEG_DEBUG" ? std::optional<std::string>("info") : std::nullopt;
  });
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message(), "THALWEG_DEBUG: 'info' is not allowed: WARN, INFO or TRACE");
}

TEST(DebugLog, lines__name_rank_host_and_process) {
  testing::internal::CaptureStderr();
  const DebugLog log(DebugLevel::kInfo, 3);
  log.info("{} channels", 2);
  log.trace("not shown");
  log.quieter().info("not shown");
  log.quieter().warn("lost");
  DebugLog().warn("not shown");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find(" [3] INFO: 2 channels\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" [3] WARN: lost\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("not shown"), std::string::npos) << text;
}

}  // namespace
}  // namespace thalweg::net
