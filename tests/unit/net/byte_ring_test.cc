#include "net/group/shm/byte_ring.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "net/io/fd.h"

namespace thalweg::net {
namespace {

constexpr std::size_t kCapacity = 4096;

// A ring in this process's own memory, mapped twice as it must be.
class Ring {
 public:
  explicit Ring(std::size_t capacity = kCapacity) : capacity_(capacity) {
    const Fd file(memfd_create("ring", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(capacity)), 0);
    area_ = static_cast<std::byte*>(
        mmap(nullptr, 2 * capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (const std::size_t at : {std::size_t{0}, capacity}) {
      EXPECT_NE(
          mmap(area_ + at, capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0),
          MAP_FAILED);
    }
  }
  ~Ring() { munmap(area_, 2 * capacity_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  RingState state;
  [[nodiscard]] RingMemory memory() { return {&state, area_, capacity_}; }

 private:
  std::size_t capacity_;
  std::byte* area_;
};

// Byte i of the stream that the tests send.
std::byte byte_at(std::uint64_t i) { return static_cast<std::byte>(mix_bits(i / 8) >> (i % 8)); }

std::vector<std::byte> bytes_from(std::uint64_t begin, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = byte_at(begin + i);
  return bytes;
}

std::size_t write_some(RingWriter& writer, std::vector<std::byte> bytes) {
  const std::array<iovec, 1> pieces{{{bytes.data(), bytes.size()}}};
  return writer.write(pieces);
}

// A clock by which every plain step is slow, and every streamed one fast.
Time slow_and_fast() {
  static int readings = 0;
  static Time now;
  const int reading = readings++ % 4;
  if (reading == 1) now = now + StepCopy::kFast * 100;
  if (reading == 3) now = now + Duration::nanoseconds(1);
  return now;
}

// Writes and reads many times what fits, in pieces of any size.
void send_many_laps(std::size_t capacity, StepCopy copy) {
  Ring ring(capacity);
  RingWriter writer(ring.memory(), copy);
  RingReader reader(ring.memory());
  Prng random(7);
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  while (received < 50 * capacity) {
    sent += write_some(writer, bytes_from(sent, 1 + random.below(2 * capacity)));
    const std::span<const std::byte> seen = reader.peek();
    ASSERT_EQ(seen.size(), sent - received) << "all that was written, whole";
    const std::size_t take = random.below(seen.size() + 1);
    ASSERT_TRUE(std::ranges::equal(seen.first(take), bytes_from(received, take)));
    reader.consume(take);
    received += take;
  }
}

TEST(ByteRing, write__in_order_and_in_one_piece_past_the_end) {
  send_many_laps(kCapacity, StepCopy());
}

TEST(ByteRing, write__the_same_with_steps_that_stream) {
  // By that clock it streams soon.
  StepCopy copy(&slow_and_fast);
  std::vector<std::byte> steps(2 * StepCopy::kStep);
  for (unsigned i = 0; i < StepCopy::kSlowInARow * StepCopy::kPlainPerTimed; ++i) {
    copy.copy(steps.data(), steps.data() + StepCopy::kStep);
  }
  ASSERT_TRUE(copy.streams());
  send_many_laps(4 * StepCopy::kStep, copy);
}

TEST(ByteRing, write__several_pieces_follow_each_other) {
  Ring ring;
  RingWriter writer(ring.memory());
  RingReader reader(ring.memory());
  std::vector<std::byte> a = bytes_from(0, 32);
  std::vector<std::byte> b = bytes_from(32, 100);
  const std::array<iovec, 2> pieces{{{a.data(), a.size()}, {b.data(), b.size()}}};
  EXPECT_EQ(writer.write(pieces), 132U);
  EXPECT_TRUE(std::ranges::equal(reader.peek(), bytes_from(0, 132)));
}

TEST(ByteRing, write__full_ring_cuts_where_no_element_is) {
  Ring ring;
  RingWriter writer(ring.memory());
  RingReader reader(ring.memory());
  ASSERT_EQ(write_some(writer, bytes_from(0, 100)), 100U);
  // 3996 bytes are free, of which 3968 are a multiple of the grain.
  EXPECT_EQ(write_some(writer, bytes_from(100, 5000)),
            kCapacity - 100 - (kCapacity - 100) % kRingGrain);
  EXPECT_EQ(write_some(writer, bytes_from(0, 5000)), 0U) << "28 bytes are free: less than a grain";
  EXPECT_EQ(write_some(writer, bytes_from(4068, 28)), 28U) << "what fits whole is not cut";
  EXPECT_EQ(reader.peek().size(), kCapacity);
  reader.consume(64);
  EXPECT_EQ(write_some(writer, bytes_from(4096, 5000)), 64U);
  EXPECT_TRUE(std::ranges::equal(reader.peek(), bytes_from(64, kCapacity)));
}

TEST(ByteRing, prepare_sleep__asks_for_one_bell_and_looks_again) {
  Ring ring;
  RingWriter writer(ring.memory());
  RingReader reader(ring.memory());
  EXPECT_FALSE(writer.must_wake_reader());
  EXPECT_FALSE(reader.prepare_sleep());
  ASSERT_EQ(write_some(writer, bytes_from(0, kCapacity)), kCapacity);
  EXPECT_TRUE(writer.must_wake_reader());
  EXPECT_FALSE(writer.must_wake_reader()) << "once";
  EXPECT_TRUE(reader.prepare_sleep()) << "there is something to read";
  reader.wake_up();
  EXPECT_FALSE(writer.must_wake_reader());

  EXPECT_FALSE(reader.must_wake_writer());
  EXPECT_FALSE(writer.prepare_sleep());
  static_cast<void>(reader.peek());
  reader.consume(1);
  EXPECT_TRUE(reader.must_wake_writer());
  EXPECT_FALSE(writer.prepare_sleep()) << "less than a grain is free";
  reader.consume(kRingGrain);
  EXPECT_TRUE(writer.prepare_sleep());
}

TEST(ByteRing, peek__nonsense_of_the_writer_is_never_read) {
  for (const std::uint64_t written : {std::uint64_t{kCapacity + 11}, std::uint64_t{1} << 40,
                                      std::uint64_t{9}, ~std::uint64_t{0}}) {
    Ring ring;
    RingWriter writer(ring.memory());
    RingReader reader(ring.memory());
    ASSERT_EQ(write_some(writer, bytes_from(0, 10)), 10U);
    ASSERT_EQ(reader.peek().size(), 10U);
    reader.consume(10);
    ring.state.written = written;
    EXPECT_TRUE(reader.peek().empty()) << written;
    EXPECT_TRUE(reader.broken()) << written;
    ring.state.written = 12;
    EXPECT_TRUE(reader.peek().empty()) << "it stays broken";
    EXPECT_TRUE(reader.prepare_sleep()) << "and nobody sleeps on it";
  }
}

TEST(ByteRing, write__nonsense_of_the_reader_is_never_overwritten) {
  for (const std::uint64_t read : {std::uint64_t{kCapacity + 1}, ~std::uint64_t{0} - 100}) {
    Ring ring;
    RingWriter writer(ring.memory());
    ASSERT_EQ(write_some(writer, bytes_from(0, kCapacity)), kCapacity);
    ring.state.read = read;
    EXPECT_EQ(write_some(writer, bytes_from(0, 100)), 0U) << read;
    EXPECT_TRUE(writer.broken()) << read;
    EXPECT_TRUE(writer.prepare_sleep());
  }
}

// Sleeps until the bell rings. False: it never did.
bool sleep_on(const Fd& bell) {
  pollfd wait{bell.get(), POLLIN, 0};
  if (poll(&wait, 1, 20'000) != 1) return false;
  eventfd_t value = 0;
  eventfd_read(bell.get(), &value);
  return true;
}

TEST(ByteRing, two_threads__no_byte_and_no_bell_is_lost) {
  constexpr std::uint64_t kAll = std::uint64_t{8} << 20;
  Ring ring;
  const Fd reader_bell(eventfd(0, EFD_CLOEXEC));
  const Fd writer_bell(eventfd(0, EFD_CLOEXEC));
  std::thread other([&] {
    RingWriter writer(ring.memory());
    Prng random(1);
    for (std::uint64_t sent = 0; sent < kAll;) {
      const std::size_t size = std::min<std::uint64_t>(1 + random.below(3000), kAll - sent);
      sent += write_some(writer, bytes_from(sent, size));
      if (writer.must_wake_reader()) eventfd_write(reader_bell.get(), 1);
      if (writer.prepare_sleep()) continue;
      ASSERT_TRUE(sleep_on(writer_bell)) << "the writer sleeps for ever after " << sent;
    }
  });
  RingReader reader(ring.memory());
  Prng random(2);
  for (std::uint64_t received = 0; received < kAll;) {
    const std::span<const std::byte> seen = reader.peek();
    const std::size_t take = std::min<std::size_t>(seen.size(), 1 + random.below(3000));
    ASSERT_TRUE(std::ranges::equal(seen.first(take), bytes_from(received, take))) << received;
    reader.consume(take);
    received += take;
    if (reader.must_wake_writer()) eventfd_write(writer_bell.get(), 1);
    if (received == kAll || reader.prepare_sleep()) continue;
    ASSERT_TRUE(sleep_on(reader_bell)) << "the reader sleeps for ever after " << received;
  }
  other.join();
}

// The writer writes just when its reader is about to sleep, very often. The bell is a variable,
// because a real one would take longer than the moment that the test wants to hit.
TEST(ByteRing, prepare_sleep__meets_a_write_at_the_same_time) {
  using Clock = std::chrono::steady_clock;
  Ring ring;
  std::atomic<bool> bell = false;
  std::atomic<bool> over = false;
  std::thread other([&] {
    RingWriter writer(ring.memory());
    std::array<std::byte, 8> message{};
    const std::array<iovec, 1> pieces{{{message.data(), message.size()}}};
    for (std::uint64_t round = 0; !over; ++round) {
      for (int looks = 0; !over && ring.state.read != round * message.size(); ++looks) {
        if (looks % 64 == 63) std::this_thread::yield();
      }
      writer.write(pieces);
      if (writer.must_wake_reader()) bell = true;
    }
  });
  RingReader reader(ring.memory());
  bool lost = false;
  const auto end = Clock::now() + std::chrono::seconds(1);
  while (!lost && Clock::now() < end) {
    if (const std::size_t size = reader.peek().size(); size > 0) {
      reader.consume(size);
      continue;
    }
    if (reader.prepare_sleep()) continue;
    const auto limit = Clock::now() + std::chrono::seconds(5);
    for (int looks = 0; !lost && !bell.exchange(false); ++looks) {
      if (looks % 64 == 63) std::this_thread::yield();
      if (looks % 4096 == 4095) lost = Clock::now() > limit;
    }
  }
  over = true;
  EXPECT_FALSE(lost) << "a write was missed, and no bell came";
  other.join();
}

}  // namespace
}  // namespace thalweg::net
