#include "trace/chakra.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "trace/protobuf.h"

namespace thalweg::trace {
namespace {

using namespace std::string_view_literals;

ChakraTrace small_trace() {
  ChakraTrace trace{.version = "0.0.4", .attributes = {{"kind", std::string("test")}}, .nodes = {}};
  trace.nodes.push_back({.id = 0,
                         .name = "work",
                         .type = ChakraNodeType::kCompute,
                         .control_dependencies = {},
                         .data_dependencies = {},
                         .start_us = 3,
                         .duration_us = 300,
                         .attributes = {{"is_cpu_op", false}}});
  trace.nodes.push_back({.id = 7,
                         .name = "sum",
                         .type = ChakraNodeType::kCollective,
                         .control_dependencies = {0},
                         .data_dependencies = {0, 300},
                         .start_us = 303,
                         .duration_us = 0,
                         .attributes = {{"comm_type", std::int64_t{0}},
                                        {"comm_size", std::uint64_t{1} << 40},
                                        {"negative", std::int64_t{-1}},
                                        {"share", 0.5}}});
  return trace;
}

// A message behind its length.
std::string framed(std::string_view message) {
  std::string content;
  put_varint(content, message.size());
  return content += message;
}

std::string error_of(std::string_view content) {
  const Result<ChakraTrace> result = chakra_from(content, "t.et");
  return result.ok() ? "" : result.error().message();
}

TEST(Chakra, trace__reads_what_it_writes) {
  const ChakraTrace trace = small_trace();
  const Result<ChakraTrace> again = chakra_from(to_chakra(trace), "t.et");
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(*again, trace);
  const ChakraNode& sum = again->nodes[1];
  ASSERT_NE(sum.find("share"), nullptr);
  EXPECT_EQ(sum.find("shares"), nullptr);
}

// The bytes that Google's library writes for the same messages.
TEST(Chakra, trace__has_these_bytes) {
  ChakraTrace trace{.version = "0.0.4", .attributes = {}, .nodes = {}};
  trace.nodes.push_back({.id = 2,
                         .name = "ar",
                         .type = ChakraNodeType::kCollective,
                         .control_dependencies = {},
                         .data_dependencies = {1, 300},
                         .start_us = 0,
                         .duration_us = 150,
                         .attributes = {{"comm_type", std::int64_t{0}}}});
  const std::string_view wanted =
      "\x07\x0a\x05"
      "0.0.4"
      "\x1f\x08\x02\x12\x02"
      "ar\x18\x07\x2a\x03\x01\xac\x02\x38\x96\x01\x52\x0d\x0a\x09"
      "comm_type\x48\x00"sv;
  EXPECT_EQ(to_chakra(trace), wanted);
}

TEST(Chakra, dependencies__packed_or_one_by_one) {
  std::string node;
  put_number(node, 5, 4);
  put_number(node, 5, 9);
  std::string packed;
  put_varint(packed, 300);
  put_bytes(node, 5, packed);
  const auto trace = chakra_from(framed("") + framed(node), "t.et");
  ASSERT_TRUE(trace.ok()) << trace.error().message();
  EXPECT_EQ(trace->nodes.at(0).data_dependencies, (std::vector<std::uint64_t>{4, 9, 300}));
}

TEST(Chakra, attributes__of_every_type) {
  const auto value_of = [](std::string_view field) {
    std::string attribute;
    put_bytes(attribute, 1, "a");
    attribute += field;
    std::string node;
    put_bytes(node, 10, attribute);
    const auto trace = chakra_from(framed("") + framed(node), "t.et");
    EXPECT_TRUE(trace.ok()) << trace.error().message();
    return trace->nodes.at(0).attributes.at(0).value;
  };
  using Value = decltype(ChakraAttribute::value);
  const auto varint = [](std::uint32_t field, std::uint64_t number) {
    std::string text;
    put_number(text, field, number);
    return text;
  };
  EXPECT_EQ(value_of(varint(7, ~std::uint64_t{0})), Value(std::int64_t{-1}));    // int32
  EXPECT_EQ(value_of(varint(9, 5)), Value(std::int64_t{5}));                     // int64
  EXPECT_EQ(value_of(varint(11, 5)), Value(std::uint64_t{5}));                   // uint32
  EXPECT_EQ(value_of(varint(13, ~std::uint64_t{0})), Value(~std::uint64_t{0}));  // uint64
  EXPECT_EQ(value_of(varint(15, 5)), Value(std::int64_t{-3}));                   // sint32
  EXPECT_EQ(value_of(varint(17, 6)), Value(std::int64_t{3}));                    // sint64
  EXPECT_EQ(value_of("\x9d\x01\x01\x00\x00\x00"sv), Value(std::uint64_t{1}));    // fixed32
  EXPECT_EQ(value_of("\xa9\x01\x02\0\0\0\0\0\0\0"sv), Value(std::uint64_t{2}));  // fixed64
  EXPECT_EQ(value_of("\xbd\x01\xff\xff\xff\xff"sv), Value(std::int64_t{-1}));    // sfixed32
  EXPECT_EQ(value_of(varint(27, 1)), Value(true));                               // bool
  EXPECT_EQ(value_of("\x2d\x00\x00\x00\x3f"sv), Value(0.5));                     // float
  EXPECT_EQ(value_of("\xea\x01\x02hi"sv), Value(std::string("hi")));             // string
  EXPECT_EQ(value_of("\x52\x03\x0a\x01\x05"sv), Value(std::monostate()));        // int64 list
}

TEST(Chakra, trace__unknown_fields_are_skipped) {
  std::string node;
  put_number(node, 1, 5);
  put_bytes(node, 11, "storage");
  put_double(node, 900, 1.5);
  const auto trace = chakra_from(framed("") + framed(node), "t.et");
  ASSERT_TRUE(trace.ok()) << trace.error().message();
  EXPECT_EQ(trace->nodes.at(0).id, 5U);
}

TEST(Chakra, errors__name_the_message_and_the_field) {
  EXPECT_EQ(error_of(""), "t.et: the metadata: a number is cut off");
  EXPECT_EQ(error_of("name: resnet18\n"),
            "t.et: the metadata: it is longer than what is left of the file");
  EXPECT_EQ(error_of(framed("\x08\x01"sv)),
            "t.et: the metadata: version has wire type 0 instead of 2");
  const auto of_node = [](std::string_view message) {
    return error_of(framed("") + framed("") + framed(message));
  };
  EXPECT_EQ(of_node("\x18\x0b"sv),
            "t.et: node number 2: type: 11 is not a type of nodes: from 0 to 10 are");
  EXPECT_EQ(of_node("\x0a\x01\x01"sv), "t.et: node number 2: id has wire type 2 instead of 0");
  EXPECT_EQ(of_node("\x38"sv), "t.et: node number 2: a number is cut off");
  EXPECT_EQ(of_node("\x3b"sv), "t.et: node number 2: a field has a wire type that is not allowed");
  EXPECT_EQ(of_node("\x00\x00"sv), "t.et: node number 2: a field has a number that is not allowed");
  EXPECT_EQ(of_node("\x2a\x01\x80"sv), "t.et: node number 2: data_deps: a number is cut off");
  EXPECT_EQ(of_node("\x52\x02\x0a\x05"sv),
            "t.et: node number 2: attr: it is longer than what is left of the file");
  EXPECT_EQ(of_node("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"sv),
            "t.et: node number 2: a number has more than 64 bits");
  EXPECT_EQ(error_of(framed("") + "\x05"),
            "t.et: node number 1: it is longer than what is left of the file");
}

// Every prefix and every flipped byte of a file is read or refused.
TEST(Chakra, trace__no_change_of_a_byte_is_fatal) {
  const std::string content = to_chakra(small_trace());
  for (std::size_t size = 0; size < content.size(); ++size) {
    (void)chakra_from(std::string_view(content).substr(0, size), "t.et");
  }
  for (std::size_t at = 0; at < content.size(); ++at) {
    for (const int mask : {0x01, 0x08, 0x80, 0xff}) {
      std::string changed = content;
      changed[at] = static_cast<char>(changed[at] ^ mask);
      (void)chakra_from(changed, "t.et");
    }
  }
}

}  // namespace
}  // namespace thalweg::trace
