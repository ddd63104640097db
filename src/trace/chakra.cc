#include "trace/chakra.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <utility>

#include "trace/protobuf.h"

namespace thalweg::trace {
namespace {

// Field numbers of the schema.
namespace metadata_field {
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kAttribute = 2;
}  // namespace metadata_field
namespace node_field {
constexpr std::uint32_t kId = 1;
constexpr std::uint32_t kName = 2;
constexpr std::uint32_t kType = 3;
constexpr std::uint32_t kControl = 4;
constexpr std::uint32_t kData = 5;
constexpr std::uint32_t kStart = 6;
constexpr std::uint32_t kDuration = 7;
constexpr std::uint32_t kAttribute = 10;
}  // namespace node_field
namespace attribute_field {
constexpr std::uint32_t kName = 1;
constexpr std::uint32_t kDouble = 3;
constexpr std::uint32_t kFloat = 5;
constexpr std::uint32_t kInt32 = 7;
constexpr std::uint32_t kInt64 = 9;
constexpr std::uint32_t kUint32 = 11;
constexpr std::uint32_t kUint64 = 13;
constexpr std::uint32_t kSint32 = 15;
constexpr std::uint32_t kSint64 = 17;
constexpr std::uint32_t kFixed32 = 19;
constexpr std::uint32_t kFixed64 = 21;
constexpr std::uint32_t kSfixed32 = 23;
constexpr std::uint32_t kSfixed64 = 25;
constexpr std::uint32_t kBool = 27;
constexpr std::uint32_t kString = 29;
constexpr std::uint32_t kLastValue = 32;
}  // namespace attribute_field

// A signed number whose sign is in the last bit.
std::int64_t zigzag(std::uint64_t number) {
  return static_cast<std::int64_t>(number >> 1) ^ -static_cast<std::int64_t>(number & 1);
}

// Reads the messages of one file. `place_` names the message for errors.
class ChakraReader {
 public:
  explicit ChakraReader(std::string_view source) : source_(source) {}

  Result<ChakraTrace> read(std::string_view content);

 private:
  [[nodiscard]] Error error(std::string_view problem) const {
    return Error(fmt::format("{}: {}: {}", source_, place_, problem));
  }
  Status check_wire(const ProtoField& field, ProtoWire wanted, const char* name) const;
  Status read_metadata(std::string_view message);
  Status read_node(std::string_view message);
  Status read_node_field(const ProtoField& field, ChakraNode& node);
  Status read_dependencies(const ProtoField& field, const char* name,
                           std::vector<std::uint64_t>& dependencies);
  Status read_attribute(const ProtoField& field, std::vector<ChakraAttribute>& attributes);
  Status read_value(const ProtoField& field, ChakraAttribute& attribute) const;

