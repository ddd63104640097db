// What a timeline has of the inside of calls: transfers, losses and stalls.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <thalweg/communicator.h>

#include "net/group/operation/step_notes.h"
#include "net/ranks.h"

namespace thalweg::net {
namespace {

using Json = nlohmann::json;

Time at_us(int us) { return Time::at(Duration::microseconds(us)); }

// Runs ranks as threads of this process, which has one timeline. Returns what it says.
Json timeline_of(const CommunicatorOptions& options, const RankBody& body) {
  std::string folder = (std::filesystem::temp_directory_path() / "steps-XXXXXX").string();
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  EXPECT_EQ(setenv("THALWEG_TIMELINE", (folder + "/run.json").c_str(), 1), 0);
  run_ranks(2, options, body);
  EXPECT_EQ(unsetenv("THALWEG_TIMELINE"), 0);
  Json all;
  // The rank that came first has given the file its name.
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(file.path());
    all = Json::parse(in);
  }
  std::filesystem::remove_all(folder);
  return all;
}

// Events by what they say: "send", "receive", "stall", "sent again", "never came".
std::map<std::string, std::vector<Json>> steps_in(const Json& timeline) {
  std::map<std::string, std::vector<Json>> found;
  for (const Json& event : timeline.at("traceEvents")) {
    for (const char* key : {"step", "loss"}) {
      if (event.at("args").contains(key)) found[event["args"][key]].push_back(event);
    }
  }
  return found;
}

CommunicatorOptions over_streams() {
  CommunicatorOptions options;
  options.shared_memory = false;
  return options;
}

TEST(StepNotes, send__from_its_first_bytes_to_its_last) {
  const exec::RankPlan plan = exec::message_plan(100, 4, true);
  std::vector<std::byte> memory(400);
  const std::array<std::byte*, 1> places{memory.data()};
  exec::StreamExecutor executor;
  executor.start(plan, DType::kFloat32, ReduceOp::kSum, places);
  StepNotes notes;
  notes.begin(plan);
  notes.on_send(0, at_us(10));
  executor.sent(0, 100);
  notes.look(executor, at_us(20));
  EXPECT_TRUE(notes.steps().empty());
  notes.on_send(0, at_us(30));
  executor.sent(0, 300);
  notes.look(executor, at_us(40));
  notes.close(at_us(50));
  ASSERT_EQ(notes.steps().size(), 1U);
  const StepNotes::Step& step = notes.steps().front();
  EXPECT_EQ(step.start, at_us(10));
  EXPECT_EQ(step.end, at_us(40));
  EXPECT_TRUE(step.sends);
  EXPECT_EQ(step.peer, Rank(1));
  EXPECT_EQ(step.bytes, 400U);
}

TEST(StepNotes, close__ends_what_is_not_complete) {
  const exec::RankPlan plan = exec::message_plan(100, 4, false);
  StepNotes notes;
  notes.begin(plan);
  notes.on_arrival(0, at_us(10));
  notes.close(at_us(50));
  ASSERT_EQ(notes.steps().size(), 1U);
  EXPECT_EQ(notes.steps().front().end, at_us(50));
  EXPECT_FALSE(notes.steps().front().sends);
  EXPECT_EQ(notes.steps().front().peer, Rank(0));
}

TEST(StepNotes, notes__are_bounded) {
  StepNotes notes;
  for (std::size_t i = 0; i < StepNotes::kMostNotes + 3; ++i) {
    notes.add_loss({.at = at_us(1), .peer = Rank(0), .count = 1});
  }
  EXPECT_EQ(notes.losses().size(), StepNotes::kMostNotes);
  EXPECT_EQ(notes.left_out(), 3U);
}

TEST(TimelineSteps, streams__every_byte_of_the_plan_once_in_each_direction) {
  constexpr std::size_t kElements = 100'000;
  constexpr int kCalls = 5;
  const Json timeline = timeline_of(over_streams(), [](Communicator& all) {
    std::vector<float> values(kElements, 1.0F);
    for (int i = 0; i < kCalls; ++i) {
      ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {.scheme = "ring"}).ok());
    }
  });
  const auto steps = steps_in(timeline);
  EXPECT_EQ(timeline["otherData"]["calls_without_steps"], 0);
  // Two ranks, each half of the tensor to be added and each half of the result.
  const std::int64_t expected = std::int64_t{kCalls} * 2 * kElements * sizeof(float);
  for (const char* kind : {"send", "receive"}) {
    ASSERT_TRUE(steps.contains(kind));
    std::int64_t bytes = 0;
    std::set<int> calls;
    for (const Json& step : steps.at(kind)) {
      bytes += step["args"]["bytes"].get<std::int64_t>();
      calls.insert(step["args"]["number"].get<int>());
      EXPECT_GE(step["dur"].get<double>(), 0);
      EXPECT_GE(step["args"]["chunk"].get<int>(), 0);
    }
    EXPECT_EQ(bytes, expected) << kind;
    EXPECT_EQ(calls.size(), kCalls) << kind;
  }
}

