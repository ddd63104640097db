// What the ranks of a CollNet communicator tell each other, and what they conclude from it.
#include "nccl/coll_roster.h"

#include <gtest/gtest.h>

namespace thalweg::nccl {
namespace {

void make_calls(CollRoster& roster, int posted, int finished, std::uint64_t signature = 7) {
  for (int i = 0; i < posted; ++i) roster.on_call(signature);
  for (int i = 0; i < finished; ++i) roster.on_call_finished();
}

TEST(coll_roster, everyone__is_the_least_of_all_ranks) {
  CollRoster rank0(0, 3);
  CollRoster other(1, 3);
  make_calls(rank0, 5, 4);
  make_calls(other, 5, 3);
  EXPECT_EQ(rank0.everyone(), 0U);
  rank0.on_message(1, other.own());
  EXPECT_EQ(rank0.everyone(), 0U);
  rank0.on_message(2, other.own());
  EXPECT_EQ(rank0.everyone(), 3U);
  make_calls(other, 0, 2);
  rank0.on_message(1, other.own());
  rank0.on_message(2, other.own());
  EXPECT_EQ(rank0.everyone(), 4U);
  other.on_message(0, CollFinished{4});
  EXPECT_EQ(other.everyone(), 4U);
  EXPECT_FALSE(rank0.failure());
  EXPECT_FALSE(other.failure());
}

TEST(coll_roster, different_calls__are_found_once_rank_0_has_made_as_many) {
  CollRoster rank0(0, 2);
  CollRoster other(1, 2);
  make_calls(other, 1, 0, 7);
  make_calls(other, 1, 0, 8);
  rank0.on_message(1, other.own());
  make_calls(rank0, 1, 0, 7);
  EXPECT_FALSE(rank0.failure());
  make_calls(rank0, 1, 0, 9);
  ASSERT_TRUE(rank0.failure());
  EXPECT_EQ(rank0.failure()->code(), ErrorCode::kMismatch);
}

TEST(coll_roster, reports_of_long_ago__are_compared_or_left) {
  CollRoster rank0(0, 2);
  CollRoster other(1, 2);
  make_calls(rank0, 4000, 0);
  make_calls(other, 100, 0);
  rank0.on_message(1, other.own());
  EXPECT_FALSE(rank0.failure());
  // What is older than the history cannot be compared.
  make_calls(rank0, 1000, 0);
  make_calls(other, 1, 0, 8);
  rank0.on_message(1, other.own());
  EXPECT_FALSE(rank0.failure());
  // The other rank is far behind, and catches up.
  make_calls(other, 4899, 0);
  rank0.on_message(1, other.own());
  EXPECT_TRUE(rank0.failure());
}

TEST(coll_roster, a_rank_that_left__breaks_only_later_calls) {
  CollRoster rank0(0, 2);
  make_calls(rank0, 2, 2);
  rank0.on_message(1, CollReport{2, 2, rank0.own().calls});
  rank0.on_message(1, CollBye{2});
  rank0.on_lost(1, "10.0.0.2:1");
  EXPECT_FALSE(rank0.failure());
  make_calls(rank0, 1, 0);
  ASSERT_TRUE(rank0.failure());
  EXPECT_EQ(rank0.failure()->code(), ErrorCode::kPeerLost);
  EXPECT_EQ(rank0.failure()->rank(), 1);

  CollRoster other(1, 2);
  make_calls(other, 2, 2);
  other.on_message(0, CollBye{2});
  EXPECT_TRUE(other.rank0_left());
  EXPECT_FALSE(other.failure());
  make_calls(other, 1, 0);
  EXPECT_TRUE(other.failure());
}

TEST(coll_roster, a_rank_that_is_lost__breaks_the_communicator) {
  CollRoster rank0(0, 2);
  rank0.on_lost(1, "10.0.0.2:1");
  ASSERT_TRUE(rank0.failure());
  EXPECT_NE(rank0.failure()->message().find("rank 1 of the CollNet communicator (10.0.0.2:1)"),
            std::string::npos);
  // The first cause stays.
  rank0.fail(Error("another"));
  EXPECT_EQ(rank0.failure()->code(), ErrorCode::kPeerLost);
  CollRoster other(1, 2);
  other.on_message(0, CollFailure{ErrorCode::kPeerLost, "rank 2 is gone"});
  ASSERT_TRUE(other.failure());
  EXPECT_EQ(other.failure()->message(), "rank 2 is gone");
}

TEST(coll_roster, messages_that_nobody_may_send__break_the_communicator) {
  const auto breaks = [](int own, int from, const CollMessage& message) {
    CollRoster roster(own, 2);
    roster.on_message(from, message);
    return roster.failure().has_value();
  };
  EXPECT_TRUE(breaks(0, 1, CollFinished{1}));
  EXPECT_TRUE(breaks(0, 1, CollFailure{ErrorCode::kInternal, "?"}));
  EXPECT_TRUE(breaks(0, 1, CollMember{}));
  EXPECT_TRUE(breaks(1, 0, CollReport{}));
  EXPECT_TRUE(breaks(1, 0, CollJob{}));
  CollRoster rank0(0, 2);
  rank0.on_message(1, CollReport{5, 5, 0});
  EXPECT_FALSE(rank0.failure());
  rank0.on_message(1, CollReport{4, 4, 0});
  EXPECT_TRUE(rank0.failure());
}

net::AtpJob some_job() {
  net::AtpJob job;
  job.grant.id = 7;
  job.grant.data = {"10.0.0.1:7701"};
  job.grant.elements = 256;
  job.servers = 2;
  job.salt = 0xffff'ffff'ffff'ffff;
  return job;
}

TEST(coll_message, every_kind__reads_as_it_was_written) {
  const std::vector<CollMessage> all = {CollMember{1, 4, "10.0.0.2:4000"},
                                        CollMember{31, 32, "[fe80::1]:4000"},
                                        CollJob{some_job(), {"10.0.0.2:4000", "10.0.0.3:4000"}},
                                        CollReport{3, 2, 0xffff'ffff'ffff'fffe},
                                        CollFinished{12},
                                        CollFailure{ErrorCode::kPeerLost, "rank 2 is gone"},
                                        CollBye{5}};
  for (const CollMessage& message : all) {
    std::string line = coll_line_of(message);
    ASSERT_TRUE(line.ends_with('\n'));
    line.pop_back();
    const Result<CollMessage> read = coll_message_from(line);
    ASSERT_TRUE(read.ok()) << line << read.error().message();
    EXPECT_EQ(*read, message) << line;
  }
}

TEST(coll_message, wrong_lines__are_refused) {
  for (const char* const line : {"",
                                 "[]",
                                 "7",
                                 "{}",
                                 R"({"is":"nobody"})",
                                 R"({"is":7})",
                                 R"({"is":"member","rank":0,"ranks":2})",
                                 R"({"is":"member","rank":2,"ranks":2,"address":"10.0.0.1:1"})",
                                 R"({"is":"member","rank":-1,"ranks":2,"address":"10.0.0.1:1"})",
                                 R"({"is":"member","rank":0,"ranks":33,"address":"10.0.0.1:1"})",
                                 R"({"is":"member","rank":0,"ranks":2,"address":"a name:1"})",
                                 R"({"is":"report","posted":1,"finished":2,"calls":0})",
                                 R"({"is":"report","posted":1})",
                                 R"({"is":"finished","count":1.5})",
                                 R"({"is":"failure"})",
                                 R"({"is":"failure","error":1})",
                                 R"({"is":"bye"})",
                                 R"({"is":"job"})",
                                 R"({"is":"job","job":{}})",
                                 R"({"is":"job","job":{},"members":[]})",
                                 R"({"is":"job","job":{},"members":[1]})",
                                 R"({"is":"job","job":{"servers":2},"members":["10.0.0.1:1"]})"}) {
    EXPECT_FALSE(coll_message_from(line).ok()) << line;
  }
}

}  // namespace
}  // namespace thalweg::nccl
