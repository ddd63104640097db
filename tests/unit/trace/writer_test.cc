#include "trace/writer.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <vector>

#include "base/prng.h"
#include "trace/format.h"
#include "trace/json_check.h"

namespace thalweg::trace {
namespace {

constexpr Time at_ps(std::int64_t ps) { return Time::at(Duration::picoseconds(ps)); }

const std::vector<Event>& sample_events() {
  static const std::vector<Event> events{
      ComputeEvent{.start = at_ps(0), .end = at_ps(1'500'000), .rank = Rank(3), .what = "conv1"},
      TransferEvent{.start = at_ps(1'500'000),
                    .end = at_ps(14'000'001),
                    .source = Rank(3),
                    .target = Rank(0),
                    .chunk = ChunkIndex(7),
                    .size = Bytes(1024)},
      CounterEvent{.at = at_ps(2), .rank = Rank(3), .counter = "in flight", .value = 0.1},
      CounterEvent{.at = at_ps(2), .rank = {}, .counter = "queue", .value = 3},
      MarkEvent{.at = at_ps(3), .rank = Rank(3), .what = "iteration 1"},
      MarkEvent{.at = at_ps(4), .rank = {}, .what = "link down"},
      DropEvent{.at = at_ps(5), .place = "leaf0:2", .reason = "buffer full", .size = Bytes(1500)},
  };
  return events;
}

template <class Writer>
std::string written(const std::vector<Event>& events) {
  std::ostringstream out;
  Writer writer(out);
  for (const Event& event : events) writer.write(event);
  writer.finish();
  return out.str();
}

template <class Value>
std::string formatted(const Value& value) {
  std::string out;
  append_value(out, value);
  return out;
}

TEST(TextWriter, write__golden) {
  EXPECT_EQ(written<TextWriter>(sample_events()),
            R"(compute start_us=0.000000 end_us=1.500000 rank=3 what="conv1"
transfer start_us=1.500000 end_us=14.000001 source=3 target=0 chunk=7 bytes=1024
counter at_us=0.000002 rank=3 counter="in flight" value=0.1
counter at_us=0.000002 counter="queue" value=3
mark at_us=0.000003 rank=3 what="iteration 1"
mark at_us=0.000004 what="link down"
drop at_us=0.000005 place="leaf0:2" reason="buffer full" bytes=1500
)");
}

const std::vector<Event>& events_within_a_call() {
  static const std::vector<Event> events{
      StepEvent{.start = at_ps(1'000'000),
                .end = at_ps(3'000'000),
                .rank = Rank(0),
                .peer = Rank(2),
                .step = "send",
                .chunk = ChunkIndex(1),
                .size = Bytes(512),
                .group = "world",
                .number = CallNumber(7)},
      StepEvent{.start = at_ps(0),
                .end = at_ps(1'000'000),
                .rank = Rank(0),
                .peer = Rank(2),
                .step = "stall"},
      LossEvent{.at = at_ps(3'000'000),
                .rank = Rank(0),
                .peer = Rank(2),
                .loss = "sent again",
                .count = Count(3)},
  };
  return events;
}

TEST(TextWriter, write__what_happens_within_a_call) {
  EXPECT_EQ(
      written<TextWriter>(events_within_a_call()),
      R"(step start_us=1.000000 end_us=3.000000 rank=0 peer=2 step="send" chunk=1 bytes=512 group="world" number=7
step start_us=0.000000 end_us=1.000000 rank=0 peer=2 step="stall" bytes=0
loss at_us=3.000000 rank=0 peer=2 loss="sent again" count=3
)");
}

TEST(ChromeTraceWriter, write__steps_are_on_tracks_to_and_from_the_other_rank) {
  const std::string text = written<ChromeTraceWriter>(events_within_a_call());
  EXPECT_TRUE(is_json(text)) << text;
  for (const char* part :
       {R"("name":"send chunk 1")", R"("name":"to rank 2")", R"("name":"from rank 2")",
        R"("ph":"i","name":"sent again")", R"("count":3)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST(JsonLinesWriter, write__golden) {
  const std::string text = written<JsonLinesWriter>(sample_events());
  EXPECT_EQ(text,
            R"({"event":"compute","start_us":0.000000,"end_us":1.500000,"rank":3,"what":"conv1"}
{"event":"transfer","start_us":1.500000,"end_us":14.000001,"source":3,"target":0,"chunk":7,"bytes":1024}
{"event":"counter","at_us":0.000002,"rank":3,"counter":"in flight","value":0.1}
{"event":"counter","at_us":0.000002,"counter":"queue","value":3}
{"event":"mark","at_us":0.000003,"rank":3,"what":"iteration 1"}
{"event":"mark","at_us":0.000004,"what":"link down"}
{"event":"drop","at_us":0.000005,"place":"leaf0:2","reason":"buffer full","bytes":1500}
)");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_TRUE(is_json(line)) << line;
}

TEST(ChromeTraceWriter, write__golden) {
  const std::string text = written<ChromeTraceWriter>(sample_events());
  EXPECT_EQ(text, R"({"displayTimeUnit":"ns","traceEvents":[
{"ph":"M","name":"process_name","pid":5,"tid":0,"args":{"name":"rank 3"}},
{"ph":"M","name":"process_sort_index","pid":5,"tid":0,"args":{"sort_index":5}},
{"ph":"M","name":"thread_name","pid":5,"tid":1,"args":{"name":"compute"}},
{"ph":"M","name":"thread_sort_index","pid":5,"tid":1,"args":{"sort_index":1}},
{"ph":"X","name":"conv1","pid":5,"tid":1,"ts":0.000000,"dur":1.500000,"args":{"rank":3,"what":"conv1"}},
{"ph":"M","name":"thread_name","pid":5,"tid":2,"args":{"name":"to rank 0"}},
{"ph":"M","name":"thread_sort_index","pid":5,"tid":2,"args":{"sort_index":2}},
{"ph":"X","name":"chunk 7","pid":5,"tid":2,"ts":1.500000,"dur":12.500001,"args":{"source":3,"target":0,"chunk":7,"bytes":1024}},
{"ph":"C","name":"in flight","pid":5,"tid":0,"ts":0.000002,"args":{"value":0.1}},
{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"network"}},
{"ph":"M","name":"process_sort_index","pid":1,"tid":0,"args":{"sort_index":1}},
{"ph":"C","name":"queue","pid":1,"tid":0,"ts":0.000002,"args":{"value":3}},
{"ph":"i","name":"iteration 1","pid":5,"tid":1,"ts":0.000003,"s":"p","args":{"rank":3,"what":"iteration 1"}},
{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"marks"}},
{"ph":"M","name":"thread_sort_index","pid":1,"tid":1,"args":{"sort_index":1}},
{"ph":"i","name":"link down","pid":1,"tid":1,"ts":0.000004,"s":"g","args":{"what":"link down"}},
{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"leaf0:2"}},
{"ph":"M","name":"thread_sort_index","pid":1,"tid":2,"args":{"sort_index":2}},
{"ph":"i","name":"buffer full","pid":1,"tid":2,"ts":0.000005,"s":"t","args":{"place":"leaf0:2","reason":"buffer full","bytes":1500}}
]}
)");
  EXPECT_TRUE(is_json(text));
}

