// The wire format of Protocol Buffers, as far as Chakra's traces need it: messages are rows of
// fields, and a field is a number, a wire type and a value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace thalweg::trace {

enum class ProtoWire : std::uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

// One field as it was found. `number` is set for all wire types but kLength, which has `bytes`.
struct ProtoField {
  std::uint32_t field = 0;
  ProtoWire wire = ProtoWire::kVarint;
  std::uint64_t number = 0;
  std::string_view bytes;
};

// Walks over the fields of a message. After the last field, or the first that is malformed, next()
// returns false; problem() then says which it was.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : rest_(message) {}

  [[nodiscard]] bool next(ProtoField& field);
  // A varint without a field in front of it.
  [[nodiscard]] bool varint(std::uint64_t& number);
  // A varint that counts the bytes behind it, and those bytes.
  [[nodiscard]] bool counted(std::string_view& bytes);

  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  // Null: nothing was malformed.
  [[nodiscard]] const char* problem() const { return problem_; }

 private:
  [[nodiscard]] bool fixed(std::size_t bytes, std::uint64_t& number);
  [[nodiscard]] bool fails(const char* problem);

  std::string_view rest_;
  const char* problem_ = nullptr;
};

// These append one field to a message.
void put_varint(std::string& message, std::uint64_t number);
void put_number(std::string& message, std::uint32_t field, std::uint64_t number);
void put_double(std::string& message, std::uint32_t field, double value);
void put_bytes(std::string& message, std::uint32_t field, std::string_view bytes);

}  // namespace thalweg::trace