  std::string source_;
  std::string place_ = "the metadata";
  std::size_t dependencies_ = 0;
  std::size_t attributes_ = 0;
  ChakraTrace trace_;
};

Status ChakraReader::check_wire(const ProtoField& field, ProtoWire wanted, const char* name) const {
  if (field.wire == wanted) return ok_status();
  return error(fmt::format("{} has wire type {} instead of {}", name, static_cast<int>(field.wire),
                           static_cast<int>(wanted)));
}

Status ChakraReader::read_value(const ProtoField& field, ChakraAttribute& attribute) const {
  using namespace attribute_field;
  const auto number = [&](ProtoWire wire, auto value) -> Status {
    THALWEG_TRY_STATUS(check_wire(field, wire, "a value of an attribute"));
    attribute.value = value;
    return ok_status();
  };
  const auto as_signed = static_cast<std::int64_t>(field.number);
  const auto low = static_cast<std::uint32_t>(field.number);
  switch (field.field) {
    case kDouble:
      return number(ProtoWire::kFixed64, std::bit_cast<double>(field.number));
    case kFloat:
      return number(ProtoWire::kFixed32, double{std::bit_cast<float>(low)});
    case kInt32:
    case kInt64:
      return number(ProtoWire::kVarint, as_signed);
    case kUint32:
    case kUint64:
      return number(ProtoWire::kVarint, field.number);
    case kSint32:
    case kSint64:
      return number(ProtoWire::kVarint, zigzag(field.number));
    case kFixed32:
      return number(ProtoWire::kFixed32, field.number);
    case kFixed64:
      return number(ProtoWire::kFixed64, field.number);
    case kSfixed32:
      return number(ProtoWire::kFixed32, std::int64_t{std::bit_cast<std::int32_t>(low)});
    case kSfixed64:
      return number(ProtoWire::kFixed64, as_signed);
    case kBool:
      return number(ProtoWire::kVarint, field.number != 0);
    case kString:
      return number(ProtoWire::kLength, std::string(field.bytes));
    default:
      // If there are several values the last one counts, also if it is a list.
      if (field.field <= kLastValue) attribute.value = std::monostate();
      return ok_status();
  }
}

Status ChakraReader::read_attribute(const ProtoField& field,
                                    std::vector<ChakraAttribute>& attributes) {
  THALWEG_TRY_STATUS(check_wire(field, ProtoWire::kLength, "attr"));
  if (++attributes_ > kMaxChakraAttributes) {
    return error(fmt::format("the trace has more than {} attributes", kMaxChakraAttributes));
  }
  ChakraAttribute& attribute = attributes.emplace_back();
  ProtoReader reader(field.bytes);
  ProtoField part;
  while (reader.next(part)) {
    if (part.field == attribute_field::kName) {
      THALWEG_TRY_STATUS(check_wire(part, ProtoWire::kLength, "the name of an attribute"));
      attribute.name = part.bytes;
    } else if (part.field >= attribute_field::kDouble) {
      THALWEG_TRY_STATUS(read_value(part, attribute));
    }
  }
  if (reader.problem() != nullptr) return error(fmt::format("attr: {}", reader.problem()));
  return ok_status();
}

// Repeated numbers are one field each, or packed into one.
Status ChakraReader::read_dependencies(const ProtoField& field, const char* name,
                                       std::vector<std::uint64_t>& dependencies) {
  const auto add = [&](std::uint64_t id) -> Status {
    if (++dependencies_ > kMaxChakraDependencies) {
      return error(fmt::format("the trace has more than {} dependencies", kMaxChakraDependencies));
    }
    dependencies.push_back(id);
    return ok_status();
  };
  if (field.wire == ProtoWire::kVarint) return add(field.number);
  THALWEG_TRY_STATUS(check_wire(field, ProtoWire::kLength, name));
  ProtoReader reader(field.bytes);
  while (!reader.at_end()) {
    std::uint64_t id = 0;
    if (!reader.varint(id)) return error(fmt::format("{}: {}", name, reader.problem()));
    THALWEG_TRY_STATUS(add(id));
  }
  return ok_status();
}

Status ChakraReader::read_node_field(const ProtoField& field, ChakraNode& node) {
  using namespace node_field;
  const auto number = [&](const char* name, std::uint64_t& value) -> Status {
    THALWEG_TRY_STATUS(check_wire(field, ProtoWire::kVarint, name));
    value = field.number;
    return ok_status();
  };
  switch (field.field) {
    case kId:
      return number("id", node.id);
    case kName:
      THALWEG_TRY_STATUS(check_wire(field, ProtoWire::kLength, "name"));
      node.name = field.bytes;
      return ok_status();
    case kType: {
      std::uint64_t type = 0;
      THALWEG_TRY_STATUS(number("type", type));
      if (type >= kChakraNodeTypeCount) {
        return error(fmt::format("type: {} is not a type of nodes: from 0 to {} are", type,
                                 kChakraNodeTypeCount - 1));
      }
      node.type = static_cast<ChakraNodeType>(type);
      return ok_status();
    }
    case kControl:
      return read_dependencies(field, "ctrl_deps", node.control_dependencies);
    case kData:
      return read_dependencies(field, "data_deps", node.data_dependencies);
    case kStart:
      return number("start_time_micros", node.start_us);
    case kDuration:
      return number("duration_micros", node.duration_us);
    case kAttribute:
      return read_attribute(field, node.attributes);
    default:
      return ok_status();
  }
}

Status ChakraReader::read_node(std::string_view message) {
  if (trace_.nodes.size() == kMaxChakraNodes) {
    return error(fmt::format("the trace has more than {} nodes", kMaxChakraNodes));
  }
  ChakraNode& node = trace_.nodes.emplace_back();
  ProtoReader reader(message);
  ProtoField field;
  while (reader.next(field)) THALWEG_TRY_STATUS(read_node_field(field, node));
  if (reader.problem() != nullptr) return error(reader.problem());
  return ok_status();
}

Status ChakraReader::read_metadata(std::string_view message) {
  ProtoReader reader(message);
  ProtoField field;
  while (reader.next(field)) {
    if (field.field == metadata_field::kVersion) {
      THALWEG_TRY_STATUS(check_wire(field, ProtoWire::kLength, "version"));
      trace_.version = field.bytes;
    } else if (field.field == metadata_field::kAttribute) {
      THALWEG_TRY_STATUS(read_attribute(field, trace_.attributes));
    }
  }
  if (reader.problem() != nullptr) return error(reader.problem());
  return ok_status();
}

Result<ChakraTrace> ChakraReader::read(std::string_view content) {
  ProtoReader messages(content);
  std::string_view message;
  if (!messages.counted(message)) return error(messages.problem());
  THALWEG_TRY_STATUS(read_metadata(message));
  while (!messages.at_end()) {
    place_ = fmt::format("node number {}", trace_.nodes.size() + 1);
    if (!messages.counted(message)) return error(messages.problem());
    THALWEG_TRY_STATUS(read_node(message));
  }
  return std::move(trace_);
}

std::string attribute_message(const ChakraAttribute& attribute) {
  using namespace attribute_field;
  std::string message;
  put_bytes(message, kName, attribute.name);
  const auto put = [&](const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, std::int64_t>) {
      put_number(message, kInt64, static_cast<std::uint64_t>(value));
    } else if constexpr (std::is_same_v<Value, std::uint64_t>) {
      put_number(message, kUint64, value);
    } else if constexpr (std::is_same_v<Value, bool>) {
      put_number(message, kBool, value ? 1 : 0);
    } else if constexpr (std::is_same_v<Value, double>) {
      put_double(message, kDouble, value);
    } else if constexpr (std::is_same_v<Value, std::string>) {
      put_bytes(message, kString, value);
    }
  };
  std::visit(put, attribute.value);
  return message;
}

void put_dependencies(std::string& message, std::uint32_t field,
                      const std::vector<std::uint64_t>& dependencies) {
  if (dependencies.empty()) return;
  std::string packed;
  for (const std::uint64_t id : dependencies) put_varint(packed, id);
  put_bytes(message, field, packed);
}

std::string node_message(const ChakraNode& node) {
  using namespace node_field;
  std::string message;
  // The format leaves out zeros and empty texts.
  if (node.id != 0) put_number(message, kId, node.id);
  if (!node.name.empty()) put_bytes(message, kName, node.name);
  if (node.type != ChakraNodeType::kInvalid) {
    put_number(message, kType, static_cast<std::uint64_t>(node.type));
  }
  put_dependencies(message, kControl, node.control_dependencies);
  put_dependencies(message, kData, node.data_dependencies);
  if (node.start_us != 0) put_number(message, kStart, node.start_us);
  if (node.duration_us != 0) put_number(message, kDuration, node.duration_us);
  for (const ChakraAttribute& attribute : node.attributes) {
    put_bytes(message, kAttribute, attribute_message(attribute));
  }
  return message;
}

}  // namespace