TEST(ChromeTraceWriter, write__names_and_lanes) {
  std::ostringstream out;
  {
    ChromeTraceWriter writer(out, {"left", "right"});
    writer.write(TransferEvent{.start = at_ps(0),
                               .end = at_ps(1'000'000),
                               .source = Rank(0),
                               .target = Rank(1),
                               .chunk = {},
                               .size = Bytes(9),
                               .job = "resnet",
                               .row = Row(1)});
    writer.write(ComputeEvent{.start = at_ps(0),
                              .end = at_ps(1'000'000),
                              .rank = Rank(2),
                              .what = "conv1",
                              .job = "vgg",
                              .row = Row(2)});
  }
  EXPECT_EQ(out.str(), R"text({"displayTimeUnit":"ns","traceEvents":[
{"ph":"M","name":"process_name","pid":2,"tid":0,"args":{"name":"left"}},
{"ph":"M","name":"process_sort_index","pid":2,"tid":0,"args":{"sort_index":2}},
{"ph":"M","name":"process_name","pid":3,"tid":0,"args":{"name":"right"}},
{"ph":"M","name":"process_sort_index","pid":3,"tid":0,"args":{"sort_index":3}},
{"ph":"M","name":"thread_name","pid":2,"tid":1048579,"args":{"name":"to right (2)"}},
{"ph":"M","name":"thread_sort_index","pid":2,"tid":1048579,"args":{"sort_index":3}},
{"ph":"X","name":"resnet","pid":2,"tid":1048579,"ts":0.000000,"dur":1.000000,"args":{"source":0,"target":1,"bytes":9,"job":"resnet","lane":1}},
{"ph":"M","name":"process_name","pid":4,"tid":0,"args":{"name":"rank 2"}},
{"ph":"M","name":"process_sort_index","pid":4,"tid":0,"args":{"sort_index":4}},
{"ph":"M","name":"thread_name","pid":4,"tid":2097153,"args":{"name":"compute (vgg)"}},
{"ph":"M","name":"thread_sort_index","pid":4,"tid":2097153,"args":{"sort_index":1}},
{"ph":"X","name":"conv1","pid":4,"tid":2097153,"ts":0.000000,"dur":1.000000,"args":{"rank":2,"what":"conv1","job":"vgg","lane":2}}
]}
)text");
  EXPECT_TRUE(is_json(out.str()));
}

