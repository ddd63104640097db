// Chakra execution traces (MLCommons; Sridharan et al., arXiv 2305.14516): what one rank computes
// and communicates, as a graph of nodes that depend on each other. docs/chakra.md says which parts
// of the format are used.
//
// A file is a row of messages of Protocol Buffers, each behind its length as a varint: one
// GlobalMetadata, then Nodes. The schema is schema/protobuf/et_def.proto of mlcommons/chakra.
// Fields that are not kept below are skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::trace {

inline constexpr std::size_t kMaxChakraNodes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxChakraDependencies = std::size_t{1} << 24;  // over all nodes
inline constexpr std::size_t kMaxChakraAttributes = std::size_t{1} << 22;    // over all nodes

// The numbers are those of the schema.
enum class ChakraNodeType : std::uint8_t {
  kInvalid = 0,
  kMetadata = 1,
  kMemoryLoad = 2,
  kMemoryStore = 3,
  kCompute = 4,
  kSend = 5,
  kReceive = 6,
  kCollective = 7,
  kStorage = 8,
  kBatch = 9,
  kCheckpoint = 10,
};
inline constexpr int kChakraNodeTypeCount = 11;

enum class ChakraCollective : std::uint8_t {
  kAllReduce = 0,
  kReduce = 1,
  kAllGather = 2,
  kGather = 3,
  kScatter = 4,
  kBroadcast = 5,
  kAllToAll = 6,
  kReduceScatter = 7,
  kReduceScatterBlock = 8,
  kBarrier = 9,
};
inline constexpr int kChakraCollectiveCount = 10;

// The names of the schema: "COMP_NODE", "ALL_REDUCE".
[[nodiscard]] const char* name_of(ChakraNodeType type);
[[nodiscard]] const char* name_of(ChakraCollective collective);

struct ChakraAttribute {
  std::string name;
  // All integers of the schema are one of the first two, and all floats a double. None: a list.
  std::variant<std::monostate, std::int64_t, std::uint64_t, bool, double, std::string> value;

  // The nonnegative whole number that it is, whatever its type. None: it is no such number.
  [[nodiscard]] std::optional<std::uint64_t> number() const;
  bool operator==(const ChakraAttribute&) const = default;
};

struct ChakraNode {
  std::uint64_t id = 0;
  std::string name;
  ChakraNodeType type = ChakraNodeType::kInvalid;
  std::vector<std::uint64_t> control_dependencies;
  std::vector<std::uint64_t> data_dependencies;
  std::uint64_t start_us = 0;
  std::uint64_t duration_us = 0;
  std::vector<ChakraAttribute> attributes;

  // Null: the node has no such attribute.
  [[nodiscard]] const ChakraAttribute* find(std::string_view attribute) const;
  bool operator==(const ChakraNode&) const = default;
};

inline constexpr const char* kChakraVersion = "0.0.4";  // of the schema, in what is written

struct ChakraTrace {
  std::string version;
  std::vector<ChakraAttribute> attributes;
  std::vector<ChakraNode> nodes;

  // Appends a node of the device that waits for others. Ids count from 1. The reference holds until
  // the next node is added.
  ChakraNode& add(std::string name, ChakraNodeType type, std::vector<std::uint64_t> waits_for);
  bool operator==(const ChakraTrace&) const = default;
};

// The content of a trace's file.
[[nodiscard]] std::string to_chakra(const ChakraTrace& trace);
// Reads such a file. Errors name `source`, the message and the field.
[[nodiscard]] Result<ChakraTrace> chakra_from(std::string_view content, std::string_view source);

}  // namespace thalweg::trace
