#include "trace/protobuf.h"

#include <bit>

namespace thalweg::trace {
namespace {

constexpr int kMaxVarintBytes = 10;
constexpr std::uint64_t kMaxField = (std::uint64_t{1} << 29) - 1;

}  // namespace

bool ProtoReader::fails(const char* problem) {
  problem_ = problem;
  rest_ = {};
  return false;
}

bool ProtoReader::varint(std::uint64_t& number) {
  number = 0;
  for (int i = 0; i < kMaxVarintBytes; ++i) {
    if (rest_.empty()) return fails("a number is cut off");
    const auto byte = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    // The tenth byte has one bit left of 64.
    if (i == kMaxVarintBytes - 1 && byte > 1) break;
    number |= static_cast<std::uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) return true;
  }
  return fails("a number has more than 64 bits");
}

bool ProtoReader::fixed(std::size_t bytes, std::uint64_t& number) {
  if (rest_.size() < bytes) return fails("a number is cut off");
  number = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    number |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(rest_[i])) << (8 * i);
  }
  rest_.remove_prefix(bytes);
  return true;
}

bool ProtoReader::counted(std::string_view& bytes) {
  std::uint64_t size = 0;
  if (!varint(size)) return false;
  if (size > rest_.size()) return fails("it is longer than what is left of the file");
  bytes = rest_.substr(0, static_cast<std::size_t>(size));
  rest_.remove_prefix(bytes.size());
  return true;
}

bool ProtoReader::next(ProtoField& field) {
  if (rest_.empty()) return false;
  std::uint64_t tag = 0;
  if (!varint(tag)) return false;
  const std::uint64_t number = tag >> 3;
  if (number == 0 || number > kMaxField) return fails("a field has a number that is not allowed");
  field = {.field = static_cast<std::uint32_t>(number), .wire = {}, .number = 0, .bytes = {}};
  switch (tag & 7) {
    case 0:
      field.wire = ProtoWire::kVarint;
      return varint(field.number);
    case 1:
      field.wire = ProtoWire::kFixed64;
      return fixed(8, field.number);
    case 2:
      field.wire = ProtoWire::kLength;
      return counted(field.bytes);
    case 5:
      field.wire = ProtoWire::kFixed32;
      return fixed(4, field.number);
    default:
      return fails("a field has a wire type that is not allowed");
  }
}

void put_varint(std::string& message, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) message += static_cast<char>((number & 0x7f) | 0x80);
  message += static_cast<char>(number);
}

void put_number(std::string& message, std::uint32_t field, std::uint64_t number) {
  put_varint(message, std::uint64_t{field} << 3 | static_cast<std::uint64_t>(ProtoWire::kVarint));
  put_varint(message, number);
}

void put_double(std::string& message, std::uint32_t field, double value) {
  put_varint(message, std::uint64_t{field} << 3 | static_cast<std::uint64_t>(ProtoWire::kFixed64));
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 0; i < 8; ++i) message += static_cast<char>(bits >> (8 * i) & 0xff);
}

void put_bytes(std::string& message, std::uint32_t field, std::string_view bytes) {
  put_varint(message, std::uint64_t{field} << 3 | static_cast<std::uint64_t>(ProtoWire::kLength));
  put_varint(message, bytes.size());
  message += bytes;
}

}  // namespace thalweg::trace
