// The step that `thalweg bench step` replays, its limit and its forecast.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lab/bench/step/forecast.h"
#include "lab/bench/step/limit.h"
#include "lab/bench/step/schedule.h"
#include "lab/bench/step/settings.h"
#include "lab/files.h"
#include "topology/format/load.h"

namespace thalweg::lab::step {
namespace {

constexpr std::int64_t kMega = (1 << 20) / 4;  // elements of 1 MiB

Duration ms(int count) { return Duration::milliseconds(count); }

sim::ModelLayer layer(const char* name, std::vector<std::int64_t> tensors, int forward,
                      int backward) {
  std::int64_t parameters = 0;
  for (const std::int64_t elements : tensors) parameters += elements;
  return {.name = name,
          .parameters = parameters,
          .tensors = std::move(tensors),
          .forward = ms(forward),
          .backward = ms(backward)};
}

sim::ModelTable table(std::vector<sim::ModelLayer> layers) {
  return {.name = "net", .batch = 1, .sample = {}, .device = "none", .layers = std::move(layers)};
}

topology::Topology star(const std::string& shorthand) {
  return *topology::topology_from_shorthand(shorthand);
}

Library library(const char* name) { return *library_of(name); }

TEST(StepSchedule, schedule_of__buckets_are_closed_by_the_gradient_that_fills_them) {
  const auto model = table({layer("front", {20 * kMega}, 1, 2), layer("middle", {10 * kMega}, 3, 4),
                            layer("back", {kMega}, 5, 6)});
  const Schedule schedule = *schedule_of(model, {});
  // The first bucket holds 1 MiB, as DDP's. The second is full with 30 MiB only after the front.
  ASSERT_EQ(schedule.buckets.size(), 2U);
  EXPECT_EQ(schedule.buckets[0].elements, kMega);
  EXPECT_EQ(schedule.buckets[0].backward, ms(6));
  EXPECT_EQ(schedule.buckets[1].elements, 30 * kMega);
  EXPECT_EQ(schedule.buckets[1].forward, ms(4));
  EXPECT_EQ(schedule.buckets[1].backward, ms(6));
  EXPECT_EQ(schedule.forward(), ms(9));
  EXPECT_EQ(schedule.backward(), ms(12));
}

TEST(StepSchedule, schedule_of__a_layer_in_two_buckets_is_ready_once_and_waits_for_both) {
  const auto model =
      table({layer("front", {kMega}, 1, 2), layer("back", {3 * kMega, 2 * kMega}, 3, 4)});
  const Schedule schedule = *schedule_of(model, {.bucket = Bytes(4 << 20)});
  ASSERT_EQ(schedule.buckets.size(), 2U);
  EXPECT_EQ(schedule.buckets[0].elements, 2 * kMega);
  EXPECT_EQ(schedule.buckets[0].backward, ms(4));
  EXPECT_EQ(schedule.buckets[0].forward, ms(3));
  EXPECT_EQ(schedule.buckets[1].elements, 4 * kMega);
  EXPECT_EQ(schedule.buckets[1].backward, ms(2));
}

TEST(StepSchedule, schedule_of__the_same_buckets_at_every_scale) {
  const auto model = table({layer("front", {40 * kMega}, 10, 20), layer("back", {8}, 10, 10)});
  const Schedule whole = *schedule_of(model, {});
  const Schedule part = *schedule_of(model, {.scale = 0.1});
  ASSERT_EQ(whole.buckets.size(), part.buckets.size());
  EXPECT_EQ(part.buckets[0].elements, 1'048'577);  // rounded
  EXPECT_EQ(part.forward(), ms(2));
  const auto tiny = schedule_of(model, {.bucket = Bytes(1), .scale = 1e-9});
  EXPECT_EQ(tiny->buckets[0].elements, 1);
}

TEST(StepSchedule, schedule_of__a_model_without_times_is_refused) {
  const auto schedule = schedule_of(table({layer("only", {8}, 0, 0)}), {});
  ASSERT_FALSE(schedule.ok());
  EXPECT_NE(schedule.error().message().find("no times"), std::string::npos);
}

TEST(StepSchedule, table_of__has_the_front_first) {
  const auto model = table({layer("front", {kMega}, 1, 2), layer("back", {2 * kMega}, 3, 4)});
  const sim::ModelTable buckets = table_of(*schedule_of(model, {}));
  ASSERT_EQ(buckets.layers.size(), 2U);
  EXPECT_EQ(buckets.layers[0].parameters, kMega);
  EXPECT_EQ(buckets.layers[1].backward, ms(4));
}

TEST(StepLimit, wire_time__counts_headers_and_both_ways_of_each_part) {
  const auto four = star("single-switch:hosts=4,host=100M,delay=1us");
  const Bytes size(1'000'000);
  // 2 · 3/4 of the tensor leaves every host, in packets of 1448 of 1500 bytes.
  const double tcp = 1.5 * 8e6 / 1e8 * 1500 / 1448;
  EXPECT_NEAR(wire_time(four, library("tcp"), size, 0).s(), tcp, 1e-9);
  EXPECT_NEAR(wire_time(four, library("gloo"), size, 0).s(), tcp, 1e-9);
  EXPECT_NEAR(wire_time(four, library("dlcp"), size, 0.1).s(), 1.5 * 8e6 / 1e8 * 1468 / 1400, 1e-9);
  EXPECT_NEAR(wire_time(four, library("dlcp+bound"), size, 0.1).s(),
              0.9 * 1.5 * 8e6 / 1e8 * 1468 / 1400, 1e-9);
  // A switch that sums takes the tensor once and gives it back once.
  EXPECT_NEAR(wire_time(four, library("atp"), size, 0).s(), 8e6 / 1e8 * 1096 / 1024, 1e-9);
}

TEST(StepLimit, wire_time__a_slow_uplink_carries_the_tensor_once) {
  const auto racks = star("leaf-spine:racks=2,hosts=4,spines=1,host=1G,uplink=100M");
  EXPECT_NEAR(wire_time(racks, library("rat"), Bytes(1'000'000), 0).s(), 8e6 / 1e8 * 1500 / 1448,
              1e-9);
}

TEST(StepLimit, step_limit__ddp_waits_for_the_last_bucket) {
  const auto two = star("single-switch:hosts=2,host=1500M,delay=1us");
  // 181 kB take 1 ms of goodput at 1448 Mb/s.
  const auto bucket = [](int milliseconds, int forward, int backward) {
    return Bucket{
        .elements = 181'000 / 4 * milliseconds, .forward = ms(forward), .backward = ms(backward)};
  };
  const Schedule links_wait{.order = Order::kDdp, .buckets = {bucket(1, 2, 3), bucket(4, 2, 5)}};
  EXPECT_NEAR(step_limit(two, library("tcp"), links_wait, 0).ms(), 4 + 8 + 4, 1e-3);
  const Schedule device_waits{.order = Order::kDdp, .buckets = {bucket(9, 2, 3), bucket(4, 2, 5)}};
  EXPECT_NEAR(step_limit(two, library("tcp"), device_waits, 0).ms(), 4 + 3 + 9 + 4, 1e-3);
}

TEST(StepLimit, step_limit__layerwise_is_the_longest_of_device_links_and_cycles) {
  const auto two = star("single-switch:hosts=2,host=1500M,delay=1us");
  const auto limit = [&](int back_ms, int front_ms) {
    const Schedule schedule{
        .order = Order::kLayerwise,
        .buckets = {{.elements = 181'000 / 4 * back_ms, .forward = ms(2), .backward = ms(3)},
                    {.elements = 181'000 / 4 * front_ms, .forward = ms(2), .backward = ms(5)}}};
    return step_limit(two, library("tcp"), schedule, 0).ms();
  };
  EXPECT_NEAR(limit(0, 0), 12, 1e-3);            // the device computes without a pause
  EXPECT_NEAR(limit(10, 11), 4 + 8 + 11, 1e-3);  // the front waits for itself
  EXPECT_NEAR(limit(30, 11), 41, 1e-3);          // the links are never idle
}

TEST(StepLibraries, library_of__reads_what_is_added) {
  const Library both = library("dlcp+bound+priority");
  EXPECT_TRUE(both.bounded && both.prioritized);
  EXPECT_EQ(both.transport, Transport::kDlcp);
  EXPECT_EQ(library("ps").scheme, "ps");
  EXPECT_TRUE(library("rat+priority").knows_topology);
  EXPECT_EQ(library("auto").transport, Transport::kAuto);
  EXPECT_TRUE(library("auto+bound").bounded);
  for (const char* bad : {"", "nccl", "tcp+bound", "atp+priority", "dlcp+", "dlcp+bound+bound"}) {
    EXPECT_FALSE(library_of(bad).ok()) << bad;
  }
}

TEST(StepForecast, forecast__is_near_the_limit_without_loss) {
  Settings settings{.schedule = *schedule_of(
                        table({layer("front", {20'000}, 2, 4), layer("back", {60'000}, 2, 4)}),
                        {.bucket = Bytes(200'000)}),
                    .libraries = {},
                    .topology = star("single-switch:hosts=4,host=100M,delay=10us"),
                    .ranks = 4};
  for (const char* name : {"gloo", "tcp", "dlcp", "dlcp+priority", "rat", "ps", "atp"}) {
    const auto predicted =
        forecast(settings, library(name), {.steps = 6, .aggregate = {"switch0"}});
    ASSERT_TRUE(predicted.ok()) << name << ": " << predicted.error().message();
    ASSERT_TRUE(predicted->has_value()) << name;
    const double limit = step_limit(*settings.topology, library(name), settings.schedule, 0).ms();
    EXPECT_GE((*predicted)->ms(), 0.98 * limit) << name;
    EXPECT_LE((*predicted)->ms(), 1.7 * limit) << name;
  }
  for (const char* name : {"gloo", "tcp"}) {
    const std::string text = scenario_text(settings, library(name), {}).value();
    EXPECT_NE(text.find("kind: cubic, sack: on, hystart: on"), std::string::npos) << text;
  }
  EXPECT_FALSE(forecast(settings, library("tcp+priority"), {})->has_value());
  settings.schedule.order = Order::kLayerwise;
  EXPECT_FALSE(forecast(settings, library("tcp"), {})->has_value());
  EXPECT_TRUE(forecast(settings, library("tcp+priority"), {.steps = 6})->has_value());
}

TEST(StepSettings, settings_of__resnet18_has_the_buckets_of_ddp) {
  const auto settings = settings_of({.testbed = "single-switch:hosts=4,host=50M",
                                     .topology = {},
                                     .model = "models/resnet18.yaml",
                                     .against = {"gloo"}});
  ASSERT_TRUE(settings.ok()) << settings.error().message();
  std::vector<std::int64_t> elements;
  for (const Bucket& bucket : settings->schedule.buckets) elements.push_back(bucket.elements);
  // The classifier; the last three large convolutions; the rest.
  EXPECT_EQ(elements, (std::vector<std::int64_t>{513'000, 7'213'056, 3'963'456}));
  EXPECT_EQ(settings->schedule.size(), Bytes(11'689'512 * 4));
  ASSERT_EQ(settings->libraries.size(), 3U);
  EXPECT_EQ(settings->libraries[0].name, "gloo");
}

}  // namespace
}  // namespace thalweg::lab::step
