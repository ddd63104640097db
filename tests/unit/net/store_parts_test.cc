// The store without sockets: its messages, and its table in virtual time.
#include <gtest/gtest.h>

#include "base/prng.h"
#include "net/store/store_message.h"
#include "net/store/store_table.h"

namespace thalweg::net {
namespace {

using What = StoreRequest::What;
using TableOutcome = StoreReply::Outcome;

std::vector<std::byte> encoded_store(const auto& message) {
  std::vector<std::byte> bytes;
  encode_store(message, bytes);
  return bytes;
}

const std::vector<StoreRequest> kRequests{
    {.what = What::kSet, .number = 7, .key = "a", .value = "value"},
    {.what = What::kGet, .number = 8, .key = "k\0ey", .wait_ms = 5000},
    {.what = What::kWait, .number = 9, .key = "b", .wait_ms = 1},
    {.what = What::kAdd, .number = 10, .key = "n", .delta = -3},
    {.what = What::kCompareAndSet, .number = 11, .key = "c", .value = "new", .expected = ""},
    {.what = What::kCompareAndSet, .number = 12, .key = "c", .value = "", .expected = "old"},
    {.what = What::kCompareAndSet, .number = 13, .key = "c", .value = "first"},
    {.what = What::kDelete, .number = 14, .key = std::string(kMaxStoreKey, 'k')},
    {.what = What::kSet, .number = 15, .key = "l", .value = std::string(kMaxStoreValue, 'v')},
};

TEST(StoreMessage, requests__come_back_from_one_stream) {
  std::vector<std::byte> stream;
  for (const StoreRequest& request : kRequests) encode_store(request, stream);
  std::span<const std::byte> left(stream);
  for (const StoreRequest& request : kRequests) {
    StoreRequest out;
    ASSERT_EQ(take_store(left, out), wire::WireError::kNone);
    EXPECT_EQ(out, request);
  }
  EXPECT_TRUE(left.empty());
}

TEST(StoreMessage, replies__come_back) {
  for (const StoreReply& reply :
       {StoreReply{TableOutcome::kDone, 3, "value"}, StoreReply{TableOutcome::kFull, 4, ""},
        StoreReply{TableOutcome::kDifferent, 5, std::string("\0x", 2)}}) {
    const auto bytes = encoded_store(reply);
    std::span<const std::byte> left(bytes);
    StoreReply out;
    ASSERT_EQ(take_store(left, out), wire::WireError::kNone);
    EXPECT_EQ(out, reply);
  }
}

TEST(StoreMessage, half_a_message__is_short_and_left_alone) {
  const auto request = encoded_store(kRequests[4]);
  const auto reply = encoded_store(StoreReply{TableOutcome::kDone, 1, "abc"});
  for (std::size_t size = 0; size < request.size(); ++size) {
    auto left = std::span(request).first(size);
    std::span<const std::byte> before(left);
    StoreRequest out;
    EXPECT_EQ(take_store(before, out), wire::WireError::kShort) << size;
    EXPECT_EQ(before.size(), size);
  }
  for (std::size_t size = 0; size < reply.size(); ++size) {
    std::span<const std::byte> left = std::span(reply).first(size);
    StoreReply out;
    EXPECT_EQ(take_store(left, out), wire::WireError::kShort) << size;
  }
}

TEST(StoreMessage, nonsense__is_refused_with_the_reason) {
  struct Row {
    std::size_t request;  // index in kRequests
    std::size_t at;
    int value;
    wire::WireError error;
  };
  for (const Row& row :
       {Row{0, 3, 1, wire::WireError::kLength}, Row{0, 0, 2, wire::WireError::kLength},
        Row{0, 4, 6, wire::WireError::kKind}, Row{0, 5, 2, wire::WireError::kReserved},
        Row{0, 5, 1, wire::WireError::kField}, Row{0, 6, 0, wire::WireError::kLength},
        Row{0, 6, 2, wire::WireError::kLength}, Row{0, 12, 1, wire::WireError::kField},
        Row{0, 16, 6, wire::WireError::kLength}, Row{0, 24, 1, wire::WireError::kField},
        Row{5, 5, 0, wire::WireError::kLength}, Row{3, 4, 0, wire::WireError::kField},
        Row{0, 4, 1, wire::WireError::kField}}) {
    auto bytes = encoded_store(kRequests[row.request]);
    bytes[row.at] = static_cast<std::byte>(row.value);
    std::span<const std::byte> left(bytes);
    StoreRequest out;
    EXPECT_EQ(take_store(left, out), row.error) << row.request << ": " << row.at;
    EXPECT_EQ(left.size(), bytes.size());
  }
  const auto reply_with = [](std::size_t at, int value) {
    auto bytes = encoded_store(StoreReply{TableOutcome::kDone, 1, "abc"});
    bytes[at] = static_cast<std::byte>(value);
    std::span<const std::byte> left(bytes);
    StoreReply out;
    return take_store(left, out);
  };
  EXPECT_EQ(reply_with(4, 6), wire::WireError::kField);
  EXPECT_EQ(reply_with(6, 1), wire::WireError::kReserved);
  EXPECT_EQ(reply_with(12, 2), wire::WireError::kLength);
  EXPECT_EQ(reply_with(3, 9), wire::WireError::kLength);
}

TEST(StoreHello, encode_decode__and_what_has_no_meaning) {
  const auto good = encode_store_hello({HelloStatus::kWrongToken, 0x0102'0304'0506'0708});
  StoreHello out;
  ASSERT_EQ(decode_store_hello(good, out), wire::WireError::kNone);
  EXPECT_EQ(out, (StoreHello{HelloStatus::kWrongToken, 0x0102'0304'0506'0708}));
  const auto with = [&](std::size_t at, int value) {
    auto bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return decode_store_hello(bytes, out);
  };
  EXPECT_EQ(with(0, 'x'), wire::WireError::kKind);
  EXPECT_EQ(with(4, 99), wire::WireError::kVersion);
  EXPECT_EQ(with(5, 99), wire::WireError::kField);
  EXPECT_EQ(with(7, 2), wire::WireError::kReserved);
  EXPECT_EQ(with(7, 1), wire::WireError::kNone);
  EXPECT_TRUE(out.checks);
  // With a key everything is sealed, and checksums have no place.
  auto keyed = encode_store_hello({.keyed = true});
  keyed[7] = std::byte{1};
  EXPECT_EQ(decode_store_hello(keyed, out), wire::WireError::kField);
}

// A table whose clients ask in virtual time.
struct Table {
  explicit Table(const StoreLimits& limits = {}) : table(limits) {}

  static Time at(std::int64_t ms) { return Time::at(Duration::milliseconds(ms)); }
  // The replies that follow, as "client#number outcome value".
  StoreTable::Replies ask(StoreTable::Client client, StoreRequest request, std::int64_t ms = 0) {
    StoreTable::Replies replies;
    table.on_request(at(ms), client, std::move(request), replies);
    return replies;
  }
  StoreReply one(StoreRequest request) {
    const auto replies = ask(1, std::move(request));
    EXPECT_EQ(replies.size(), 1U);
    return replies.at(0).second;
  }
  StoreTable table;
};

TEST(StoreTable, set_get_delete__values_stay_until_they_go) {
  Table t;
  EXPECT_EQ(t.one({.what = What::kGet, .key = "a"}).outcome, TableOutcome::kNotFound);
  EXPECT_EQ(t.one({.what = What::kSet, .key = "a", .value = "1"}).outcome, TableOutcome::kDone);
  EXPECT_EQ(t.one({.what = What::kSet, .key = "a", .value = "2"}).outcome, TableOutcome::kDone);
  EXPECT_EQ(t.one({.what = What::kGet, .key = "a"}).value, "2");
  EXPECT_EQ(t.one({.what = What::kWait, .key = "a"}), (StoreReply{TableOutcome::kDone, 0, ""}));
  EXPECT_EQ(t.one({.what = What::kDelete, .key = "a"}).outcome, TableOutcome::kDone);
  EXPECT_EQ(t.one({.what = What::kDelete, .key = "a"}).outcome, TableOutcome::kNotFound);
  EXPECT_EQ(t.table.keys(), 0U);
}

TEST(StoreTable, add__from_nothing_and_over_the_edge) {
  Table t;
  EXPECT_EQ(t.one({.what = What::kAdd, .key = "n", .delta = 5}).value, "5");
  EXPECT_EQ(t.one({.what = What::kAdd, .key = "n", .delta = -7}).value, "-2");
  EXPECT_EQ(t.one({.what = What::kAdd, .key = "n", .delta = INT64_MIN}).outcome,
            TableOutcome::kNoNumber);
  EXPECT_EQ(t.one({.what = What::kGet, .key = "n"}).value, "-2");
  (void)t.one({.what = What::kSet, .key = "n", .value = "2x"});
  EXPECT_EQ(t.one({.what = What::kAdd, .key = "n", .delta = 1}).outcome, TableOutcome::kNoNumber);
}

TEST(StoreTable, compare_and_set__only_from_what_is_expected) {
  Table t;
  const auto cas = [&](std::optional<std::string> expected, std::string value) {
    return t.one({.what = What::kCompareAndSet,
                  .key = "c",
                  .value = std::move(value),
                  .expected = std::move(expected)});
  };
  EXPECT_EQ(cas("x", "1").outcome, TableOutcome::kNotFound);
  EXPECT_EQ(cas(std::nullopt, "1").outcome, TableOutcome::kDone);
  EXPECT_EQ(cas(std::nullopt, "2"), (StoreReply{TableOutcome::kDifferent, 0, "1"}));
  EXPECT_EQ(cas("0", "2"), (StoreReply{TableOutcome::kDifferent, 0, "1"}));
  EXPECT_EQ(cas("1", "2").outcome, TableOutcome::kDone);
  EXPECT_EQ(t.one({.what = What::kGet, .key = "c"}).value, "2");
}

TEST(StoreTable, waiters__all_woken_by_whatever_sets_the_key) {
  for (const StoreRequest& waker :
       {StoreRequest{.what = What::kSet, .key = "k", .value = "5"},
        StoreRequest{.what = What::kAdd, .key = "k", .delta = 5},
        StoreRequest{.what = What::kCompareAndSet, .key = "k", .value = "5"}}) {
    Table t;
    EXPECT_TRUE(t.ask(2, {.what = What::kGet, .number = 20, .key = "k", .wait_ms = 100}).empty());
    EXPECT_TRUE(t.ask(3, {.what = What::kWait, .number = 30, .key = "k", .wait_ms = 100}).empty());
    EXPECT_TRUE(t.ask(4, {.what = What::kGet, .number = 40, .key = "kk", .wait_ms = 100}).empty());
    const auto replies = t.ask(1, waker, 50);
    ASSERT_EQ(replies.size(), 3U);
    EXPECT_EQ(replies[0].first, 1U) << "the one that sets it first";
    EXPECT_EQ(replies[1],
              (std::pair{StoreTable::Client{2}, StoreReply{TableOutcome::kDone, 20, "5"}}));
    EXPECT_EQ(replies[2],
              (std::pair{StoreTable::Client{3}, StoreReply{TableOutcome::kDone, 30, ""}}));
    EXPECT_EQ(t.table.waiting(), 1U);
  }
}

TEST(StoreTable, waiters__told_when_their_time_has_passed) {
  Table t;
  (void)t.ask(2, {.what = What::kGet, .number = 20, .key = "a", .wait_ms = 200});
  (void)t.ask(3, {.what = What::kGet, .number = 30, .key = "b", .wait_ms = 100});
  EXPECT_EQ(t.table.next_timeout(), Table::at(100));
  StoreTable::Replies replies;
  t.table.on_timeout(Table::at(99), replies);
  EXPECT_TRUE(replies.empty());
  t.table.on_timeout(Table::at(100), replies);
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0],
            (std::pair{StoreTable::Client{3}, StoreReply{TableOutcome::kNotFound, 30, ""}}));
  EXPECT_EQ(t.table.next_timeout(), Table::at(200));
  t.table.on_gone(2);
  EXPECT_EQ(t.table.next_timeout(), std::nullopt);
  EXPECT_EQ(t.table.waiting(), 0U);
}

TEST(StoreTable, limits__keys_bytes_and_waiters) {
  Table t({.keys = 2, .bytes = 10, .waiting = 1});
  EXPECT_EQ(t.one({.what = What::kSet, .key = "a", .value = "123456789"}).outcome,
            TableOutcome::kDone);
  EXPECT_EQ(t.one({.what = What::kSet, .key = "b", .value = ""}).outcome, TableOutcome::kFull);
  EXPECT_EQ(t.one({.what = What::kSet, .key = "a", .value = "1"}).outcome, TableOutcome::kDone);
  EXPECT_EQ(t.one({.what = What::kSet, .key = "b", .value = ""}).outcome, TableOutcome::kDone);
  EXPECT_EQ(t.one({.what = What::kAdd, .key = "c", .delta = 1}).outcome, TableOutcome::kFull);
  EXPECT_TRUE(t.ask(1, {.what = What::kGet, .key = "d", .wait_ms = 1}).empty());
  EXPECT_EQ(t.one({.what = What::kGet, .key = "d", .wait_ms = 1}).outcome, TableOutcome::kFull);
}

// Every request of a client that stays gets exactly one reply, and other clients get none.
TEST(StoreTable, random_requests__one_reply_each) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    Table t({.keys = 5, .bytes = 60, .waiting = 4});
    std::map<std::pair<StoreTable::Client, std::uint32_t>, int> open;
    const auto answer = [&](const StoreTable::Replies& replies) {
      for (const auto& [client, reply] : replies) {
        ASSERT_EQ(open.erase({client, reply.number}), 1U);
      }
    };
    for (std::uint32_t step = 0; step < 200; ++step) {
      const StoreTable::Client client = prng.below(3);
      if (prng.below(20) == 0) {
        t.table.on_gone(client);
        std::erase_if(open, [&](const auto& entry) { return entry.first.first == client; });
      }
      StoreTable::Replies late;
      t.table.on_timeout(Table::at(step), late);
      answer(late);
      StoreRequest request{.number = step, .key = std::string(1, char('a' + prng.below(7)))};
      request.what = static_cast<What>(prng.below(StoreRequest::kWhatCount));
      if (request.what == What::kSet) request.value = std::string(prng.below(20), '1');
      if (request.what == What::kAdd) request.delta = 1;
      if (request.what == What::kGet || request.what == What::kWait) {
        request.wait_ms = static_cast<std::uint32_t>(prng.below(30));
      }
      open[{client, step}] = 1;
      answer(t.ask(client, request, step));
      ASSERT_EQ(t.table.waiting(), open.size());
      ASSERT_LE(t.table.keys(), 5U);
    }
    StoreTable::Replies last;
    t.table.on_timeout(Table::at(1000), last);
    answer(last);
    EXPECT_TRUE(open.empty());
  }
}

}  // namespace
}  // namespace thalweg::net
