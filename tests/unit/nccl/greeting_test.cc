#include "nccl/greeting.h"

#include <gtest/gtest.h>

namespace thalweg::nccl {
namespace {

TEST(nccl_greeting, what_is_encoded_is_decoded) {
  for (const char* address : {"10.1.2.3:4567", "[2001:db8::7]:80"}) {
    const Handle handle{.address = *net::SocketAddress::numeric(address),
                        .keyed = true,
                        .challenge = 0x0123456789abcdef,
                        .attempt = 5};
    const auto decoded = decode_handle(encode_handle(handle));
    ASSERT_TRUE(std::holds_alternative<Handle>(decoded));
    EXPECT_EQ(std::get<Handle>(decoded).address.to_string(), address);
    EXPECT_EQ(std::get<Handle>(decoded).challenge, handle.challenge);
    EXPECT_EQ(std::get<Handle>(decoded).attempt, 5U);
    EXPECT_TRUE(std::get<Handle>(decoded).keyed);
  }
  StreamHello hello{.keyed = false, .stream = 2, .streams = 3, .challenge = 7, .connection = 8};
  const auto decoded = decode_hello(encode_hello(hello));
  EXPECT_EQ(std::get<StreamHello>(decoded).stream, 2);
  EXPECT_EQ(std::get<StreamHello>(decoded).connection, 8U);
}

TEST(nccl_greeting, what_is_wrong_is_refused) {
  const auto good = encode_hello({.keyed = false, .stream = 0, .streams = 16});
  const auto error_of = [](StreamHelloBytes bytes, std::size_t at, unsigned char value) {
    bytes[at] = std::byte{value};
    const auto decoded = decode_hello(bytes);
    return std::holds_alternative<GreetingError>(decoded)
               ? std::optional(std::get<GreetingError>(decoded))
               : std::nullopt;
  };
  EXPECT_EQ(error_of(good, 0, 'T'), std::nullopt);
  EXPECT_EQ(error_of(good, 0, 'X'), GreetingError::kForeign);
  EXPECT_EQ(error_of(good, 8, 2), GreetingError::kVersion);
  EXPECT_EQ(error_of(good, 10, 2), GreetingError::kForeign);   // neither with a key nor without
  EXPECT_EQ(error_of(good, 11, 16), GreetingError::kForeign);  // no such stream
  EXPECT_EQ(error_of(good, 12, 0), GreetingError::kForeign);
  EXPECT_EQ(error_of(good, 12, 17), GreetingError::kForeign);
  EXPECT_EQ(error_of(good, 13, 1), GreetingError::kForeign);
  EXPECT_EQ(error_of(good, 40, 1), GreetingError::kForeign);  // an opening without a key
}

TEST(nccl_greeting, pieces_are_within_their_message) {
  const auto taken = [](const Piece& piece) {
    return decode_piece(encode_piece(piece)).has_value();
  };
  EXPECT_TRUE(taken({.message = 1, .size = 10, .offset = 4, .length = 6}));
  EXPECT_TRUE(taken({.message = 1}));
  EXPECT_FALSE(taken({.message = 1, .size = 10, .offset = 4, .length = 7}));
  EXPECT_FALSE(taken({.message = 1, .size = 10, .offset = 11, .length = 1}));
  EXPECT_FALSE(taken({.message = 1, .size = 10, .offset = 4, .length = 0}));
  EXPECT_FALSE(taken({.message = 1, .size = std::uint64_t{1} << 63, .offset = 0, .length = 1}));
  PieceHeader bytes = encode_piece({.message = 1, .size = 1, .length = 1});
  bytes[31] = std::byte{0};
  EXPECT_FALSE(decode_piece(bytes).has_value());
}

}  // namespace
}  // namespace thalweg::nccl
