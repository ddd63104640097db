// Somebody between ranks that hold a job key, who listens and who changes what passes on purpose:
// he learns no tensor, and a call gives the right result or an error.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/communicator.h>

#include "base/messages.h"
#include "base/prng.h"
#include "net/eavesdropper.h"
#include "net/net_pair.h"
#include "net/ranks.h"
#include "net/relay.h"
#include "net/relayed_ranks.h"
#include "net/store/store_client.h"
#include "net/store/store_server.h"
#include "wire/frame.h"
#include "wire/sealed_frame.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

const std::string kPattern = "the secret tensor";

std::vector<std::int8_t> pattern_tensor(std::size_t size) {
  std::vector<std::int8_t> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    values[i] = static_cast<std::int8_t>(kPattern[i % kPattern.size()]);
  }
  return values;
}

// Moves a pattern from rank to rank, by collectives and by messages, small and large.
void move_pattern(Eavesdropper& ear) {
  RelayedRanks ranks(2, [&](int) { return ear.filters(); });
  ranks.run([](Communicator& all) {
    for (const std::size_t size : {std::size_t{200}, std::size_t{300'000}}) {
      const std::vector<std::int8_t> sent = pattern_tensor(size);
      std::vector<std::int8_t> values = sent;
      EXPECT_EQ(message_of(all.allreduce(TensorSpan::of(values), {.op = ReduceOp::kMax})),
                "no error");
      EXPECT_EQ(values, sent);
      if (all.rank() == 1) {
        EXPECT_EQ(message_of(all.send(TensorView::of(sent), 0, 7)), "no error");
      } else {
        std::ranges::fill(values, std::int8_t{0});
        EXPECT_EQ(message_of(all.recv(TensorSpan::of(values), 1, 7)), "no error");
        EXPECT_EQ(values, sent);
      }
    }
  });
}

TEST(Sealing, eavesdropper__hears_tensors_without_a_key_and_none_with_one) {
  Eavesdropper without_key;
  move_pattern(without_key);
  EXPECT_GT(without_key.count(kPattern), 10'000);
  const KeyFile key;
  Eavesdropper with_key;
  move_pattern(with_key);
  EXPECT_GT(with_key.bytes(), without_key.bytes());
  EXPECT_EQ(with_key.count(kPattern.substr(0, 6)), 0);
  // The key alone does not encrypt.
  const Variable off("THALWEG_ENCRYPT", "0");
  Eavesdropper not_encrypted;
  move_pattern(not_encrypted);
  EXPECT_GT(not_encrypted.count(kPattern), 10'000);
}

TEST(Sealing, eavesdropper__hears_what_the_store_says_only_without_a_key) {
  for (const bool keyed : {false, true}) {
    std::optional<wire::JobKey> key;
    if (keyed) key = wire::JobKey::from_hex(std::string(32, 'a')).value();
    const StoreServer server = StoreServer::start("127.0.0.1:0", kToken, key).value();
    Eavesdropper ear;
    {
      const Relay relay(server.address(), ear.filters());
      const Time until = monotonic_now() + Duration::seconds(20);
      StoreClient client = StoreClient::connect(relay.address(), kToken, until, key).value();
      const std::string value(100'000, 'v');
      EXPECT_EQ(message_of(client.set("name of a key", value, until)), "no error");
      const Result<std::string> got = client.get("name of a key", until);
      EXPECT_EQ(message_of(got), "no error");
      EXPECT_TRUE(got.ok() && *got == value);
    }
    EXPECT_EQ(ear.count("name of a key"), keyed ? 0 : 2);
    EXPECT_EQ(ear.count("vvvvvvvv") > 0, !keyed);
  }
}

enum class StreamAttack : std::uint8_t { kFlip, kRepeat, kLeaveOut, kSwap, kCut };

const char* name_of_attack(const testing::TestParamInfo<StreamAttack>& test) {
  constexpr std::array kNames{"flip", "repeat", "leave_out", "swap", "cut"};
  return kNames[static_cast<std::size_t>(test.param)];
}

// Where in a direction of a stream, and how many bytes.
struct Place {
  std::size_t at;
  std::size_t size;
};

// Attacks once, on the bytes at `place`; of a swap, with as many after them.
Relay::Filter attacker(StreamAttack attack, Place place) {
  return [attack, place, passed = std::size_t{0},
          kept = std::vector<std::byte>()](std::vector<std::byte>& bytes) mutable {
    const std::size_t touched = attack == StreamAttack::kSwap ? 2 * place.size : place.size;
    const std::size_t end = place.at + touched;
    const std::size_t begin = passed;
    passed += bytes.size();
    if (begin >= end || passed <= place.at) return true;
    // Keeps what is touched until all of it is here.
    const std::size_t first = begin < place.at ? place.at - begin : 0;
    if (attack == StreamAttack::kCut) {
      bytes.resize(first);
      return false;
    }
    const std::size_t last = std::min(bytes.size(), end - begin);
    kept.insert(kept.end(), bytes.begin() + static_cast<std::ptrdiff_t>(first),
                bytes.begin() + static_cast<std::ptrdiff_t>(last));
    bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(first),
                bytes.begin() + static_cast<std::ptrdiff_t>(last));
    if (kept.size() < touched) return true;
    switch (attack) {
      case StreamAttack::kFlip:
        kept[place.size / 2] ^= std::byte{0x10};
        break;
      case StreamAttack::kRepeat:
        kept.resize(2 * place.size);
        std::copy_n(kept.begin(), place.size, kept.begin() + static_cast<std::ptrdiff_t>(touched));
        break;
      case StreamAttack::kLeaveOut:
        kept.clear();
        break;
      case StreamAttack::kSwap:
        std::ranges::rotate(kept, kept.begin() + static_cast<std::ptrdiff_t>(place.size));
        break;
      case StreamAttack::kCut:
        break;
    }
    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(first), kept.begin(), kept.end());
    return true;
  };
}

Relay::Filter no_attack() {
  return [](std::vector<std::byte>&) { return true; };
}

class AttackedRanks : public testing::TestWithParam<StreamAttack> {
 protected:
  // Attacks the streams that others made to rank `target`, on the way to it.
  RelayedRanks attacked(int size, int target, Place place) {
    return RelayedRanks(size, [target, place, attack = GetParam()](int rank) -> Relay::MakeFilter {
      return [=](std::size_t, bool forth) {
        return rank == target && forth ? attacker(attack, place) : no_attack();
      };
    });
  }
  static bool is_found(const Error& error, int from, int to) {
    if (GetParam() == StreamAttack::kCut) {
      return says(error.message(), "closed") || says(error.message(), "is lost");
    }
    return error.code() == ErrorCode::kInternal &&
           says(error.message(),
                fmt::format("bytes changed on the way from rank {} to rank {}", from, to)) &&
           says(error.message(), "AES-GCM");
  }

  const KeyFile key_;
};

// Every rank fails, and no sum that any of them got is wrong.
TEST_P(AttackedRanks, allreduce__fails_on_all_ranks_and_no_sum_is_wrong) {
  // At a place that is no boundary of a frame. Rank 2 sends to rank 0 in a ring of three.
  RelayedRanks ranks = attacked(3, 0, {.at = 300'001, .size = 5000});
  std::mutex mutex;
  int errors = 0;
  ranks.run([&](Communicator& all) {
    for (int call = 0; call < 50; ++call) {
      std::vector<std::int32_t> values(100'000);
      std::vector<std::int32_t> sums(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        for (int r = 0; r < all.size(); ++r) {
          const auto part =
              static_cast<std::int32_t>(mix_bits(i * 4 + static_cast<unsigned>(r)) % 1'000'000);
          if (r == all.rank()) values[i] = part;
          sums[i] += part;
        }
      }
      const Status status = all.allreduce(TensorSpan::of(values), {.deadline = 60s});
      if (status.ok()) {
        EXPECT_TRUE(values == sums);
        continue;
      }
      const std::lock_guard lock(mutex);
      ++errors;
      EXPECT_TRUE(is_found(status.error(), 2, 0)) << status.error().message();
      return;
    }
  });
  EXPECT_EQ(errors, 3);
}

// A message is a stream of frames whose lengths he knows, so he touches whole records.
TEST_P(AttackedRanks, messages__whole_records) {
  constexpr std::size_t kFrame = wire::kSealedFrameSize + (std::size_t{128} << 10);
  constexpr std::size_t kFirst =
      StreamKey::kOpeningSize + 2 * wire::kSealedFrameSize;  // hello, announcement
  RelayedRanks ranks = attacked(2, 0, {.at = kFirst + 2 * kFrame, .size = kFrame});
  ranks.run([&](Communicator& all) {
    std::vector<std::int32_t> values(std::size_t{1} << 19);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i * 7);
    if (all.rank() == 1) {
      const Status status = all.send(TensorView::of(values), 0, 7);
      // A send is over when the system has taken all bytes, so it may succeed.
      if (!status.ok()) {
        EXPECT_TRUE(is_found(status.error(), 1, 0)) << status.error().message();
      }
    } else {
      const Result<int> received = all.recv(TensorSpan::of(values), 1, 7);
      ASSERT_FALSE(received.ok());
      EXPECT_TRUE(is_found(received.error(), 1, 0)) << received.error().message();
    }
  });
}

// The opening, the hello and the first frames.
TEST_P(AttackedRanks, first_bytes__no_call_succeeds) {
  for (const std::size_t at : {std::size_t{3}, std::size_t{45}, std::size_t{110}}) {
    SCOPED_TRACE(at);
    RelayedRanks ranks = attacked(2, 0, {.at = at, .size = 20});
    ranks.run([&](Communicator& all) {
      std::vector<std::int32_t> values(1000, 1);
      EXPECT_FALSE(all.allreduce(TensorSpan::of(values), {.deadline = 3s}).ok());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Attacks, AttackedRanks,
                         testing::Values(StreamAttack::kFlip, StreamAttack::kRepeat,
                                         StreamAttack::kLeaveOut, StreamAttack::kSwap,
                                         StreamAttack::kCut),
                         name_of_attack);

// Flips a bit in the payload of every data frame with checksums, and corrects both checksums.
Relay::Filter corrector() {
  return [spared = StreamKey::kOpeningSize + wire::kCheckedFrameSize,
          kept = std::vector<std::byte>()](std::vector<std::byte>& bytes) mutable {
    kept.insert(kept.end(), bytes.begin(), bytes.end());
    bytes.clear();
    const auto pass = [&](std::size_t size) {
      bytes.insert(bytes.end(), kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(size));
      kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(size));
    };
    const std::size_t first = std::min(spared, kept.size());
    spared -= first;
    pass(first);
    while (kept.size() >= wire::kCheckedFrameSize) {
      wire::Frame frame;
      std::uint32_t checksum = 0;
      const auto header = std::span<const std::byte>(kept).first<wire::kCheckedFrameSize>();
      EXPECT_EQ(wire::decode_checked_frame(header, frame, checksum), wire::WireError::kNone);
      const std::size_t whole = wire::kCheckedFrameSize + frame.length;
      if (kept.size() < whole) break;
      if (frame.kind == wire::FrameKind::kData) {
        const auto payload = std::span(kept).subspan(wire::kCheckedFrameSize, frame.length);
        payload[frame.length / 2] ^= std::byte{1};
        std::ranges::copy(wire::encode_checked_frame(frame, wire::crc32c(payload)), kept.begin());
      }
      pass(whole);
    }
    return true;
  };
}

// So the tests above find what they look for: it is the seal that does it, not the checksum.
TEST(Sealing, attacker__who_corrects_checksums_makes_wrong_sums_without_encryption) {
  const KeyFile key;
  const Variable off("THALWEG_ENCRYPT", "0");
  const Variable checksums("THALWEG_CHECKSUM", "always");
  RelayedRanks ranks(2, [](int) -> Relay::MakeFilter {
    return [](std::size_t, bool forth) { return forth ? corrector() : no_attack(); };
  });
  std::atomic<int> wrong = 0;
  ranks.run([&](Communicator& all) {
    std::vector<std::int32_t> values(100'000, 1);
    const std::vector<std::int32_t> sums(values.size(), 2);
    EXPECT_EQ(message_of(all.allreduce(TensorSpan::of(values))), "no error");
    if (values != sums) ++wrong;
  });
  EXPECT_GT(wrong, 0);
}

TEST(Sealing, settings__that_differ_are_named_on_both_ranks) {
  const KeyFile key;
  for (const int without : {0, 1}) {
    for (const bool messages : {false, true}) {
      std::optional<Variable> encrypt;
      RelayedRanks ranks(
          2, [](int) -> Relay::MakeFilter { return [](auto, auto) { return no_attack(); }; },
          [&](int rank) { encrypt.emplace("THALWEG_ENCRYPT", rank == without ? "0" : "1"); });
      ranks.run([&](Communicator& all) {
        std::vector<std::int32_t> values(1000, 1);
        Status status = ok_status();
        if (!messages) {
          status = all.allreduce(TensorSpan::of(values), {.deadline = 20s});
        } else if (all.rank() == 0) {
          const Result<int> got = all.recv(TensorSpan::of(values), 1, 7, {.deadline = 20s});
          if (!got.ok()) status = got.error();
        } else {
          // A small message is over when the system has it.
          static_cast<void>(all.send(TensorView::of(values), 0, 7, {.deadline = 20s}));
          return;
        }
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code(), ErrorCode::kMismatch) << status.error().message();
        EXPECT_TRUE(says(status.error().message(),
                         fmt::format("rank {} encrypts its streams, and rank {} does not encrypt "
                                     "them: THALWEG_ENCRYPT must be the same on all ranks",
                                     1 - without, without)));
      });
    }
  }
}

TEST(Sealing, key__another_is_refused) {
  std::optional<KeyFile> key;
  key.emplace('a');
  RelayedRanks ranks(
      2, [](int) -> Relay::MakeFilter { return [](auto, auto) { return no_attack(); }; },
      [&](int rank) {
        key.reset();
        key.emplace(rank == 0 ? 'a' : 'b');
      });
  ranks.run([](Communicator& all) {
    std::vector<std::int32_t> values(1000, 1);
    EXPECT_FALSE(all.allreduce(TensorSpan::of(values), {.deadline = 3s}).ok());
    EXPECT_EQ(values, std::vector<std::int32_t>(1000, 1));
  });
}

}  // namespace
}  // namespace thalweg::net
