#include "plan/format/json.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/suggest.h"
#include "plan/format/json_fields.h"

namespace thalweg::plan {
namespace {

std::string keys_of(std::span<const JsonField> fields) {
  std::string keys;
  for (const JsonField& field : fields) {
    keys += keys.empty() ? "" : ", ";
    keys += field.key;
  }
  return keys;
}

std::string allowed_range(std::int64_t least, std::int64_t most) {
  if (least == most) return fmt::format("{}", least);
  return most == kMaxInt64 ? fmt::format("{} or more", least)
                           : fmt::format("{} to {}", least, most);
}

const char* describe(JsonFieldType type) {
  switch (type) {
    case JsonFieldType::kInteger:
      return "a whole number";
    case JsonFieldType::kText:
      return "a string";
    case JsonFieldType::kArray:
      return "an array";
  }
  return "";
}

// Values quoted in errors are cut to this many bytes.
constexpr std::size_t kMaxQuoted = 60;

std::string in_quotes(std::string_view text) {
  if (text.size() <= kMaxQuoted) return fmt::format("\"{}\"", text);
  std::size_t end = kMaxQuoted;
  const auto continues = [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
  };
  while (end > 0 && continues(text[end])) --end;
  return fmt::format("\"{}…\"", text.substr(0, end));
}

std::int32_t narrow(std::int64_t checked) { return static_cast<std::int32_t>(checked); }

using Json = nlohmann::json;

// Builds a Plan from the events of nlohmann's SAX parser, so that a plan of millions of transfers
// never exists as a tree of JSON values. The parser keeps its own stack on the heap, one bit per
// level, and level_ rejects anything deeper than the format.
//
// The document consists of objects with known keys (`fields_`) and of arrays of such objects or of
// ranks. Invariants while an object is open: seen_ has bit i set if key i was read; numbers_[i]
// holds its value if it is an integer; field_ is the key whose value comes next.
class PlanReader : public nlohmann::json_sax<Json> {
 public:
  explicit PlanReader(std::string_view source) : source_(source) {}

  // Requires that the parser has run.
  Result<Plan> take() && {
    if (error_) return *error_;
    return std::move(plan_);
  }