const char* name_of(ChakraNodeType type) {
  constexpr std::array<const char*, kChakraNodeTypeCount> kNames{
      "INVALID_NODE", "METADATA_NODE",  "MEM_LOAD_NODE",  "MEM_STORE_NODE",
      "COMP_NODE",    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE",
      "STORAGE_NODE", "BATCH_NODE",     "CHECKPOINT_NODE"};
  return kNames.at(static_cast<std::size_t>(type));
}

const char* name_of(ChakraCollective collective) {
  constexpr std::array<const char*, kChakraCollectiveCount> kNames{
      "ALL_REDUCE", "REDUCE",         "ALL_GATHER",           "GATHER", "SCATTER", "BROADCAST",
      "ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"};
  return kNames.at(static_cast<std::size_t>(collective));
}

std::optional<std::uint64_t> ChakraAttribute::number() const {
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return *number;
  if (const auto* number = std::get_if<bool>(&value)) return *number ? 1 : 0;
  const auto* number = std::get_if<std::int64_t>(&value);
  if (number == nullptr || *number < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

const ChakraAttribute* ChakraNode::find(std::string_view attribute) const {
  const auto found = std::ranges::find(attributes, attribute, &ChakraAttribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

ChakraNode& ChakraTrace::add(std::string name, ChakraNodeType type,
                             std::vector<std::uint64_t> waits_for) {
  ChakraNode& node = nodes.emplace_back();
  node.id = nodes.size();
  node.name = std::move(name);
  node.type = type;
  node.data_dependencies = std::move(waits_for);
  node.attributes.push_back({"is_cpu_op", false});
  return node;
}

std::string to_chakra(const ChakraTrace& trace) {
  std::string metadata;
  if (!trace.version.empty()) put_bytes(metadata, metadata_field::kVersion, trace.version);
  for (const ChakraAttribute& attribute : trace.attributes) {
    put_bytes(metadata, metadata_field::kAttribute, attribute_message(attribute));
  }
  std::string content;
  const auto add = [&](const std::string& message) {
    put_varint(content, message.size());
    content += message;
  };
  add(metadata);
  for (const ChakraNode& node : trace.nodes) add(node_message(node));
  return content;
}

Result<ChakraTrace> chakra_from(std::string_view content, std::string_view source) {
  return ChakraReader(source).read(content);
}

}  // namespace thalweg::trace