TEST(TimelineSteps, channels__the_steps_of_all_parts) {
  CommunicatorOptions options = over_streams();
  options.channels = 2;
  options.channel_bytes = 64 << 10;
  constexpr std::size_t kElements = 100'000;
  const auto steps = steps_in(timeline_of(options, [](Communicator& all) {
    std::vector<float> values(kElements, 1.0F);
    ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {.scheme = "ring"}).ok());
  }));
  std::int64_t bytes = 0;
  for (const Json& step : steps.at("send")) bytes += step["args"]["bytes"].get<std::int64_t>();
  EXPECT_EQ(bytes, std::int64_t{2} * kElements * sizeof(float));
  // Two ranks send two halves each, and each half in two parts.
  EXPECT_EQ(steps.at("send").size(), 8U);
}

TEST(TimelineSteps, shared_memory__has_steps_too) {
  const auto steps = steps_in(timeline_of({}, [](Communicator& all) {
    for (const std::size_t elements : {8U, 50'000U, 8U}) {
      std::vector<float> values(elements, 1.0F);
      ASSERT_TRUE(all.allreduce(TensorSpan::of(values)).ok());
    }
  }));
  EXPECT_GE(steps.at("send").size(), 6U);
  EXPECT_EQ(steps.at("receive").size(), steps.at("send").size());
}

TEST(TimelineSteps, dlcp__what_is_sent_again_and_what_never_came) {
  const ScopedLoss loss(lose_one_in(10));
  CommunicatorOptions options = over_dlcp();
  options.dlcp_payload = 1024;
  const auto steps = steps_in(timeline_of(options, [](Communicator& all) {
    std::vector<float> exact(100'000, 1.0F);
    ASSERT_TRUE(all.allreduce(TensorSpan::of(exact)).ok());
    std::vector<float> lossy(100'000, 1.0F);
    ASSERT_TRUE(
        all.allreduce(TensorSpan::of(lossy), {.op = ReduceOp::kMean, .loss_bound = 0.3}).ok());
  }));
  EXPECT_FALSE(steps.at("send").empty());
  EXPECT_FALSE(steps.at("receive").empty());
  for (const char* kind : {"sent again", "never came"}) {
    ASSERT_TRUE(steps.contains(kind)) << kind;
    for (const Json& lost : steps.at(kind)) EXPECT_GT(lost["args"]["count"].get<int>(), 0);
  }
}

TEST(TimelineSteps, stall__data_that_waits_for_a_rank_that_has_not_called) {
  using namespace std::chrono_literals;
  // Rank 0 may be late itself on a busy machine, so rank 1 is late by more each time.
  const auto steps = steps_in(timeline_of(over_streams(), [](Communicator& all) {
    for (int turn = 1; turn <= 8; ++turn) {
      if (all.rank() == 1) std::this_thread::sleep_for(turn * 25ms);
      std::vector<float> values(1000, 1.0F);
      ASSERT_TRUE(all.allreduce(TensorSpan::of(values)).ok());
    }
  }));
  ASSERT_TRUE(steps.contains("stall"));
  for (const Json& stall : steps.at("stall")) EXPECT_GT(stall["dur"].get<double>(), 0);
}

}  // namespace
}  // namespace thalweg::net