  bool null() override { return wrong_type("null"); }
  bool boolean(bool value) override { return wrong_type(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return integer(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(kMaxInt64))
      return unfit_number(std::to_string(value));
    return integer(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return unfit_number(text.substr(0, kMaxQuoted));
  }
  bool string(string_t& value) override;
  bool binary(binary_t& /*value*/) override { return wrong_type("binary data"); }
  bool start_object(std::size_t /*elements*/) override;
  bool key(string_t& name) override;
  bool end_object() override;
  bool start_array(std::size_t /*elements*/) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& problem) override;

 private:
  // What encloses the next value.
  enum class Level : std::uint8_t {
    kDocument,
    kPlan,
    kChunkList,
    kChunk,
    kTransferList,
    kTransfer,
    kMixList,
    kMix,
  };

  // The place of the next value: "transfers[12].after".
  [[nodiscard]] std::string place() const;
  // The place of what encloses it: "transfers[12]".
  [[nodiscard]] std::string object_place() const;
  bool fail(std::string message);
  bool wrong_type(std::string_view found);
  // A number that does not fit an int64 is quoted as it stands in the document.
  bool unfit_number(std::string_view text);
  // What is allowed as the next value.
  [[nodiscard]] std::string expected() const;
  [[nodiscard]] bool in_object() const {
    return level_ == Level::kPlan || level_ == Level::kChunk || level_ == Level::kTransfer;
  }

  bool integer(std::int64_t value);
  void open_object(Level level, std::span<const JsonField> fields);
  bool complete_object();
  [[nodiscard]] Rank optional_rank(std::size_t field) const {
    return (seen_ >> field & 1U) != 0 ? Rank(narrow(numbers_[field])) : Rank();
  }

  std::string_view source_;
  Plan plan_;
  std::optional<Error> error_;

  Level level_ = Level::kDocument;
  std::span<const JsonField> fields_;
  std::size_t field_ = 0;
  std::uint32_t seen_ = 0;
  std::uint32_t plan_seen_ = 0;  // seen_ of the outermost object while an inner one is open
  std::array<std::int64_t, kPlanFields.size()> numbers_{};
  TransferKind kind_ = TransferKind::kReduce;
};

std::string PlanReader::object_place() const {
  switch (level_) {
    case Level::kDocument:
    case Level::kPlan:
      return "the plan";
    case Level::kChunkList:
      return "chunks";
    case Level::kChunk:
      return fmt::format("chunks[{}]", plan_.chunks.size());
    case Level::kTransferList:
      return "transfers";
    case Level::kTransfer:
      return fmt::format("transfers[{}]", plan_.transfers.size());
    case Level::kMixList:
      return "mixes";
    case Level::kMix:
      return fmt::format("mixes[{}]", plan_.mixes.size() - 1);
  }
  return "";
}

std::string PlanReader::place() const {
  switch (level_) {
    case Level::kDocument:
      return object_place();
    case Level::kPlan:
      return std::string(fields_[field_].key);
    case Level::kChunk:
    case Level::kTransfer:
      return fmt::format("{}.{}", object_place(), fields_[field_].key);
    case Level::kChunkList:
      return fmt::format("chunks[{}]", plan_.chunks.size());
    case Level::kTransferList:
      return fmt::format("transfers[{}]", plan_.transfers.size());
    case Level::kMixList:
      return fmt::format("mixes[{}]", plan_.mixes.size());
    case Level::kMix:
      return fmt::format("{}[{}]", object_place(), plan_.mixes.back().size());
  }
  return "";
}

bool PlanReader::fail(std::string message) {
  error_ = Error(fmt::format("{}: {}", source_, message));
  return false;
}

std::string PlanReader::expected() const {
  switch (level_) {
    case Level::kDocument:
    case Level::kChunkList:
    case Level::kTransferList:
      return "an object";
    case Level::kMixList:
      return "an array of ranks";
    case Level::kMix:
      return "a rank, " + allowed_range(0, kMaxRankValue);
    default:
      return describe(fields_[field_].type);
  }
}

bool PlanReader::wrong_type(std::string_view found) {
  return fail(fmt::format("{}: {} is not allowed: {}", place(), found, expected()));
}

bool PlanReader::unfit_number(std::string_view text) {
  if (in_object() && fields_[field_].type == JsonFieldType::kInteger) {
    return fail(fmt::format("{}: {} is not allowed: a whole number, {}", place(), text,
                            allowed_range(fields_[field_].least, fields_[field_].most)));
  }
  return wrong_type(text);
}

bool PlanReader::integer(std::int64_t value) {
  if (level_ == Level::kMix && value >= 0 && value <= kMaxRankValue) {
    plan_.mixes.back().emplace_back(narrow(value));
    return true;
  }
  if (!in_object() || fields_[field_].type != JsonFieldType::kInteger) {
    return wrong_type(std::to_string(value));
  }
  const JsonField& field = fields_[field_];
  if (value < field.least || value > field.most) {
    return fail(fmt::format("{}: {} is not allowed: {}", place(), value,
                            allowed_range(field.least, field.most)));
  }
  numbers_[field_] = value;
  if (level_ != Level::kPlan) return true;
  switch (field_) {
    case PlanKey::kRanks:
      plan_.ranks = narrow(value);
      break;
    case PlanKey::kContributors:
      plan_.contributors = narrow(value);
      break;
    case PlanKey::kRoot:
      plan_.root = Rank(narrow(value));
      break;
    case PlanKey::kElements:
      plan_.elements = value;
      break;
    case PlanKey::kElementBytes:
      plan_.element_bytes = narrow(value);
      break;
    default:
      break;
  }
  return true;
}

bool PlanReader::string(string_t& value) {
  if (!in_object() || fields_[field_].type != JsonFieldType::kText)
    return wrong_type(in_quotes(value));
  if (level_ == Level::kTransfer) {
    if (value != "reduce" && value != "copy") {
      return fail(fmt::format("{}: {} is not allowed: reduce or copy", place(), in_quotes(value)));
    }
    kind_ = value == "reduce" ? TransferKind::kReduce : TransferKind::kCopy;
    return true;
  }
  switch (field_) {
    case PlanKey::kFormat:
      if (value == kPlanFormatName) return true;
      return fail(
          fmt::format("{}: {} is not allowed: {}", place(), in_quotes(value), kPlanFormatName));
    case PlanKey::kScheme:
      plan_.scheme = value;
      return true;
    default: {
      auto collective = parse_collective(value);
      if (!collective) return fail(place() + ": " + collective.error().message());
      plan_.collective = *collective;
      return true;
    }
  }
}

void PlanReader::open_object(Level level, std::span<const JsonField> fields) {
  level_ = level;
  fields_ = fields;
  field_ = fields.size();
  seen_ = 0;
}

bool PlanReader::start_object(std::size_t /*elements*/) {
  switch (level_) {
    case Level::kDocument:
      open_object(Level::kPlan, kPlanFields);
      return true;
    case Level::kChunkList:
      open_object(Level::kChunk, kChunkFields);
      return true;
    case Level::kTransferList:
      open_object(Level::kTransfer, kTransferFields);
      return true;
    default:
      return wrong_type("an object");
  }
}

bool PlanReader::key(string_t& name) {
  for (field_ = 0; field_ < fields_.size(); ++field_) {
    if (fields_[field_].key != name) continue;
    if ((seen_ >> field_ & 1U) != 0) return fail(place() + ": the key stands there twice");
    seen_ |= 1U << field_;
    return true;
  }
  std::vector<std::string_view> keys;
  for (const JsonField& field : fields_) keys.push_back(field.key);
  return fail(fmt::format("{}: {} is not a key: {}{}", object_place(), in_quotes(name),
                          keys_of(fields_), did_you_mean(name, keys)));
}

bool PlanReader::complete_object() {
  for (field_ = 0; field_ < fields_.size(); ++field_) {
    if (fields_[field_].required && (seen_ >> field_ & 1U) == 0) {
      return fail(fmt::format("{}: missing: {}", place(), expected()));
    }
  }
  return true;
}

bool PlanReader::end_object() {
  if (!complete_object()) return false;
  if (level_ == Level::kPlan) return true;
  if (level_ == Level::kChunk) {
    plan_.chunks.push_back({.offset = numbers_[ChunkKey::kOffset],
                            .length = numbers_[ChunkKey::kLength],
                            .source = optional_rank(ChunkKey::kChunkSource),
                            .target = optional_rank(ChunkKey::kChunkTarget)});
    level_ = Level::kChunkList;
  } else {
    plan_.transfers.push_back({.source = Rank(narrow(numbers_[TransferKey::kFrom])),
                               .target = Rank(narrow(numbers_[TransferKey::kTo])),
                               .chunk = ChunkIndex(narrow(numbers_[TransferKey::kChunk])),
                               .after = narrow(numbers_[TransferKey::kAfter]),
                               .kind = kind_});
    level_ = Level::kTransferList;
  }
  return true;
}

bool PlanReader::start_array(std::size_t /*elements*/) {
  if (level_ == Level::kMixList) {
    plan_.mixes.emplace_back();
    level_ = Level::kMix;
    return true;
  }
  if (level_ != Level::kPlan || fields_[field_].type != JsonFieldType::kArray) {
    return wrong_type("an array");
  }
  plan_seen_ = seen_;
  level_ = field_ == PlanKey::kChunks      ? Level::kChunkList
           : field_ == PlanKey::kTransfers ? Level::kTransferList
                                           : Level::kMixList;
  return true;
}

bool PlanReader::end_array() {
  if (level_ == Level::kMix) {
    level_ = Level::kMixList;
    return true;
  }
  open_object(Level::kPlan, kPlanFields);
  seen_ = plan_seen_;
  return true;
}

bool PlanReader::parse_error(std::size_t /*position*/, const std::string& /*last_token*/,
                             const nlohmann::detail::exception& problem) {
  // The library's message starts with an identifier of its own in brackets.
  const std::string_view message = problem.what();
  const std::size_t bracket = message.find("] ");
  return fail(
      std::string(bracket == std::string_view::npos ? message : message.substr(bracket + 2)));
}

}  // namespace

Result<Plan> plan_from_json(std::string_view text, std::string_view source) {
  PlanReader reader(source);
  Json::sax_parse(text, &reader);
  THALWEG_TRY(Plan plan, std::move(reader).take());
  if (auto shape = check_shape(plan); !shape) return shape.error().within(std::string(source));
  return plan;
}

}  // namespace thalweg::plan