TEST(ChromeTraceWriter, finish__valid_without_events_and_once) {
  std::ostringstream out;
  {
    ChromeTraceWriter writer(out);
    writer.finish();
    writer.finish();
  }
  EXPECT_EQ(out.str(), "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n");
  EXPECT_TRUE(is_json(out.str()));
}

TEST(ChromeTraceWriter, destructor__finishes) {
  std::ostringstream out;
  {
    ChromeTraceWriter writer(out);
    writer.write(sample_events().front());
    EXPECT_FALSE(is_json(out.str()));
  }
  EXPECT_TRUE(is_json(out.str()));
}

TEST(ChromeTraceWriterDeathTest, write__after_finish_is_a_bug) {
  std::ostringstream out;
  ChromeTraceWriter writer(out);
  writer.finish();
  EXPECT_DEATH(writer.write(sample_events().front()), "after finish");
}

TEST(TraceFormat, time__no_picosecond_is_lost) {
  EXPECT_EQ(formatted(at_ps(0)), "0.000000");
  EXPECT_EQ(formatted(at_ps(1)), "0.000001");
  EXPECT_EQ(formatted(at_ps(999'999)), "0.999999");
  EXPECT_EQ(formatted(at_ps(1'000'000)), "1.000000");
  EXPECT_EQ(formatted(at_ps(-1'500'000)), "-1.500000");
  EXPECT_EQ(formatted(at_ps(std::numeric_limits<std::int64_t>::max())), "9223372036854.775807");
  EXPECT_EQ(formatted(at_ps(std::numeric_limits<std::int64_t>::min())), "-9223372036854.775808");
}

TEST(TraceFormat, number__shortest_exact) {
  EXPECT_EQ(formatted(0.1), "0.1");
  EXPECT_EQ(formatted(3.0), "3");
  EXPECT_TRUE(is_json(formatted(1e300)));
  EXPECT_TRUE(is_json(formatted(-5e-324)));
  EXPECT_DEATH(formatted(std::numeric_limits<double>::quiet_NaN()), "in a trace");
}

TEST(TraceFormat, string__escapes) {
  EXPECT_EQ(formatted(std::string_view("a\"b\\c\n\t\r")), R"("a\"b\\c\n\t\r")");
  EXPECT_EQ(formatted(std::string_view("\0\x01\x1f\x7f", 4)), "\"\\u0000\\u0001\\u001f\x7f\"");
  EXPECT_EQ(formatted(std::string_view("→ é 🙂")), "\"→ é 🙂\"");
}

TEST(TraceFormat, string__bytes_that_are_not_utf8) {
  const std::vector<std::pair<std::string_view, std::string>> cases{
      {"\x80", R"("\ufffd")"},                                // a continuation without a lead
      {"a\xFFz", R"("a\ufffdz")"},                            // never a lead
      {"\xE2\x82", R"("\ufffd\ufffd")"},                      // cut short
      {"\xC0\xAF", R"("\ufffd\ufffd")"},                      // overlong
      {"\xE0\x80\xAF", R"("\ufffd\ufffd\ufffd")"},            // overlong
      {"\xED\xA0\x80", R"("\ufffd\ufffd\ufffd")"},            // a surrogate
      {"\xF4\x90\x80\x80", R"("\ufffd\ufffd\ufffd\ufffd")"},  // beyond U+10FFFF
      {"\xC3\"", R"("\ufffd\"")"},  // a quote where a continuation belongs
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(formatted(text), expected);
}

TEST(TraceFormat, string__random_bytes_give_json) {
  constexpr std::uint64_t kSeed = 77;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  Prng prng(kSeed);
  for (int round = 0; round < 2000; ++round) {
    std::string text(prng.below(12), '\0');
    for (char& c : text) c = static_cast<char>(prng.below(256));
    ASSERT_TRUE(is_json(formatted(std::string_view(text))));
    const std::vector<Event> events{
        MarkEvent{.at = {}, .rank = {}, .what = text},
        DropEvent{.at = {}, .place = text, .reason = text, .size = Bytes(1)},
        CounterEvent{.at = {}, .rank = {}, .counter = text, .value = prng.real()}};
    ASSERT_TRUE(is_json(written<ChromeTraceWriter>(events)));
    // One line per event, whatever is in the strings.
    const std::string lines = written<TextWriter>(events);
    ASSERT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  }
}

TEST(JsonCheck, is_json__accepts_and_rejects) {
  for (const std::string_view text :
       {"{}", "[1,-0.5e+3,\"a\\u00e9\",true,null,{\"k\":[]}]", " 0 "}) {
    EXPECT_TRUE(is_json(text)) << text;
  }
  for (const std::string_view text :
       {"", "{", "[1,]", "{\"a\"}", "01", "1.", "\"\n\"", "\"\\x\"", "[] []", "nan", "{,}"}) {
    EXPECT_FALSE(is_json(text)) << text;
  }
}

}  // namespace
}  // namespace thalweg::trace
